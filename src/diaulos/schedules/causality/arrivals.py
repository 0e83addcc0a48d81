"""What an arrival proves: which of a rank's own messages its peer must have taken before."""

from collections.abc import Mapping

from diaulos.schedules.actions import Action
from diaulos.schedules.schedule import Schedule


def sends_proven_by(schedule: Schedule, rank: int) -> Mapping[Action, tuple[Action, ...]]:
    """For receives of a rank, the sends of the same rank that are known to be done by then.

    A peer does its actions in order: when its message arrives, it has taken everything that it
    takes before it sends that message. What was sent can so be let go after a few messages, and
    not only at the end of a batch. Sends that no later arrival proves are not listed.
    """
    proven: dict[Action, tuple[Action, ...]] = {}
    for peer in _peers(schedule, rank):
        taken: list[Action] = []
        for action in schedule.actions[peer]:
            if action.kind.is_receive:
                send = action.matching_send()
                if schedule.shape.rank_of(send.stage, send.number) == rank:
                    taken.append(send)
            elif action.kind.is_send and taken:
                receive = action.matching_receive()
                if schedule.shape.rank_of(receive.stage, receive.number) == rank:
                    proven[receive] = tuple(taken)
                    taken = []
    return proven


def _peers(schedule: Schedule, rank: int) -> list[int]:
    """The ranks that hold a stage before or behind one of this rank's."""
    shape = schedule.shape
    stages = {stage + step for stage in shape.stages_of(rank) for step in (-1, 1)}
    peers = {
        peer for stage in stages if 0 <= stage < shape.stages for peer in shape.ranks_of(stage)
    }
    return sorted(peers - {rank})
