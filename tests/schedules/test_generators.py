"""What the generators make, by their laws and by the papers' figures."""

import itertools
import math
import re
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, Kind, parse_action
from diaulos.schedules.check import check
from diaulos.schedules.errors import ScheduleError
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from tests.schedules.figures import FIGURE_2_OF_2BW, PIPEDREAM_FLUSH, boxes, drawn, timed
from tests.schedules.shapes import NAMES, UNEQUAL, line, schedules, shape_for, shapes

HALVES = (Kind.INPUT_BACKWARD, Kind.WEIGHT_BACKWARD)


@given(schedule=schedules())
def test_the_checker_accepts_what_is_generated(schedule: Schedule) -> None:
    """Any shape, any number of batches, from any batch on."""
    check(schedule)


@given(schedule=schedules())
def test_everything_runs_exactly_once(schedule: Schedule) -> None:
    """Counted from the law, apart from the checker: each action of each rank, once."""
    shape = schedule.shape
    for rank, row in enumerate(schedule.actions):
        expected: Counter[tuple[int, Kind, int]] = Counter()
        for stage in shape.stages_of(rank):
            before, after = stage - 1, stage + 1
            kinds = [Kind.FORWARD]
            if before >= 0 and before not in shape.stages_of(rank):
                kinds += [Kind.RECEIVE_FORWARD, Kind.SEND_BACKWARD]
            if after < shape.stages and after not in shape.stages_of(rank):
                kinds += [Kind.SEND_FORWARD, Kind.RECEIVE_BACKWARD]
            for batch in schedule.batch_numbers:
                expected += Counter((stage, kind, batch) for kind in (Kind.REDUCE, Kind.UPDATE))
                for microbatch in shape.microbatches_of(rank, batch):
                    expected += Counter((stage, kind, microbatch) for kind in kinds)
        backwards = Counter((a.stage, a.number) for a in row if a.kind.gives_gradient)
        assert set(backwards.values()) == {1}
        halves = [{(a.stage, a.number) for a in row if a.kind is kind} for kind in HALVES]
        assert halves[0] == halves[1]
        found = Counter((a.stage, a.kind, a.number) for a in row)
        parts = [(s, kind, n) for s, kind, n in found if kind in (Kind.BACKWARD, *HALVES)]
        assert found - Counter(parts) == expected
        forwards = {(s, n) for s, kind, n in expected if kind is Kind.FORWARD}
        assert set(backwards) == forwards


@given(schedule=schedules())
def test_no_more_are_in_flight_than_promised(schedule: Schedule) -> None:
    """The simulator ends; ranks of GPipe, 1F1B and 2BW reach their limit, none exceeds it."""
    timeline = timed(schedule)
    for rank in range(schedule.shape.ranks):
        limit = schedule.in_flight_limits[schedule.shape.position_of(rank)]
        if schedule.name in NAMES:
            assert timeline.peak_in_flight(rank) == limit
        else:
            assert timeline.peak_in_flight(rank) <= limit


@given(schedule=schedules())
def test_versions_are_few_and_lawful(schedule: Schedule) -> None:
    """Batch t reads version max(t - delay, 0), and never more than delay + 1 are alive.

    The delay is 1 for 2BW, d-1-r for PipeDream, d-1 with vertical sync, and 0 for all others.
    """
    shape = schedule.shape
    delays = {
        "2bw": [1] * shape.stages,
        "pipedream": list(reversed(range(shape.stages))),
        "pipedream-vertical": [shape.stages - 1] * shape.stages,
    }.get(schedule.name, [0] * shape.stages)
    for row in schedule.actions:
        newest: Counter[int] = Counter()
        in_flight: Counter[tuple[int, int]] = Counter()
        for action in row:
            if action.kind is Kind.UPDATE:
                newest[action.stage] += 1
            elif action.kind.is_compute:
                batch = action.number // shape.microbatches
                assert action.version == max(batch - delays[action.stage], 0)
                step = (action.kind is Kind.FORWARD) - action.kind.ends_backward
                in_flight[action.stage, action.version] += step
            alive = {version for stage, version in +in_flight if stage == action.stage}
            alive.add(schedule.first_batch + newest[action.stage])
            assert len(alive) <= delays[action.stage] + 1


@given(shape=shapes(), batches=st.integers(1, 5))
def test_2bw_updates_as_late_as_it_can(shape: PipelineShape, batches: int) -> None:
    """Update t stands right before the receive or forward that begins batch t + 2."""
    schedule = generate("2bw", shape, batches)
    for rank, row in enumerate(schedule.actions):
        for batch in range(batches - 2):
            stage = shape.stage_of(rank)
            follower = row[row.index(Action(stage, Kind.UPDATE, batch)) + 1]
            kind = Kind.FORWARD if stage == 0 else Kind.RECEIVE_FORWARD
            first = shape.microbatches_of(rank, batch + 2)[0]
            assert (follower.kind, follower.number) == (kind, first)


@given(shape=shapes(3, 2), cut=st.integers(1, 2), batches=st.integers(3, 4))
def test_a_later_part_goes_on_where_the_first_ended(
    shape: PipelineShape, cut: int, batches: int
) -> None:
    """Two parts of a run hold the same computations and updates as the whole."""
    for name in ("gpipe", "1f1b", "2bw"):
        whole = generate(name, shape, batches)
        parts = (generate(name, shape, cut), generate(name, shape, batches - cut, cut))
        for rank in range(shape.ranks):
            joined = [action for part in parts for action in part.actions[rank]]
            assert Counter(joined) == Counter(whole.actions[rank])


def test_figure_2_of_the_2bw_paper() -> None:
    """Narayanan et al. 2021, Figure 2, box by box."""
    timeline = timed(generate("2bw", line(4, 4), 4))
    assert boxes(timeline, until=28.0) == drawn(FIGURE_2_OF_2BW)


def test_versions_in_figure_2_of_the_2bw_paper() -> None:
    """The version of inputs 1-4 is first used by input 9; at t=21 input 7 is on the old one.

    Each worker drops its initial weights once input 8 has gone backward.
    """
    timeline = timed(generate("2bw", line(4, 4), 4))
    used = {e.action.number: e.action.version for e in timeline.events if e.action.kind.is_compute}
    assert [used[i] for i in range(16)] == [0] * 8 + [1] * 4 + [2] * 4
    events = {str(e.action): e for e in timeline.of_rank(2)}
    assert events["2F6@0"].end_seconds == 21.0 < events["2B6@0"].start_seconds
    for rank in range(4):
        uses = [e.end_seconds for e in timeline.of_rank(rank) if e.action.version == 0]
        last = next(e for e in timeline.of_rank(rank) if str(e.action) == f"{rank}B7@0")
        assert max(uses) == last.end_seconds
    updates = {
        e.rank: e.start_seconds
        for e in timeline.events
        if e.action.kind is Kind.UPDATE and e.action.number == 0
    }
    assert updates == {0: 24.0, 1: 25.0, 2: 26.0, 3: 27.0}


def test_1f1b_flushes_after_each_batch() -> None:
    """PipeDream-Flush with depth 4 and 4 microbatches, box by box."""
    timeline = timed(generate("1f1b", line(4, 4), 2))
    assert boxes(timeline, until=25.0) == drawn(PIPEDREAM_FLUSH)


GPIPE = """
f0 f1 f2 .  .  .  .  .  .  b0 b0 b1 b1 b2 b2 f3 f4
.  f0 f1 f2 .  .  .  b0 b0 b1 b1 b2 b2 .  .  .  f3
.  .  f0 f1 f2 b0 b0 b1 b1 b2 b2 .  .  .  .  .  .
"""


def test_gpipe_runs_all_forwards_first() -> None:
    """GPipe with depth 3 and 3 microbatches, box by box."""
    timeline = timed(generate("gpipe", line(3, 3), 2))
    assert boxes(timeline, until=17.0) == drawn(GPIPE)


@pytest.mark.parametrize("depth", [3, 4, 8, 16])
@pytest.mark.parametrize("width", [1, 2])
def test_2bw_runs_from_depth_minus_one_microbatches_on(depth: int, width: int) -> None:
    """m = d - 1 per replica runs without slack; fewer are refused, naming what works."""
    enough = PipelineShape(replicas=(width,) * depth, microbatches=(depth - 1) * width)
    schedule = generate("2bw", enough, 3)
    check(schedule)
    assert timed(schedule).step_bubble_fraction == pytest.approx(0.0)
    too_few = PipelineShape(replicas=(width,) * depth, microbatches=(depth - 2) * width)
    with pytest.raises(InputError) as caught:
        generate("2bw", too_few, 3)
    message = str(caught.value)
    assert f"microbatches is {(depth - 2) * width}" in message
    assert f"use at least {(depth - 1) * width}, or {depth * width}" in message


@given(replicas=st.lists(st.integers(1, 4), min_size=2, max_size=6))
def test_what_a_refusal_of_2bw_proposes_works(replicas: list[int]) -> None:
    """Of unequal stages too: the proposed number runs, and the next smaller possible does not."""
    common = math.lcm(*replicas)
    smallest = PipelineShape(replicas=tuple(replicas), microbatches=common)
    try:
        generate("2bw", smallest, 2)
    except InputError as error:
        proposed = re.search(r"use at least (\d+)", str(error))
        assert proposed is not None
        fewest = int(proposed[1])
        check(generate("2bw", replace(smallest, microbatches=fewest), 2))
        with pytest.raises(InputError, match=f"use at least {fewest}"):
            generate("2bw", replace(smallest, microbatches=fewest - common), 2)


def test_unknown_names_and_empty_runs_are_refused() -> None:
    """The names that exist are told."""
    with pytest.raises(InputError, match=r"no schedule 'zb'; there are gpipe, 1f1b, .*, zb-h1"):
        generate("zb", line(2, 2), 1)
    with pytest.raises(InputError, match="batches is 0; it must be at least 1"):
        generate("1f1b", line(2, 2), 0)


def test_first_batch_counts_on() -> None:
    """A schedule from batch 3 on numbers its microbatches, versions and updates accordingly."""
    (row,) = generate("2bw", line(1, 2), 1, first_batch=3).actions
    texts = ["0F6@2", "0B6@2", "0F7@2", "0B7@2", "0REDUCE3", "0UPDATE3"]
    assert list(row) == [parse_action(text) for text in texts]


@pytest.mark.parametrize("name", GENERATORS)
def test_every_schedule_runs_for_any_depth_and_count(name: str) -> None:
    """Depths to 9 and counts to 19, one to four chunks: checked, simulated, as promised."""
    for depth, microbatches in itertools.product((1, 2, 3, 5, 8, 9), (1, 2, 3, 7, 8, 12, 19)):
        if name == "2bw" and microbatches < depth - 1:
            continue
        for chunks in (1, 2, 3, 4) if GENERATORS[name].chunks is None else (1,):
            schedule = generate(name, shape_for(name, depth, microbatches, chunks), 1)
            check(schedule)
            timeline = timed(schedule)
            for rank in range(depth):
                assert timeline.peak_in_flight(rank) <= schedule.in_flight_limits[rank]


@pytest.mark.parametrize("name", [name for name in GENERATORS if name not in UNEQUAL])
def test_unequal_degrees_are_refused_where_they_do_not_run(name: str) -> None:
    """The degrees, the rule and the schedules that run them are named."""
    shape = GENERATORS[name].shape(PipelineShape(replicas=(1, 2), microbatches=4), 2)
    with pytest.raises(InputError, match=r"\(1, 2\) replicas.*gpipe, 1f1b, zb-h1 and 2bw run"):
        generate(name, shape, 1)


def test_shapes_that_do_not_suit_are_refused() -> None:
    """Schedules of one stage a rank are not given several, nor those of a V a loop."""
    with pytest.raises(InputError, match=r"chunks is 2.*1f1b has 1 stages a rank.*chunks=1"):
        generate("1f1b", line(2, 2, chunks=2), 1)
    with pytest.raises(InputError, match=r"zb-v has 2 stages a rank, in a V.*folded=True would do"):
        generate("zb-v", line(2, 2, chunks=2), 1)


@pytest.mark.parametrize(("depth", "microbatches"), [(2, 2), (4, 4), (4, 8), (8, 16), (16, 64)])
def test_what_runs_with_sends_that_wait(depth: int, microbatches: int) -> None:
    """GPipe does without sends beside the computations; 1F1B does not."""
    check(generate("gpipe", line(depth, microbatches), 2), sends_wait=True)
    with pytest.raises(ScheduleError, match="deadlock where sends wait for their receives"):
        check(generate("1f1b", line(depth, microbatches), 2), sends_wait=True)
