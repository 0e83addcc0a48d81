"""Outlines of plans on trial: their batches are simulated, unless a bound shows that it is vain."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TypeVar

from diaulos.models.graph import Option
from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.evaluation.places import StagePlace, stage_places
from diaulos.planning.local_search.option_fronts import undominated_options
from diaulos.planning.local_search.outlines import Outline, Outlines
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.search.covering.placement import Placement
from diaulos.schedules.costs import StageCosts
from diaulos.schedules.judging.batch_bound import LeastCosts, least_batch_seconds
from diaulos.schedules.plans import (
    forward_seconds,
    handed_on_bytes,
    input_sync_of,
    links_between,
    output_sync_of,
    plan_simulator,
    stage_costs,
    weight_seconds,
)
from diaulos.schedules.shape import PipelineShape

_MOST_COMBINATIONS = 256
"""Of the choices of options of all stages; of plans that have more, only the fastest is tried."""
_WORK_OF_EQUAL_SHAPE = 5
_WORK_OF_UNEQUAL_SHAPE = 40
"""Making and checking a schedule takes about so many times as long as simulating it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A stage with its options."""

    stage: Stage
    costs: StageCosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The plans of an outline: those of all choices for its stages."""

    outline: Outline
    in_flight: tuple[int, ...]
    places: tuple[StagePlace, ...]
    choices: tuple[tuple[Choice, ...], ...]
    """Of each stage, that of the fastest options first."""
    least_seconds: float
    """Of a batch: the simulation gives no less for any of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A plan and its batch."""

    plan: Plan
    seconds: float

    @property
    def rank(self) -> tuple[float, int, int]:
        """By time; among equal ones by devices, then by stages."""
        return float(f"{self.seconds:.12g}"), self.plan.devices_used, len(self.plan.stages)


@dataclass(kw_only=True)
class Trials:
    """What tries outlines of one problem, and remembers what they take."""

    outlines: Outlines
    tries_options: bool
    """Whether stages also take other options than those that compute fastest."""
    work: int = 0
    """Microbatches times stages of all that was simulated; making a schedule counts as well."""
    has_all_options: bool = True
    """Whether no choice of options was left out that might be best for some plan."""
    simulated: dict[Outline, Simulated] = field(default_factory=dict)
    """The fastest plan of each outline."""
    best_of_depth: dict[int, Simulated] = field(default_factory=dict)
    """The fastest of each number of stages."""
    _tried: set[Outline] = field(default_factory=set)
    _shapes: set[tuple[int, ...]] = field(default_factory=set)
    _choices: dict[tuple[Placement, StagePlace], tuple[Choice, ...]] = field(default_factory=dict)
    _least: dict[tuple[Placement, StagePlace], LeastCosts] = field(default_factory=dict)

    @property
    def best_seconds(self) -> float:
        """Of a batch of the fastest plan; infinite before there is one."""
        return min((found.seconds for found in self.best_of_depth.values()), default=math.inf)

    def new(self, outlines: Iterable[Outline]) -> list[Trial]:
        """Those that were never tried, fit, and may be the fastest; of the least bounds first."""
        found = []
        for outline in outlines:
            if outline not in self._tried:
                self._tried.add(outline)
                trial = self._trial(outline)
                if trial is not None and trial.least_seconds < self.best_seconds:
                    found.append(trial)
        return sorted(found, key=lambda trial: trial.least_seconds)

    def promise(self, trial: Trial) -> tuple[bool, float]:
        """By what trials are sorted: those first whose schedule is known, which take little."""
        return trial.outline.replicas not in self._shapes, trial.least_seconds

    def simulate(self, trial: Trial) -> None:
        """Simulate the plans of an outline that may be the fastest, at least the first."""
        problem = self.outlines.problem
        shape = PipelineShape(replicas=trial.outline.replicas, microbatches=problem.microbatches)
        simulator = plan_simulator(problem.pipelining.name, shape, 1)
        links = links_between(trial.places)
        for choices in self._combinations(trial):
            costs = [choice.costs for choice in choices]
            self._count(shape)
            plan = Plan(
                stages=tuple(choice.stage for choice in choices),
                microbatches=problem.microbatches,
            )
            seconds = simulator.makespan_seconds(costs, links)
            self._note(trial.outline, Simulated(plan=plan, seconds=seconds))

    def take(self, others: "Trials") -> None:
        """Take what others simulated of the same problem."""
        for outline, found in others.simulated.items():
            self._note(outline, found)

    def _combinations(self, trial: Trial) -> Iterator[tuple[Choice, ...]]:
        yield tuple(choices[0] for choices in trial.choices)
        if math.prod(map(len, trial.choices)) > _MOST_COMBINATIONS:
            self.has_all_options = False
            return
        for choices in [*product(*trial.choices)][1:]:
            least = self._bound(
                [self._least_of([choice]) for choice in choices],
                trial.outline,
                trial.in_flight,
                trial.places,
            )
            if least < self.best_seconds:
                yield choices

    def _note(self, outline: Outline, found: Simulated) -> None:
        _keep_first(self.simulated, outline, found)
        _keep_first(self.best_of_depth, len(found.plan.stages), found)

    def _count(self, shape: PipelineShape) -> None:
        size = shape.microbatches * shape.depth
        self.work += size
        if shape.replicas not in self._shapes:
            self._shapes.add(shape.replicas)
            is_equal = len(set(shape.replicas)) == 1
            self.work += size * (_WORK_OF_EQUAL_SHAPE if is_equal else _WORK_OF_UNEQUAL_SHAPE)

    def _trial(self, outline: Outline) -> Trial | None:
        """None where no plan of the outline fits."""
        placements = self.outlines.placements(outline)
        if placements is None:
            return None
        lines = Plan(
            stages=tuple(map(self.outlines.stage, placements)),
            microbatches=self.outlines.problem.microbatches,
        )
        places = stage_places(lines, self.outlines.problem.cluster)
        keys = [*zip(placements, places, strict=True)]
        for key in keys:
            if key not in self._choices:
                self._choices[key] = self._choices_of(*key)
                self._least[key] = self._least_of(self._choices[key])
        in_flight = tuple(placement.in_flight for placement in placements)
        return Trial(
            outline=outline,
            in_flight=in_flight,
            places=places,
            choices=tuple(self._choices[key] for key in keys),
            least_seconds=self._bound(
                [self._least[key] for key in keys], outline, in_flight, places
            ),
        )

    def _bound(
        self,
        least: Sequence[LeastCosts],
        outline: Outline,
        in_flight: Sequence[int],
        places: Sequence[StagePlace],
    ) -> float:
        microbatches = self.outlines.problem.microbatches
        seconds = least_batch_seconds(
            least,
            links_between(places),
            local_microbatches=[microbatches // d for d in outline.replicas],
            in_flight=in_flight,
        )
        return seconds * (1 - RELATIVE_ROUNDING)

    def _least_of(self, choices: Sequence[Choice]) -> LeastCosts:
        return LeastCosts.of(
            [choice.costs for choice in choices],
            is_halved=self.outlines.problem.pipelining.defers_weight_backward,
        )

    def _choices_of(self, placement: Placement, place: StagePlace) -> tuple[Choice, ...]:
        outlines, graph = self.outlines, self.outlines.problem.graph
        output_bytes = handed_on_bytes(graph, outlines.later(placement))
        stages = [outlines.stage(placement)]
        if self.tries_options:
            measures = self._measures(stages[0].layers)
            found = undominated_options(outlines.judge, placement, measures)
            self.has_all_options &= found is not None
            stages += [outlines.stage(placement, options) for options in found or ()]
        distinct = {tuple(stage.options.items()): stage for stage in stages}
        return tuple(
            Choice(stage=stage, costs=stage_costs(graph, stage, output_bytes, place))
            for stage in distinct.values()
        )

    def _measures(self, layers: Collection[int]) -> Callable[[Option], tuple[float, ...]]:
        """What of an option of a stage of these layers the simulator counts apart."""
        input_sync, output_sync = input_sync_of(layers), output_sync_of(layers)

        def measured(option: Option) -> tuple[float, ...]:
            forward = forward_seconds(option)
            backward, update = option.seconds - forward, option.update_seconds
            sent = input_sync(option), output_sync(option)
            if not self.outlines.problem.pipelining.defers_weight_backward:
                return forward, backward, update, *sent
            weight = min(weight_seconds(option), backward)
            return forward, backward - weight, weight, update, *sent

        return measured


_Key = TypeVar("_Key")


def _keep_first(best: dict[_Key, Simulated], key: _Key, found: Simulated) -> None:
    if key not in best or found.rank < best[key].rank:
        best[key] = found
