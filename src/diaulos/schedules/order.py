"""The order in which the actions of all ranks can happen, or the reason why they cannot."""

from collections import Counter
from collections.abc import Iterator

from diaulos.errors import CheckError
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.schedule import Schedule


class ScheduleError(CheckError):
    """A schedule breaks a rule; the message names the first wrong action and shows it in place."""

    def __init__(self, schedule: Schedule, rank: int, index: int, problem: str) -> None:
        self.rank, self.index = rank, index
        row = schedule.actions[rank]
        self.action = row[index] if index < len(row) else None
        around = range(max(0, index - 4), min(len(row), index + 4))
        shown = " ".join(f">>{row[i]}<<" if i == index else str(row[i]) for i in around)
        end = " >>(end)<<" if index >= len(row) else ""
        name = f"action {index}, {self.action}" if self.action else "the end of its actions"
        super().__init__(
            f"schedule {schedule.name!r}, rank {rank}, {name}: {problem}\n"
            f"  rank {rank}: {shown}{end}"
        )


def execution_order(schedule: Schedule) -> Iterator[tuple[int, Action]]:
    """Every (rank, action), each after all that it waits for.

    An action waits for those before it on its rank, a receive for its matching send, and an update
    for the reductions of all ranks. Sends do not wait for their receives. Raises `ScheduleError` at
    a deadlock, with the circle of ranks that wait for each other.
    """
    done: set[Action] = set()
    reduced: Counter[int] = Counter()
    position = [0] * len(schedule.actions)
    ready = list(range(len(schedule.actions)))
    waiting: dict[Action | int, list[int]] = {}
    while ready:
        rank = ready.pop()
        row = schedule.actions[rank]
        while position[rank] < len(row):
            action = row[position[rank]]
            awaited = _awaited(schedule, action, done, reduced)
            if awaited is not None:
                waiting.setdefault(awaited, []).append(rank)
                break
            yield rank, action
            position[rank] += 1
            if action.kind.is_send:
                done.add(action)
                ready += waiting.pop(action, [])
            if action.kind is Kind.REDUCE:
                reduced[action.number] += 1
                if reduced[action.number] == schedule.shape.ranks:
                    ready += waiting.pop(action.number, [])
    _check_finished(schedule, position)


def _awaited(
    schedule: Schedule, action: Action, done: set[Action], reduced: Counter[int]
) -> Action | int | None:
    """What an action still waits for: a send, the number of a batch to be reduced, or nothing."""
    if action.kind.is_receive and action.matching_send() not in done:
        return action.matching_send()
    if action.kind is Kind.UPDATE and reduced[action.number] < schedule.shape.ranks:
        return action.number
    return None


def _check_finished(schedule: Schedule, position: list[int]) -> None:
    """Raise where ranks are stuck: follow who waits for whom until a rank comes up twice."""
    stuck = [rank for rank, row in enumerate(schedule.actions) if position[rank] < len(row)]
    if not stuck:
        return
    rank, seen, story = stuck[0], [], []
    while rank not in seen and position[rank] < len(schedule.actions[rank]):
        seen.append(rank)
        action = schedule.actions[rank][position[rank]]
        rank, sentence = _whom(schedule, position, rank, action)
        story.append(sentence)
    circle = seen.index(rank) if rank in seen else 0
    first = seen[circle]
    problem = "deadlock: " + "; ".join(story[circle:])
    raise ScheduleError(schedule, first, position[first], problem)


def _whom(schedule: Schedule, position: list[int], rank: int, action: Action) -> tuple[int, str]:
    """The rank that a stuck action waits for, and a sentence that says so."""
    if action.kind.is_receive:
        needed = action.matching_send()
        other = schedule.shape.rank_of(needed.stage, needed.number)
    else:
        other = next(
            other
            for other, row in enumerate(schedule.actions)
            if all(
                (done.kind, done.number) != (Kind.REDUCE, action.number)
                for done in row[: position[other]]
            )
        )
        needed = Action(schedule.shape.stage_of(other), Kind.REDUCE, action.number)
    row = schedule.actions[other]
    verdict = f"stands behind {row[position[other]]}" if needed in row else "never comes"
    return other, f"{action} on rank {rank} waits for {needed} on rank {other}, which {verdict}"
