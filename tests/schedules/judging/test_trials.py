"""Trials: what is simulated, what is left out, and which plan counts as the first."""

from dataclasses import replace

import pytest

from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B
from diaulos.planning.local_search.outlines import Outlines
from diaulos.planning.problem import PlanningProblem
from diaulos.schedules.judging.trials import Trials
from diaulos.schedules.plans import simulate_plan
from tests.planning.problems import chain, option, problem

TWO_LAYERS = replace(
    problem(chain([option(seconds=3.0)], [option(seconds=5.0)]), devices=2, microbatches=4),
    pipelining=ONE_F_ONE_B,
)


def trials_of(given: PlanningProblem, *, tries_options: bool = False) -> Trials:
    outlines = Outlines.of(given)
    assert outlines is not None
    return Trials(outlines=outlines, tries_options=tries_options)


def test_the_most_promising_come_first_and_none_twice() -> None:
    """Sorted by their bounds; an outline that was tried is not new."""
    trials = trials_of(TWO_LAYERS)
    everything = trials.outlines.first(10)
    found = trials.new(everything)
    assert len(found) == 3
    assert [trial.least_seconds for trial in found] == sorted(t.least_seconds for t in found)
    assert trials.new(everything) == []


def test_simulations_are_those_of_the_plans() -> None:
    """The seconds of each outline are what `simulate_plan` says of its plan."""
    trials = trials_of(TWO_LAYERS)
    for trial in trials.new(trials.outlines.first(10)):
        trials.simulate(trial)
    for found in trials.simulated.values():
        timeline = simulate_plan(
            TWO_LAYERS.graph, found.plan, TWO_LAYERS.cluster, schedule="1f1b", batches=1
        )
        assert found.seconds == pytest.approx(timeline.makespan_seconds, rel=1e-12)
    assert trials.best_of_depth.keys() == {1, 2}
    assert trials.best_seconds == min(found.seconds for found in trials.simulated.values())


def test_what_cannot_be_the_fastest_is_left_out() -> None:
    """Once a plan is known, those whose bounds are no less are not new."""
    trials = trials_of(TWO_LAYERS)
    first, *others = trials.outlines.first(10)
    fast = next(o for o in (first, *others) if o.replicas == (2,))
    trials.simulate(trials.new([fast])[0])
    assert trials.best_seconds == 16.0
    assert trials.new(o for o in (first, *others) if o.replicas == (1,)) == []


def test_among_equal_ones_fewer_devices_win() -> None:
    """Layers that take no time are as fast on one device as on two."""
    trials = trials_of(replace(TWO_LAYERS, graph=chain([option(seconds=0.0)])))
    for trial in reversed(trials.new(trials.outlines.first(10))):
        trials.simulate(trial)
    assert trials.best_of_depth[1].plan.devices_used == 1


def test_slower_options_may_make_faster_batches() -> None:
    """What takes longer in all may update faster; that is tried only where asked for."""
    options = [
        replace(option("slow update", seconds=1.0), update_seconds=9.0),
        replace(option("fast update", seconds=2.0), update_seconds=0.0),
    ]
    given = replace(problem(chain(options), microbatches=4), pipelining=ONE_F_ONE_B)
    for tries_options, seconds in ((False, 13.0), (True, 8.0)):
        trials = trials_of(given, tries_options=tries_options)
        trials.simulate(trials.new(trials.outlines.first(1))[0])
        assert trials.best_seconds == seconds
        assert trials.has_all_options


def test_work_counts_what_is_simulated() -> None:
    """Microbatches times stages, and more for a schedule that is not known yet."""
    trials = trials_of(TWO_LAYERS)
    (one,) = [o for o in trials.outlines.first(10) if o.replicas == (1,)]
    trials.simulate(trials.new([one])[0])
    assert trials.work == 4 + 5 * 4
