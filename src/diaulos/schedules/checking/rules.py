"""The rules of a schedule: for each, where it is broken, and a sentence that says how.

Rules are looked at together; where several are broken at one action, the first listed is told.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.checking.facts import Facts
from diaulos.schedules.columnar.columns import Flags, Numbers

_HALVES = (Kind.INPUT_BACKWARD, Kind.WEIGHT_BACKWARD)
_COMPUTE = (Kind.FORWARD, Kind.BACKWARD, *_HALVES)


def _is_foreign(facts: Facts) -> Flags:
    return ~facts.is_held


def _tell_foreign(facts: Facts, index: int) -> str:
    rank = int(facts.columns.rank[index])
    stages = facts.shape.stages_of(rank)
    named = "stage" if len(stages) == 1 else "stages"
    return f"rank {rank} holds {named} {', '.join(map(str, stages))}"


def _is_repeated(facts: Facts) -> Flags:
    return facts.is_placed & ~facts.is_first


def _tell_repeated(_: Facts, __: int) -> str:
    return "it is done twice"


def _is_misplaced(facts: Facts) -> Flags:
    return facts.is_held & ~facts.is_placed


def _tell_misplaced(facts: Facts, index: int) -> str:
    action = _action(facts, index)
    if not facts.is_in_range[index]:
        if action.kind.is_of_batch:
            return f"there is no batch {action.number}"
        return f"microbatch {action.number} is in no batch of this schedule"
    if not facts.is_local[index]:
        owner = facts.shape.rank_of(action.stage, action.number)
        return f"microbatch {action.number} runs on rank {owner}"
    return f"stage {action.stage} has no such neighbour"


def _is_whole_and_halved(facts: Facts) -> Flags:
    """A half beside a whole backward, at the later of the two."""
    halves = facts.is_kind(*_HALVES)
    if not halves.any():
        return halves
    whole = _of_microbatch(facts, facts.first(Kind.BACKWARD))
    half = _of_microbatch(facts, np.minimum(*map(facts.first, _HALVES)))
    return (halves & (whole < facts.index)) | (facts.is_kind(Kind.BACKWARD) & (half < facts.index))


def _tell_whole_and_halved(facts: Facts, index: int) -> str:
    return f"the backward of microbatch {_action(facts, index).number} is done whole and in halves"


def _needs(facts: Facts) -> Iterator[tuple[Numbers, Kind, int, Numbers]]:
    """Places of actions; which kind they need, how many stages ahead, and where that stands."""
    fed = np.concatenate(([False], facts.feeds[:-1]))[facts.stage]
    feeds = facts.feeds[facts.stage]
    is_first, is_last = facts.stage == 0, facts.stage == facts.shape.stages - 1
    forward, begins = facts.is_kind(Kind.FORWARD), facts.is_kind(Kind.BACKWARD, _HALVES[0])

    def need(
        chosen: Flags, kind: Kind, ahead: int = 0, table: Numbers | None = None
    ) -> tuple[Numbers, Kind, int, Numbers]:
        places = chosen.nonzero()[0]
        known = facts.first(kind) if table is None else table
        return places, kind, ahead, known[facts.stage[places] + ahead, facts.slot[places]]

    yield need(begins, Kind.FORWARD)
    yield need(forward & fed, Kind.RECEIVE_FORWARD)
    yield need(forward & ~fed & ~is_first, Kind.FORWARD, -1)
    yield need(begins & feeds, Kind.RECEIVE_BACKWARD)
    yield need(begins & ~feeds & ~is_last, Kind.BACKWARD, 1, facts.gradient)
    yield need(facts.is_kind(Kind.SEND_FORWARD), Kind.FORWARD)
    yield need(facts.is_kind(Kind.SEND_BACKWARD), Kind.BACKWARD, 0, facts.gradient)
    yield need(facts.is_kind(Kind.WEIGHT_BACKWARD), Kind.INPUT_BACKWARD, 0, facts.gradient)


def _is_too_early(facts: Facts) -> Flags:
    early = np.zeros(facts.absent, np.bool_)
    for places, _, _, needed in _needs(facts):
        early[places[needed > places]] = True
    return early


def _tell_too_early(facts: Facts, index: int) -> str:
    action = _action(facts, index)
    for places, kind, ahead, needed in _needs(facts):
        if index in places[needed > places]:
            stage = action.stage + ahead
            halved = facts.first(Kind.WEIGHT_BACKWARD)[stage, facts.slot[index]] < facts.absent
            first = Kind.INPUT_BACKWARD if kind is Kind.BACKWARD and halved else kind
            return f"{Action(stage, first, action.number)} must come first"
    raise AssertionError


def _reduces_too_early(facts: Facts) -> Flags:
    return facts.is_kind(Kind.REDUCE) & (_of_batch(facts, facts.end_of_batch) > facts.index)


def _tell_reduces_too_early(facts: Facts, index: int) -> str:
    rank, batch = int(facts.columns.rank[index]), _action(facts, index).number
    stage = int(facts.columns.stage[index])
    start = facts.schedule.microbatch_numbers.start
    late = next(
        number
        for number in facts.shape.microbatches_of(rank, batch)
        if facts.end[stage, number - start] > index
    )
    is_halved = facts.first(Kind.INPUT_BACKWARD)[stage, late - start] < index
    kind = Kind.WEIGHT_BACKWARD if is_halved else Kind.BACKWARD
    return f"{Action(stage, kind, late)} must come first"


def _mixes_batches(facts: Facts) -> Flags:
    adds = facts.is_kind(Kind.BACKWARD, Kind.WEIGHT_BACKWARD) & (facts.batch > 0)
    return adds & (_of_batch(facts, facts.first_of_batch(Kind.REDUCE), back=1) > facts.index)


def _tell_mixes_batches(facts: Facts, index: int) -> str:
    batch = int(facts.batch[index]) + facts.schedule.first_batch - 1
    return f"{Action(_action(facts, index).stage, Kind.REDUCE, batch)} must come first"


def _updates_too_early(facts: Facts) -> Flags:
    return facts.is_kind(Kind.UPDATE) & (
        _of_batch(facts, facts.first_of_batch(Kind.REDUCE)) > facts.index
    )


def _tell_updates_too_early(facts: Facts, index: int) -> str:
    action = _action(facts, index)
    return f"{Action(action.stage, Kind.REDUCE, action.number)} must come first"


def _lawful_version(facts: Facts) -> Numbers:
    delays = np.array(facts.schedule.gradient_delays)[facts.stage]
    counts: Numbers = np.maximum(facts.columns.number // facts.shape.microbatches - delays, 0)
    return counts


def _has_wrong_version(facts: Facts) -> Flags:
    flags: Flags = facts.is_kind(*_COMPUTE) & (facts.columns.version != _lawful_version(facts))
    return flags


def _tell_wrong_version(facts: Facts, index: int) -> str:
    action = _action(facts, index)
    wanted = facts.schedule.version_of(action.stage, action.number)
    return f"microbatch {action.number} computes with version {wanted}"


def _version_is_not_there(facts: Facts) -> Flags:
    version, newest = _lawful_version(facts), facts.newest_version
    kept = np.array(facts.schedule.weight_versions)[facts.stage]
    flags: Flags = facts.is_kind(*_COMPUTE) & ((version > newest) | (version <= newest - kept))
    return flags


def _tell_version_is_not_there(facts: Facts, index: int) -> str:
    version, newest = int(_lawful_version(facts)[index]), int(facts.newest_version[index])
    if version > newest:
        return f"it needs version {version}, and the newest is {newest}"
    return f"it needs version {version}, which {newest} has replaced"


def _exceeds_in_flight_limit(facts: Facts) -> Flags:
    forward = facts.is_kind(Kind.FORWARD) & facts.is_first
    ended = facts.is_kind(Kind.BACKWARD, Kind.WEIGHT_BACKWARD) & facts.is_first
    limits = np.array(facts.schedule.in_flight_limits)[facts.position]
    flags: Flags = forward & (facts.running(forward, ended) > limits)
    return flags


def _tell_exceeds_in_flight_limit(facts: Facts, index: int) -> str:
    rank, place = facts.columns.place(index)
    in_flight = set()
    for action in facts.schedule.actions[rank][: place + 1]:
        if action.kind is Kind.FORWARD:
            in_flight.add((action.number, action.stage))
        elif action.kind.ends_backward:
            in_flight.discard((action.number, action.stage))
    limit = facts.schedule.in_flight_limits[facts.shape.position_of(rank)]
    listed = (
        str(number) if facts.shape.chunks == 1 else f"{number} of stage {stage}"
        for number, stage in sorted(in_flight)
    )
    return f"microbatches {', '.join(listed)} are in flight, and at most {limit} are promised"


def _skips_an_update(facts: Facts) -> Flags:
    flags: Flags = facts.is_kind(Kind.UPDATE) & (facts.columns.number != facts.newest_version - 1)
    return flags


def _tell_skips_an_update(facts: Facts, index: int) -> str:
    due = Action(_action(facts, index).stage, Kind.UPDATE, int(facts.newest_version[index]) - 1)
    return f"{due} must come first"


def _users_of_replaced(facts: Facts) -> tuple[Numbers, Numbers]:
    """Indices of forwards whose version is replaced before they end, and of the replacing update.

    Update u makes version u + 1 in the place of version u + 1 - kept.
    """
    schedule = facts.schedule
    forward = (facts.is_kind(Kind.FORWARD) & facts.is_first).nonzero()[0]
    kept = np.array(schedule.weight_versions)[facts.stage[forward]]
    update = _lawful_version(facts)[forward] + kept - 1 - schedule.first_batch
    updates = facts.first_of_batch(Kind.UPDATE)
    inside = (update >= 0) & (update < schedule.batches)
    place = updates[facts.seat[forward], np.where(inside, update, 0)]
    end = facts.end[facts.stage[forward], facts.slot[forward]]
    bad = inside & (forward < place) & (place < end) & (place < facts.absent)
    return forward[bad], place[bad]


def _replaces_a_version_in_use(facts: Facts) -> Flags:
    broken = np.zeros(facts.absent, np.bool_)
    broken[_users_of_replaced(facts)[1]] = True
    return broken


def _tell_replaces_a_version_in_use(facts: Facts, index: int) -> str:
    forwards, updates = _users_of_replaced(facts)
    user = _action(facts, int(forwards[updates == index][0]))
    version = facts.schedule.version_of(user.stage, user.number)
    return f"it replaces version {version}, which microbatch {user.number} still uses"


def _of_microbatch(facts: Facts, table: Numbers) -> Numbers:
    places: Numbers = table[facts.stage, facts.slot]
    return places


def _of_batch(facts: Facts, table: Numbers, *, back: int = 0) -> Numbers:
    batch = np.clip(facts.batch - back, 0, facts.schedule.batches - 1)
    places: Numbers = table[facts.seat, batch]
    return places


def _action(facts: Facts, index: int) -> Action:
    rank, place = facts.columns.place(index)
    return facts.schedule.actions[rank][place]


RULES: Sequence[tuple[Callable[[Facts], Flags], Callable[[Facts, int], str]]] = (
    (_is_foreign, _tell_foreign),
    (_is_repeated, _tell_repeated),
    (_is_misplaced, _tell_misplaced),
    (_is_whole_and_halved, _tell_whole_and_halved),
    (_is_too_early, _tell_too_early),
    (_reduces_too_early, _tell_reduces_too_early),
    (_mixes_batches, _tell_mixes_batches),
    (_updates_too_early, _tell_updates_too_early),
    (_has_wrong_version, _tell_wrong_version),
    (_version_is_not_there, _tell_version_is_not_there),
    (_exceeds_in_flight_limit, _tell_exceeds_in_flight_limit),
    (_skips_an_update, _tell_skips_an_update),
    (_replaces_a_version_in_use, _tell_replaces_a_version_in_use),
)
