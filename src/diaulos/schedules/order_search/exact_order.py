"""The best order of a batch, by a constraint solver: proves small cases, bounds larger ones.

Microbatches are alike and messages keep their order, so that some best order takes the forwards of
every stage in the order 0, 1, 2, ..., and its input and weight halves too: the k-th of each can
always be that of microbatch k. What is left to decide is how a rank mixes the three. A microbatch
may enter a stage once the one that came so many before it, as many as may be in flight, has left.

Needs OR-tools, which the extra `solver` brings.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from diaulos.errors import InputError
from diaulos.schedules.actions import Kind
from diaulos.schedules.check import check
from diaulos.schedules.costs import Links, StageCosts, border_links
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import flushed
from diaulos.schedules.generation.looped import equal_share
from diaulos.schedules.order_search.list_scheduling import Chain
from diaulos.schedules.order_search.search import Found
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator

_FINEST_DIGITS = 6
"""Times with so many decimals at most are exact."""
_UNITS = 1_000_000
"""How many the longest of other times is cut into; times are rounded down to whole ones."""
_Tasks = dict[Step, Any]
"""The solver's variable of when a computation starts, in units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactOrder:
    """What the solver has found out about a batch."""

    orders: list[list[Step]] | None
    """Of each stage; None where it has found none with this effort."""
    lower_bound_seconds: float
    """No order takes less, the optimizer and reductions not counted."""


def proven(
    found: Found,
    shape: PipelineShape,
    batches: range,
    costs: Sequence[StageCosts],
    links: Links,
    *,
    limits: Sequence[int],
    effort: float,
) -> Found:
    """What `search` has found for whole stages, or something faster, with the solver's bound.

    Where that bound is what the schedule takes, no order is better. `effort` is in seconds of the
    solver's own clock, which goes by what it does and not by the time of day.
    """
    if found.schedule.shape.chunks != 1:
        raise InputError(
            f"the schedule has {found.schedule.shape.chunks} stages a rank",
            "only orders of one stage a rank can be proven the best",
        )
    chain = Chain(
        costs=costs,
        links=border_links(links, shape.stages),
        limits=limits,
        microbatches=equal_share(shape),
    )
    known = _batch_seconds(found.schedule, costs, links)
    exact = exact_order(chain, most_seconds=known, effort=effort)
    bound = max(found.lower_bound_seconds, len(batches) * exact.lower_bound_seconds)
    best = found.schedule
    if exact.orders is not None:
        other = flushed("auto", shape, batches, order_of=exact.orders.__getitem__, limits=limits)
        if _batch_seconds(other, costs, links) < known:
            check(other)
            best = other
    return replace(found, schedule=best, lower_bound_seconds=bound)


def _batch_seconds(schedule: Schedule, costs: Sequence[StageCosts], links: Links) -> float:
    """Of one batch, the optimizer and reductions not counted."""
    bare = [replace(cost, update_seconds=0.0, reduce_seconds=0.0) for cost in costs]
    return Simulator(schedule).makespan_seconds(bare, links) / schedule.batches


def exact_order(chain: Chain, *, most_seconds: float, effort: float) -> ExactOrder:
    """The best order of forwards, input halves and weight halves, if the effort is enough.

    An order that takes `most_seconds` must exist; slower ones are not looked at. Links carry here
    any number of messages at a time, which makes the bound no less true.
    """
    from ortools.sat.python import cp_model  # noqa: PLC0415 - of an extra, and slow to import

    model, unit = cp_model.CpModel(), _unit_seconds(chain)
    tasks = _tasks(model, chain, unit, int(most_seconds / unit + 1e-6))
    solver = cp_model.CpSolver()
    solver.parameters.max_deterministic_time = effort
    # Several workers (OR-tools 9.15) were slower on these models, and did not always end.
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    is_found = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return ExactOrder(
        orders=_orders(chain, tasks, solver.value) if is_found else None,
        lower_bound_seconds=max(solver.best_objective_bound, 0.0) * unit,
    )


def _tasks(model: Any, chain: Chain, unit: float, horizon: int) -> _Tasks:
    """The computations of a batch, each after what it waits for, and the end to be minimised."""
    tasks: _Tasks = {}
    end = model.new_int_var(0, horizon, "end")
    for stage, cost in enumerate(chain.costs):
        intervals = []
        for kind, seconds in _seconds(cost):
            length = _units(seconds, unit)
            for number in range(chain.microbatches):
                start = model.new_int_var(0, horizon, f"{stage}{kind.value}{number}")
                intervals.append(model.new_fixed_size_interval_var(start, length, ""))
                model.add(end >= start + length)
                tasks[kind, stage, number] = start
        model.add_no_overlap(intervals)
    for before, after, seconds in _waits(chain):
        model.add(tasks[after] >= tasks[before] + _units(seconds, unit))
    model.minimize(end)
    return tasks


def _seconds(cost: StageCosts) -> tuple[tuple[Kind, float], ...]:
    return (
        (Kind.FORWARD, cost.forward_seconds),
        (Kind.INPUT_BACKWARD, cost.input_seconds),
        (Kind.WEIGHT_BACKWARD, cost.weight_seconds),
    )


def _waits(chain: Chain) -> list[tuple[Step, Step, float]]:
    """Which computation waits for which, and from the start of the one to that of the other."""
    forward, gradient, weights = Kind.FORWARD, Kind.INPUT_BACKWARD, Kind.WEIGHT_BACKWARD
    waits: list[tuple[Step, Step, float]] = []
    for stage, cost in enumerate(chain.costs):
        seconds = dict(_seconds(cost))
        for number in range(chain.microbatches):
            here = [(kind, stage, number) for kind in seconds]
            waits += [(a, b, seconds[a[0]]) for a, b in pairwise(here)]
            if number:
                waits += [((k, stage, number - 1), (k, stage, number), seconds[k]) for k in seconds]
            if stage:
                hop = chain.hop_seconds(stage - 1)
                previous = chain.costs[stage - 1].forward_seconds + hop
                waits.append(((forward, stage - 1, number), here[0], previous))
                back = (gradient, stage - 1, number)
                waits.append((here[1], back, cost.input_seconds + hop))
            leaving = number - chain.limits[stage]
            if leaving >= 0:
                waits.append(((weights, stage, leaving), here[0], cost.weight_seconds))
    return waits


def _orders(chain: Chain, tasks: _Tasks, value: Callable[[Any], int]) -> list[list[Step]]:
    """The computations of each stage in the order of their starts, those without length first."""
    orders = []
    for stage, cost in enumerate(chain.costs):
        seconds = dict(_seconds(cost))
        here = [step for step in tasks if step[1] == stage]
        orders.append(sorted(here, key=lambda step: (value(tasks[step]), seconds[step[0]] > 0)))
    return orders


def _unit_seconds(chain: Chain) -> float:
    """The largest power of ten of which all times are multiples, or a part of the longest."""
    times = [seconds for cost in chain.costs for _, seconds in _seconds(cost)]
    times += [chain.hop_seconds(border) for border in range(len(chain.links))]
    for digits in range(_FINEST_DIGITS + 1):
        if all(abs(time * 10**digits - round(time * 10**digits)) < 1e-9 for time in times):
            return 10.0**-digits
    return max(times) / _UNITS


def _units(seconds: float, unit: float) -> int:
    """Rounded down, so that the bound holds."""
    return int(seconds / unit + 1e-6)
