"""The checker: proves, before any process starts, that a schedule keeps its promises.

Every forward, backward or half of one runs exactly once, on the right replica, with the right
weight version, which is alive; sends and receives of a link stand in the same order on both ends;
no more is in flight than promised; the gradients of a batch are handed over before those of the
next are added; each update comes after its batch's last backward and before its first use; and no
rank waits in a circle. Linear in the number of actions, but for a sort of the messages by link.
"""

from collections.abc import Iterator

import numpy as np

from diaulos.errors import CheckError
from diaulos.schedules.actions import Kind
from diaulos.schedules.causality.order import Stretch, stretches
from diaulos.schedules.checking.facts import Facts
from diaulos.schedules.checking.missing import first_missing
from diaulos.schedules.checking.rules import RULES
from diaulos.schedules.errors import ScheduleError
from diaulos.schedules.schedule import Schedule


def check(schedule: Schedule, *, sends_wait: bool = False) -> list[Stretch]:
    """The order in which all actions can happen, or a `ScheduleError` naming the first wrong one.

    With `sends_wait` it is proven, too, that no circle arises where each send waits until its
    receive is reached. GPipe's order stands that; orders that alternate forwards and backwards need
    sends that go on beside the computations.
    """
    _check_sizes(schedule)
    wrong = min(_first_wrong(Facts(schedule)), default=None)
    if wrong is not None:
        rank, index, _, problem = wrong
        raise ScheduleError(schedule, rank, index, problem)
    _check_links(schedule)
    return stretches(schedule, sends_wait=sends_wait)


def _check_sizes(schedule: Schedule) -> None:
    shape = schedule.shape
    for name, found, wanted in (
        ("rows of actions", len(schedule.actions), shape.ranks),
        ("in-flight limits", len(schedule.in_flight_limits), shape.depth),
        ("gradient delays", len(schedule.gradient_delays), shape.stages),
    ):
        if found != wanted:
            raise CheckError(
                f"schedule {schedule.name!r} has {found} {name}; stages of {shape.replicas} "
                f"replicas need {wanted}"
            )


def _first_wrong(facts: Facts) -> Iterator[tuple[int, int, int, str]]:
    """Rank, index, number of the rule and problem: the first of each rule that is broken."""
    if facts.absent:
        for number, (is_broken, sentence) in enumerate(RULES):
            broken = is_broken(facts)
            first = int(np.argmax(broken))
            if broken[first]:
                yield *facts.columns.place(first), number, sentence(facts, first)
    missing = first_missing(facts)
    if missing is not None:
        rank, action = missing
        yield rank, len(facts.schedule.actions[rank]), len(RULES), f"{action} is missing"


def _check_links(schedule: Schedule) -> None:
    """The sends of each link stand in the order of its receives, so that no tags are needed."""
    columns, ranks = schedule.columns, schedule.shape.ranks
    partner = schedule.partners
    forwards = columns.is_kind(Kind.SEND_FORWARD, Kind.RECEIVE_FORWARD)
    sends = columns.is_kind(Kind.SEND_FORWARD, Kind.SEND_BACKWARD).nonzero()[0]
    receives = columns.is_kind(Kind.RECEIVE_FORWARD, Kind.RECEIVE_BACKWARD).nonzero()[0]
    sender, receiver = columns.rank[sends], columns.rank[partner[sends]]
    sent = sends[np.argsort((sender * ranks + receiver) * 2 + forwards[sends], kind="stable")]
    sender, receiver = columns.rank[partner[receives]], columns.rank[receives]
    link = (sender * ranks + receiver) * 2 + forwards[receives]
    taken = receives[np.argsort(link, kind="stable")]
    crossed = (partner[taken] != sent).nonzero()[0]
    if len(crossed):
        wrong = crossed[np.argmin(taken[crossed])]
        rank, index = columns.place(int(taken[wrong]))
        other, place = columns.place(int(sent[wrong]))
        first = schedule.actions[other][place]
        raise ScheduleError(schedule, rank, index, f"rank {other} sends {first} first on this link")
