"""Schedules side by side: the fastest first, and why others have no plan."""

from dataclasses import replace

import pytest

from diaulos.planning.evaluation.pipelining import GPIPE, PIPELININGS
from diaulos.schedules.judging.judged import fastest_by_simulation
from diaulos.schedules.judging.schedule_choice import compare_schedules
from tests.planning.problems import chain, option, problem

LAYERS = [[option(seconds=2.0, activations=1.0)], [option(seconds=3.0, activations=1.0)]]


def test_each_schedule_has_its_best_plan() -> None:
    """What `fastest_by_simulation` finds for it, sorted by the simulated time."""
    given = replace(problem(chain(*LAYERS), devices=2, microbatches=4), pipelining=GPIPE)
    standings = compare_schedules(given)
    assert {standing.pipelining.name for standing in standings} == PIPELININGS.keys()
    assert [s.seconds for s in standings] == sorted(s.seconds for s in standings)
    for standing in standings:
        best = fastest_by_simulation(replace(given, pipelining=standing.pipelining)).best
        assert standing.seconds == best.simulated_seconds
        assert standing.reason is None


def test_a_schedule_may_not_fit() -> None:
    """GPipe holds all microbatches: it comes last, with the reason."""
    given = problem(
        chain([option(activations=1.0)]), memory=2.0, microbatches=4, data_parallel=False
    )
    standings = compare_schedules(given)
    assert standings[-1].pipelining == GPIPE
    assert standings[-1].seconds == float("inf")
    assert "no way to cut" in standings[-1].reason


def test_a_schedule_may_not_be_planned_for() -> None:
    """The exact planner refuses some problems with a flush; 2BW is planned all the same."""
    options = [option("a", parameters=1.0), option("b", seconds=2.0, parameters=2.0)]
    standings = compare_schedules(problem(chain(options), microbatches=2))
    assert standings[0].pipelining.name == "2bw"
    assert all("differ in the parameters" in s.reason for s in standings[1:])
    assert all(s.judgement is None for s in standings[1:])


@pytest.mark.parametrize("devices", [1, 2])
def test_one_stage_takes_the_same_with_all(devices: int) -> None:
    """A single layer is neither filled nor drained."""
    standings = compare_schedules(
        problem(chain([option(seconds=2.0)]), devices=devices, microbatches=4)
    )
    assert [standing.seconds for standing in standings] == pytest.approx([8.0 / devices] * 4)
