"""One stage of a plan in the making: its exact options, time and memory."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.evaluation.evaluate import RELATIVE_ROUNDING
from diaulos.planning.plan import Stage
from diaulos.planning.search.covering.knapsack import Choice, choose_options
from diaulos.planning.search.covering.lessons import Lessons
from diaulos.planning.search.stage_costs.fixed_point import MOST_UNITS, Units, limited_fixed_point
from diaulos.planning.search.stage_costs.space import Space
from diaulos.planning.search.stage_costs.threshold import Threshold

_NEVER = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A stage at a place in a plan, which decides how many microbatches are in flight."""

    pair: int
    degree: int
    """An index of `Space.degrees`."""
    in_flight: int
    end: int
    """Where its devices end, counted from the line's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageChoice:
    """One option for each layer of a stage, by index."""

    options: tuple[int, ...]
    time: int
    """Of one microbatch on a replica with the cut edges, in units."""
    memory_bytes: float
    """With everything that counts but buffers and reserve."""

    def is_better_than(self, other: "StageChoice", temporary_bytes: float) -> bool:
        """Whether it is faster, or as fast with less memory, its temporary memory included."""
        mine = (self.time, self.memory_bytes + temporary_bytes)
        return mine < (other.time, other.memory_bytes)


@dataclass(kw_only=True)
class Judge:
    """Exact costs of the stages that plans are made of; what it finds become lessons."""

    space: Space
    lessons: Lessons = field(default_factory=Lessons)
    _choices: dict[tuple[int, int, int], StageChoice | None] = field(default_factory=dict)

    def keeps_to(self, placement: Placement, threshold: Threshold) -> bool:
        """Whether a candidate really keeps to a threshold."""
        value = self.value(placement)
        if value is None:
            return False
        return value < threshold.time if threshold.strict else value <= threshold.time

    def all_keep_to(self, placements: Iterable[Placement], threshold: Threshold) -> bool:
        """Whether all do; it learns about each of them."""
        return not [stage for stage in placements if not self.keeps_to(stage, threshold)]

    def value(self, placement: Placement) -> Fraction | None:
        """What a threshold is compared with, in units; None where no options fit."""
        time = self.microbatch_time(placement)
        if time is None:
            return None
        space, degree = self.space, self.space.degrees[placement.degree]
        reduction = space.reduction(placement.pair, placement.degree)
        per_sample = Fraction(time + reduction, degree.data_parallel)
        if not space.flushes:
            return per_sample
        latency = self.latency(placement)
        assert latency is not None, "the options fit"
        return space.problem.microbatches * per_sample - latency

    def latency(self, placement: Placement) -> int | None:
        """What a stage adds to filling and draining, in units; None where no options fit."""
        time = self.microbatch_time(placement)
        if time is None or not self.space.flushes:
            return None if time is None else 0
        return time - self.space.deferred_time(placement.pair, placement.degree)

    def microbatch_time(self, placement: Placement) -> int | None:
        """Time of one microbatch on a replica, in units; None where no options fit."""
        choice = self.choice(placement)
        setting = self.space.degrees[placement.degree].setting
        least = int(self.space.settings[setting].least[placement.pair])
        self.lessons.add(
            setting,
            placement.pair,
            placement.in_flight,
            _NEVER if choice is None else choice.time - least,
        )
        return None if choice is None else choice.time

    def choice(self, placement: Placement) -> StageChoice | None:
        """The options of a stage: fastest, then least memory, then first in the source.

        Its time includes that of the cut edges.
        """
        setting = self.space.degrees[placement.degree].setting
        key = (placement.pair, setting, placement.in_flight)
        if key not in self._choices:
            self._choices[key] = _best_options(self.space, setting, *key[::2])
        return self._choices[key]

    def memory_bytes(self, placement: Placement) -> float:
        """What each device of a stage that fits holds."""
        choice = self.choice(placement)
        assert choice is not None, "the options fit"
        return choice.memory_bytes

    def memory_of_fastest(
        self, pair: NDArray[np.int64], degree: NDArray[np.int64], in_flight: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """What each device of some stages holds with the fastest options; NaN where in doubt.

        In doubt are stages in which these options do not fit, or others may be as good.
        """
        space = self.space
        held = np.full(len(pair), np.nan)
        setting_of = space.setting_of[degree]
        for index in np.unique(setting_of):
            costs = space.settings[index]
            some = np.flatnonzero(setting_of == index)
            if costs.fastest_are_sure:
                held[some] = costs.memory_of_fastest(
                    space.pairs.outer[pair[some]], space.pairs.inner[pair[some]], in_flight[some]
                )
        return held

    def stage(self, placement: Placement) -> Stage:
        """The stage of a plan that a placement stands for."""
        choice = self.choice(placement)
        assert choice is not None, "only stages that fit are built"
        return self.stage_with(placement, choice.options)

    def stage_with(self, placement: Placement, options: Sequence[int]) -> Stage:
        """The same with other options, one for each layer, by index."""
        space, degree = self.space, self.space.degrees[placement.degree]
        layers = space.settings[degree.setting].layers
        order = space.problem.graph.topological_order
        rows = layers_of(space, placement.pair)
        first = space.devices - placement.end
        return Stage(
            layers=tuple(order[row] for row in rows),
            data_parallel=degree.data_parallel,
            tensor_parallel=layers.setting.tensor_parallel,
            options={
                order[row]: layers.options[row][option].name
                for row, option in zip(rows, options, strict=True)
            },
            sharded_optimizer=_shards(space, rows, options, degree.setting),
            first_device=None if space.problem.cluster.is_flat else first,
        )


def layers_of(space: Space, pair: int) -> NDArray[np.int64]:
    """Indices of the layers of a stage in topological order."""
    members = space.downsets.members
    return np.flatnonzero(members[space.pairs.outer[pair]] & ~members[space.pairs.inner[pair]])


def _best_options(space: Space, setting: int, pair: int, in_flight: int) -> StageChoice | None:
    costs = space.settings[setting]
    layers, rows = costs.layers, layers_of(space, pair)
    times = layers.times[rows]
    memory = layers.activation_bytes[rows] * in_flight + layers.fixed_bytes[rows]
    edges = int(costs.least[pair]) - int(times.min(axis=1).sum())
    times = times + _synchronisation(space, setting, rows)
    limit = layers.memory_limit_bytes - buffer_bytes(space, setting, rows)
    best = None
    for largest, usable in _largest_temporaries(layers.temporary_bytes[rows]):
        room = limit * (1 + RELATIVE_ROUNDING) - largest
        choice = _choose(times, np.where(usable, memory, np.inf), room, edges)
        if choice is not None and (best is None or choice.is_better_than(best, largest)):
            best = replace(choice, memory_bytes=choice.memory_bytes + largest)
    return best


def _largest_temporaries(
    temporary: NDArray[np.float64],
) -> Iterator[tuple[float, NDArray[np.bool_]]]:
    """Each amount that may be the largest of a stage, with the options that stay within it."""
    for largest in np.unique(temporary).tolist():
        usable = temporary <= largest
        if usable.any(axis=1).all():
            yield largest, usable


def _choose(
    times: Units, memory: NDArray[np.float64], room_bytes: float, edges: int
) -> StageChoice | None:
    rows = np.arange(len(times))
    fastest = np.where(times == times.min(axis=1, keepdims=True), memory, np.inf)
    options = fastest.argmin(axis=1)
    if not _near_ties(times) and math.fsum(fastest[rows, options]) <= room_bytes:
        chosen = tuple(options.tolist())
    else:
        choice = _within(times, memory, room_bytes, edges)
        if choice is None:
            return None
        chosen = choice.options
    return StageChoice(
        options=chosen,
        time=int(times[rows, chosen].sum()) + edges,
        memory_bytes=math.fsum(memory[rows, chosen]),
    )


def _within(
    times: Units, memory: NDArray[np.float64], room_bytes: float, edges: int
) -> Choice | None:
    if room_bytes < 0:
        return None
    held = np.where(memory <= room_bytes, memory, 0.0)
    total = math.fsum(np.where(np.isfinite(memory), memory, 0.0).max(axis=1))
    units = limited_fixed_point(room_bytes, addends=len(held), total=total)
    return choose_options(times, units.units(memory), units.limit, other_time=edges)


def _near_ties(times: Units) -> bool:
    """Whether options differ so little that they may be equal within the rounding of a stage."""
    excess = times - times.min(axis=1, keepdims=True)
    return bool(((excess > 0) & (excess <= MOST_UNITS * RELATIVE_ROUNDING)).any())


def _synchronisation(space: Space, setting: int, rows: NDArray[np.int64]) -> Units:
    """What each option of the stage's layers adds to the least cost of the cut edges."""
    layers = space.settings[setting].layers
    extra = np.zeros(layers.times[rows].shape, np.int64)
    if not layers.options_synchronise_alike:
        inside = {int(row): place for place, row in enumerate(rows)}
        for edge, (source, target) in enumerate(space.edge_ends):
            if target in inside and source not in inside:
                extra[inside[target]] += layers.edge_in[edge] - layers.edge_in[edge].min()
            if source in inside and target not in inside:
                extra[inside[source]] += layers.edge_out[edge] - layers.edge_out[edge].min()
    return extra


def buffer_bytes(space: Space, setting: int, rows: NDArray[np.int64]) -> float:
    """Bytes of a stage's tensors in transit: each that is sent or received, and its gradient."""
    if not space.problem.costs.counts_buffers:
        return 0.0
    layers, inside = space.settings[setting].layers, set(rows.tolist())
    crossing: dict[tuple[str, int], float] = {}
    for edge, (source, target) in enumerate(space.edge_ends):
        once = source if space.problem.costs.shared_tensors_once else edge
        if target in inside and source not in inside:
            key = ("in", once)
            crossing[key] = max(crossing.get(key, 0.0), layers.edge_in_bytes[edge])
        if source in inside and target not in inside:
            key = ("out", once)
            crossing[key] = max(crossing.get(key, 0.0), layers.edge_out_bytes[edge])
    return 2 * math.fsum(crossing.values())


def _shards(space: Space, rows: NDArray[np.int64], options: Sequence[int], setting: int) -> bool:
    """Whether sharding the optimizer over the replicas saves memory."""
    layers = space.settings[setting].layers
    return (
        space.problem.shard_optimizer
        and layers.setting.data_degrees[0] > 1
        and any(
            layers.options[row][option].fixed_memory.optimizer_bytes > 0
            for row, option in zip(rows, options, strict=True)
        )
    )
