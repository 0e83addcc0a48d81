"""The search for an order that no closed form gives: uneven stages, limits on what is in flight.

Many orders are made, by rules that generalise the closed forms, by list scheduling and by a search
that improves them, and are simulated; the best one is taken. The closed forms that keep the limits
are among them, so that none of these is better.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import floor

from diaulos.errors import CheckError, InputError
from diaulos.schedules.check import check
from diaulos.schedules.costs import Links, StageCosts, border_links, chunk_costs
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import Order, flushed
from diaulos.schedules.generation.looped import equal_share
from diaulos.schedules.generation.zero_bubble import delayed_weights
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.order_search.bounds import lower_bound_seconds
from diaulos.schedules.order_search.list_scheduling import Chain, Policy, list_schedule
from diaulos.schedules.order_search.shop_search import found_orders
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator

_WHOLE = ("1f1b", "gpipe", "zb-h1", "zb-h2")
_CUT = ("zb-v", "dualpipe-v", "interleaved", "breadth-first")
_WARM_UPS = [quarters / 4 for quarters in range(13)]
"""From no warm-up to three forwards for each stage that is still to come."""
_POLICIES = [
    Policy(warm_up=warm_up, patience=patience, forwards_first=forwards_first)
    for patience, forwards_first, warm_up in product(
        (0.0, 0.5, 1.0), (False, True), (1.0, 1.5, 2.0, 3.0, 1.25, 100.0)
    )
]
_STEPS_SCHEDULED = 1_000_000
"""In all list schedules together; fewer policies are tried on larger pipelines."""
_LISTS_SIMULATED = 5
"""The best ones, by their own account."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best schedule found, and what none can be better than."""

    schedule: Schedule
    costs: Sequence[StageCosts]
    """Of each of its stages: those that were given, or their parts where it cuts them."""
    lower_bound_seconds: float
    """Of all batches; the optimizer and reductions not counted."""


def search(
    shape: PipelineShape,
    batches: range,
    costs: Sequence[StageCosts],
    links: Links,
    limits: Sequence[int],
    *,
    chunks: int | None = None,
) -> Found:
    """The best schedule found with at most `limits` microbatches in flight, by position.

    Each batch is flushed. A microbatch is in flight from its forward to the end of both halves of
    its backward. The shape has one stage a rank and equal data-parallel degrees. Stages are left
    whole, or also cut evenly where `chunks` is given: in two, and in so many; then one link must be
    given for all borders.
    """
    local = equal_share(shape)
    if len(limits) != shape.stages or min(limits) < 1:
        raise InputError(
            f"the in-flight limits are {list(limits)}",
            f"each of the {shape.stages} stages needs one of at least 1",
        )
    chain = Chain(
        costs=costs,
        links=border_links(links, shape.stages),
        limits=limits,
        microbatches=local,
    )
    parts = 1 if chunks in (None, 1) else max(chunks, 2)
    bound = lower_bound_seconds(chain, most_chunks=parts)
    best = _fastest(_candidates(shape, chain, bound, chunks=chunks), costs, links, bound)
    schedule = _repeated(best, batches)
    check(schedule)
    return Found(
        schedule=schedule,
        costs=chunk_costs(schedule.shape, costs),
        lower_bound_seconds=len(batches) * bound,
    )


def _fastest(
    candidates: Iterator[Schedule], costs: Sequence[StageCosts], links: Links, bound: float
) -> Schedule:
    """The first of the candidates that take least; the search ends where the bound is reached."""
    fastest: tuple[float, Schedule] | None = None
    for candidate in candidates:
        try:
            simulator = Simulator(candidate)
        except CheckError:  # a rule beyond where it makes sense: its ranks wait for each other
            continue
        seconds = simulator.makespan_seconds(chunk_costs(candidate.shape, costs), links)
        if fastest is None or seconds < fastest[0]:
            fastest = seconds, candidate
        if fastest[0] <= bound:
            break
    assert fastest is not None
    return fastest[1]


def _candidates(
    shape: PipelineShape, chain: Chain, bound: float, *, chunks: int | None
) -> Iterator[Schedule]:
    """Schedules of one batch that keep the limits, those that take longer to find last."""
    names = _WHOLE if chunks in (None, 1) else (*_WHOLE, *_CUT)
    for name in names:
        closed = generate(name, GENERATORS[name].shape(shape, chunks or 1), 1)
        needed_and_limits = zip(closed.in_flight_limits, chain.limits, strict=True)
        if all(needed <= limit * closed.shape.chunks for needed, limit in needed_and_limits):
            yield closed
    for warm_up in _WARM_UPS:
        yield _of_one_batch(shape, chain, _warmed_up(chain, warm_up))
    listed = sorted(_list_schedules(chain), key=lambda found: found[0])
    for _, orders in listed[:_LISTS_SIMULATED]:
        yield _of_one_batch(shape, chain, orders)
    found = found_orders(chain, enough_seconds=bound)
    if found is not None:
        yield _of_one_batch(shape, chain, found)


def _warmed_up(chain: Chain, warm_up: float) -> list[list[Step]]:
    """Zero-bubble orders that go so far forward, and let weight halves wait up to the limits.

    ZB-H1 and ZB-H2 are those of warm-up 1 and 2 with limits d and 2 d - 1.
    """
    last = len(chain.limits) - 1
    orders = []
    for stage, limit in enumerate(chain.limits):
        forwards = min(limit - 1, floor(warm_up * (last - stage)))
        orders.append(delayed_weights(stage, chain.microbatches, forwards, limit - 1 - forwards))
    return orders


def _list_schedules(chain: Chain) -> Iterator[tuple[float, list[list[Step]]]]:
    steps = 3 * chain.microbatches * len(chain.limits)
    for policy in _POLICIES[: max(_STEPS_SCHEDULED // steps, 3)]:
        found = list_schedule(chain, policy)
        if found is not None:
            yield found


def _of_one_batch(shape: PipelineShape, chain: Chain, orders: Sequence[Order]) -> Schedule:
    return flushed("auto", shape, range(1), order_of=orders.__getitem__, limits=chain.limits)


def _repeated(one: Schedule, batches: range) -> Schedule:
    """All batches in the order of one."""
    shape = one.shape

    def order_of(position: int) -> Order:
        rank = next(rank for rank in range(shape.ranks) if shape.position_of(rank) == position)
        degree = shape.replicas[position]
        row = one.actions[rank]
        return [(a.kind, a.stage, a.number // degree) for a in row if a.kind.is_compute]

    return flushed("auto", shape, batches, order_of=order_of, limits=one.in_flight_limits)
