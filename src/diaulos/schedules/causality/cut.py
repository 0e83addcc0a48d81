"""Where ranks can stop together in the middle of a schedule without flushes."""

from collections.abc import Sequence

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.schedule import Schedule

_NEEDED = (Kind.SEND_FORWARD, Kind.SEND_BACKWARD, Kind.UPDATE)


def actions_until(schedule: Schedule, batch: int) -> tuple[int, ...]:
    """How many actions each rank does so that all stages have updated with a batch.

    Where a rank needs a message for that, its peer goes on to the send; and what one rank has
    updated, all have. So no rank waits for another that has stopped.
    """
    places = [
        {action: index for index, action in enumerate(row) if action.kind in _NEEDED}
        for row in schedule.actions
    ]
    ends = [0] * len(places)
    needed = list(_updates(places, batch))
    while needed:
        rank, end = needed.pop()
        for action in schedule.actions[rank][ends[rank] : end]:
            if action.kind.is_receive:
                send = action.matching_send()
                peer = schedule.shape.rank_of(send.stage, send.number)
                needed.append((peer, places[peer][send] + 1))
            elif action.kind is Kind.UPDATE and action.number > batch:
                needed.extend(_updates(places, action.number))
        ends[rank] = max(ends[rank], end)
    return tuple(ends)


def _updates(places: Sequence[dict[Action, int]], batch: int) -> list[tuple[int, int]]:
    """Each rank with the end of its last update of a batch."""
    return [
        (rank, index + 1)
        for rank, of_rank in enumerate(places)
        for action, index in of_rank.items()
        if action.kind is Kind.UPDATE and action.number == batch
    ]
