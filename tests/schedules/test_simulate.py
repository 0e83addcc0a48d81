"""The simulator against closed forms, against small cases by hand, and against the definition."""

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator, simulate
from diaulos.schedules.timeline import Timeline
from tests.schedules.shapes import line, schedules

DEPTHS = (1, 2, 3, 4, 7, 11, 16)
MICROBATCHES = (1, 2, 3, 8, 15, 16, 33, 64)
FORWARD, BACKWARD = 3.0, 5.0


def run(name: str, depth: int, microbatches: int, batches: int = 3, **costs: float) -> Timeline:
    stage = StageCosts(**{"forward_seconds": FORWARD, "backward_seconds": BACKWARD, **costs})
    return simulate(generate(name, line(depth, microbatches), batches), [stage] * depth, Link())


def spans(timeline: Timeline) -> dict[str, tuple[float, float]]:
    """Start and end by the text of the action, its version left out."""
    return {
        str(event.action).partition("@")[0]: (event.start_seconds, event.end_seconds)
        for event in timeline.events
    }


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_flush_costs_a_fill_and_a_drain_per_batch(depth: int) -> None:
    """GPipe and 1F1B: a step takes (m + d - 1)(f + b), of which (d - 1)/(m + d - 1) is idle."""
    for microbatches in MICROBATCHES:
        for name in ("gpipe", "1f1b"):
            timeline = run(name, depth, microbatches)
            step = (microbatches + depth - 1) * (FORWARD + BACKWARD)
            assert timeline.step_seconds == step
            assert timeline.makespan_seconds == 3 * step
            idle = (depth - 1) / (microbatches + depth - 1)
            assert timeline.bubble_fraction == pytest.approx(idle)
            assert timeline.step_bubble_fraction == pytest.approx(idle)


@pytest.mark.parametrize("depth", DEPTHS)
def test_2bw_fills_and_drains_once(depth: int) -> None:
    """2BW: a step takes m (f + b) and is never idle; a run adds (d - 1)(f + b) once."""
    for microbatches in (m for m in MICROBATCHES if m >= depth - 1):
        timeline = run("2bw", depth, microbatches)
        step = microbatches * (FORWARD + BACKWARD)
        assert timeline.step_seconds == step
        assert timeline.step_bubble_fraction == pytest.approx(0.0)
        once = (depth - 1) * (FORWARD + BACKWARD)
        assert timeline.makespan_seconds == 3 * step + once
        assert timeline.bubble_fraction == pytest.approx(once / (3 * step + once))


@pytest.mark.parametrize("depth", DEPTHS)
def test_stashes_are_those_of_the_papers(depth: int) -> None:
    """GPipe holds m, 1F1B min(d - r, m), 2BW d - r microbatches on stage r."""
    for microbatches in MICROBATCHES:
        peaks = {
            name: [timeline.peak_in_flight(rank) for rank in range(depth)]
            for name in ("gpipe", "1f1b", "2bw")
            if name != "2bw" or microbatches >= depth - 1
            for timeline in [run(name, depth, microbatches, batches=2)]
        }
        assert peaks["gpipe"] == [microbatches] * depth
        assert peaks["1f1b"] == [min(depth - rank, microbatches) for rank in range(depth)]
        if "2bw" in peaks:
            assert peaks["2bw"] == [depth - rank for rank in range(depth)]


@given(
    depth=st.integers(1, 16),
    spare=st.integers(-1, 48),
    batches=st.integers(1, 2),
    forward=st.integers(1, 9),
    backward=st.integers(1, 9),
)
@settings(max_examples=20)
def test_closed_forms_hold_anywhere(
    depth: int, spare: int, batches: int, forward: int, backward: int
) -> None:
    """The makespans of all three schedules for random depths, counts and times."""
    microbatches = max(depth + spare, 1)
    pair = forward + backward
    costs = {"forward_seconds": forward, "backward_seconds": backward}
    for name in ("gpipe", "1f1b"):
        timeline = run(name, depth, microbatches, batches, **costs)
        assert timeline.makespan_seconds == batches * (microbatches + depth - 1) * pair
    timeline = run("2bw", depth, microbatches, batches, **costs)
    assert timeline.makespan_seconds == (batches * microbatches + depth - 1) * pair


@st.composite
def priced(draw: st.DrawFn) -> tuple[Schedule, list[StageCosts]]:
    """A schedule with random times per stage."""
    schedule = draw(schedules(most_stages=4, most_replicas=2))
    seconds = st.integers(0, 20).map(float)
    costs = [
        StageCosts(
            forward_seconds=draw(seconds),
            backward_seconds=20.0 + draw(seconds),
            weight_backward_seconds=draw(seconds),
            update_seconds=draw(seconds),
            reduce_seconds=draw(seconds),
        )
        for _ in range(schedule.shape.stages)
    ]
    return schedule, costs


@given(case=priced(), latency=st.integers(0, 5))
@settings(max_examples=60)
def test_every_action_ends_as_early_as_the_definition_says(
    case: tuple[Schedule, list[StageCosts]], latency: int
) -> None:
    """Ends are those of the longest path through rows, messages and reductions."""
    schedule, costs = case
    shape = schedule.shape
    rows = schedule.actions
    index = {
        action: i
        for rank in range(shape.ranks)
        for i, action in enumerate(rows[rank])
        if not action.kind.is_of_batch
    }

    @cache
    def end(rank: int, position: int) -> float:
        if position < 0:
            return 0.0
        action, before = rows[rank][position], end(rank, position - 1)
        if action.kind.is_receive:
            send = action.matching_send()
            return max(before, end(shape.rank_of(send.stage, send.number), index[send]) + latency)
        cost = costs[action.stage]
        if action.kind is Kind.UPDATE:
            alone = schedule.updates_stage_by_stage
            reduced = max(
                reduced_by(other, stage, action.number)
                for stage in ([action.stage] if alone else range(shape.stages))
                for other in shape.ranks_of(stage)
            )
            return max(before, reduced) + cost.update_seconds
        whole, weights = cost.backward_seconds, cost.weight_backward_seconds
        return before + {
            Kind.FORWARD: cost.forward_seconds,
            Kind.BACKWARD: whole,
            Kind.INPUT_BACKWARD: whole - weights,
            Kind.WEIGHT_BACKWARD: weights,
        }.get(action.kind, 0.0)

    @cache
    def reduced_by(rank: int, stage: int, batch: int) -> float:
        """The end of a reduction, which waits for those before it on the rank."""
        at = rows[rank].index(Action(stage, Kind.REDUCE, batch))
        earlier = [a for a in rows[rank][:at] if a.kind is Kind.REDUCE]
        ready = end(rank, at)
        if earlier:
            ready = max(ready, reduced_by(rank, earlier[-1].stage, earlier[-1].number))
        return ready + costs[stage].reduce_seconds

    timeline = simulate(schedule, costs, Link(latency_seconds=latency))
    for rank in range(shape.ranks):
        expected = [
            (action, end(rank, position))
            for position, action in enumerate(rows[rank])
            if action.kind.is_compute or action.kind is Kind.UPDATE
        ]
        happened = [(e.action, e.end_seconds) for e in timeline.events if e.rank == rank]
        assert happened == expected


def test_a_message_takes_its_bytes_and_then_its_latency() -> None:
    """Depth 2, one microbatch: 10 bytes at 10 bytes/s and half a second of latency each way."""
    costs = StageCosts(forward_seconds=1, backward_seconds=2, output_bytes=10)
    link = Link(latency_seconds=0.5, bandwidth_bytes_per_second=10)
    timeline = simulate(generate("1f1b", line(2, 1), 1), [costs, costs], link)
    assert spans(timeline) == {
        "0F0": (0.0, 1.0),
        "1F0": (2.5, 3.5),
        "1B0": (3.5, 5.5),
        "0B0": (7.0, 9.0),
        "0UPDATE0": (9.0, 9.0),
        "1UPDATE0": (9.0, 9.0),
    }


def test_a_busy_link_carries_one_message_after_another() -> None:
    """Three forwards of 1 s over a link that needs 3 s for each; the same on the way back."""
    costs = StageCosts(forward_seconds=1, backward_seconds=2, output_bytes=3)
    link = Link(bandwidth_bytes_per_second=1)
    found = spans(simulate(generate("gpipe", line(2, 3), 1), [costs, costs], link))
    assert [found[f"1F{k}"] for k in range(3)] == [(4, 5), (7, 8), (10, 11)]
    assert [found[f"1B{k}"] for k in range(3)] == [(11, 13), (13, 15), (15, 17)]
    assert [found[f"0B{k}"] for k in range(3)] == [(16, 18), (19, 21), (22, 24)]


def test_the_two_directions_of_a_link_do_not_wait_for_each_other() -> None:
    """A gradient travels from 6 to 9 s while an activation travels from 4 to 7 s."""
    costs = StageCosts(forward_seconds=1, backward_seconds=1, output_bytes=3)
    link = Link(bandwidth_bytes_per_second=1)
    found = spans(simulate(generate("1f1b", line(2, 2), 1), [costs, costs], link))
    assert [found["1F0"], found["1B0"], found["1F1"], found["1B1"]] == [
        *((4, 5), (5, 6), (7, 8), (8, 9)),
    ]
    assert [found["0B0"], found["0B1"]] == [(9, 10), (12, 13)]


def test_links_to_two_replicas_are_two_links() -> None:
    """Messages to different ranks travel side by side."""
    costs = StageCosts(forward_seconds=1, backward_seconds=1, output_bytes=3)
    schedule = generate("gpipe", PipelineShape(replicas=(1, 2), microbatches=2), 1)
    found = spans(simulate(schedule, [costs, costs], Link(bandwidth_bytes_per_second=1)))
    assert [found["1F0"], found["1F1"]] == [(4, 5), (5, 6)]


def test_what_a_stage_sends_is_its_own_output() -> None:
    """The last stage's output bytes never travel; gradients are as large as what was received."""
    first = StageCosts(forward_seconds=1, backward_seconds=1, output_bytes=2)
    last = StageCosts(forward_seconds=1, backward_seconds=1, output_bytes=1000)
    schedule = generate("1f1b", line(2, 1), 1)
    found = spans(simulate(schedule, [first, last], Link(bandwidth_bytes_per_second=1)))
    assert [found["1F0"], found["0B0"]] == [(3, 4), (7, 8)]


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
@pytest.mark.parametrize("spare", [0, 1, 5])
def test_reductions_within_the_slack_of_2bw_cost_nothing(depth: int, spare: int) -> None:
    """Stage 0 has m - d + 1 pairs of slack; up to there a step stays m (f + b), beyond it grows."""
    microbatches = depth + spare
    step = microbatches * (FORWARD + BACKWARD)
    slack = (microbatches - depth + 1) * (FORWARD + BACKWARD)
    assert run("2bw", depth, microbatches, 6, reduce_seconds=slack).step_seconds == step
    beyond = run("2bw", depth, microbatches, 6, reduce_seconds=slack + 7.0)
    assert beyond.step_seconds == step + 7.0


def test_reductions_of_a_flushed_schedule_stand_in_the_way() -> None:
    """1F1B waits for the reduction and the optimizer at each flush."""
    timeline = run("1f1b", 2, 4, reduce_seconds=10.0, update_seconds=1.0)
    assert timeline.step_seconds == 5 * (FORWARD + BACKWARD) + 11.0


def test_memory_is_fixed_bytes_and_activations_in_flight() -> None:
    """What a rank holds over time, and that it lets all activations go."""
    costs = [
        StageCosts(forward_seconds=1, backward_seconds=2, activation_bytes=10, fixed_bytes=100),
        StageCosts(forward_seconds=1, backward_seconds=2, activation_bytes=7, fixed_bytes=50),
    ]
    timeline = simulate(generate("1f1b", line(2, 3), 1), costs, Link())
    assert [timeline.peak_memory_bytes(rank) for rank in (0, 1)] == [120, 57]
    first = [(p.seconds, p.bytes) for p in timeline.memory if p.rank == 0]
    # F0, F1 at 0 and 1 s; B0 ends at 6, F2 starts there; B1 ends at 9, B2 at 12.
    assert first == [
        (0.0, 100), (0.0, 110), (1.0, 120), (6.0, 110), (6.0, 120), (9.0, 110), (12.0, 100),
    ]  # fmt: skip


def test_costs_must_fit_the_schedule() -> None:
    """Costs are one per stage, finite and not negative."""
    schedule = generate("1f1b", line(2, 1), 1)
    with pytest.raises(InputError, match="costs of 1 stages; the schedule has 2"):
        simulate(schedule, [StageCosts(forward_seconds=1, backward_seconds=1)], Link())
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match=r"forward_seconds is .*; it must be finite"):
            StageCosts(forward_seconds=bad, backward_seconds=1)


def test_seconds_may_vary_by_microbatch() -> None:
    """A microbatch of twice the length takes twice as long on all stages."""
    costs = [StageCosts(forward_seconds=1, backward_seconds=2)] * 2
    schedule = generate("gpipe", line(2, 3), 1)
    timeline = simulate(schedule, costs, Link(), lambda action: 2.0 if action.number == 1 else 1.0)
    found = spans(timeline)
    assert [found[f"0F{k}"] for k in range(3)] == [(0, 1), (1, 3), (3, 4)]
    assert [found[f"1F{k}"] for k in range(3)] == [(1, 2), (3, 5), (5, 6)]
    assert [found[f"1B{k}"] for k in range(3)] == [(6, 8), (8, 12), (12, 14)]


def test_sends_may_stop_the_sender() -> None:
    """Where they do not overlap, a rank goes on when its message has left, not when it is there."""
    costs = [StageCosts(forward_seconds=1, backward_seconds=2, output_bytes=3)] * 2
    link = Link(bandwidth_bytes_per_second=1, latency_seconds=0.5, overlaps=False)
    found = spans(simulate(generate("gpipe", line(2, 2), 1), costs, link))
    assert [found["0F0"], found["0F1"]] == [(0, 1), (4, 5)]
    assert [found["1F0"], found["1F1"]] == [(4.5, 5.5), (8.5, 9.5)]
    assert [found["1B0"], found["1B1"]] == [(9.5, 11.5), (14.5, 16.5)]


def test_borders_may_have_links_of_their_own() -> None:
    """A slow border between stages 1 and 2; one link too few is refused."""
    costs = [StageCosts(forward_seconds=1, backward_seconds=2, output_bytes=4)] * 3
    links = [Link(), Link(bandwidth_bytes_per_second=2, latency_seconds=1)]
    schedule = generate("gpipe", line(3, 1), 1)
    found = spans(simulate(schedule, costs, links))
    assert [found[f"{stage}F0"] for stage in range(3)] == [(0, 1), (1, 2), (5, 6)]
    assert [found[f"{stage}B0"] for stage in range(3)] == [(13, 15), (11, 13), (6, 8)]
    with pytest.raises(InputError, match="there are links of 1 borders; 3 stages have 2"):
        simulate(schedule, costs, links[:1])


def test_halves_take_what_the_whole_takes() -> None:
    """Half each where they are not known apart."""
    known = StageCosts(forward_seconds=1, backward_seconds=5, weight_backward_seconds=2)
    found = spans(simulate(generate("zb-h1", line(1, 1), 1), [known], Link()))
    assert (found["0I0"], found["0W0"]) == ((1, 4), (4, 6))
    unknown = StageCosts(forward_seconds=1, backward_seconds=5)
    found = spans(simulate(generate("zb-h1", line(1, 1), 1), [unknown], Link()))
    assert (found["0I0"], found["0W0"]) == ((1, 3.5), (3.5, 6))


@given(case=priced(), latency=st.integers(0, 5))
@settings(max_examples=20)
def test_a_simulator_is_used_again(case: tuple[Schedule, list[StageCosts]], latency: int) -> None:
    """It gives the same timeline each time, and the makespan alone without it."""
    schedule, costs = case
    link = Link(latency_seconds=latency)
    simulator = Simulator(schedule)
    timeline = simulator.timeline(costs, link)
    assert timeline == simulator.timeline(costs, link) == simulate(schedule, costs, link)
    end = max(event.end_seconds for event in timeline.events)
    assert simulator.makespan_seconds(costs, link) == end


def test_versions_and_activations_are_told_apart() -> None:
    """PipeDream keeps d - r versions on stage r; the peak is told with its moment."""
    cost = StageCosts(
        forward_seconds=1, backward_seconds=2, activation_bytes=10, fixed_bytes=100, version_bytes=7
    )
    timeline = simulate(generate("pipedream", line(3, 4), 1), [cost] * 3, Link())
    peaks = [timeline.peak_memory(rank) for rank in range(3)]
    assert [peak.versions_bytes for peak in peaks] == [14, 7, 0]
    assert [peak.activation_bytes for peak in peaks] == [30, 20, 10]
    assert {peak.fixed_bytes for peak in peaks} == {100}
    assert [peak.seconds for peak in peaks] == [2.0, 2.0, 2.0]
    assert timeline.peak_memory_bytes(0) == 100 + 14 + 30


def test_a_weight_half_still_holds_its_microbatch() -> None:
    """Activations are let go when both halves of the backward are done."""
    cost = StageCosts(forward_seconds=1, backward_seconds=2, activation_bytes=10)
    timeline = simulate(generate("zb-h1", line(1, 1), 1), [cost], Link())
    assert [(point.seconds, point.bytes) for point in timeline.memory] == [(0, 0), (0, 10), (3, 0)]


def test_what_is_not_known_is_not_told() -> None:
    """Without bytes there is no memory."""
    timeline = run("1f1b", 2, 2)
    assert (timeline.memory, timeline.resident) == ((), ())


def test_opposite_messages_wait_where_a_link_is_not_duplex() -> None:
    """A gradient waits for an activation, and later an activation for a gradient; by hand."""
    schedule = generate("1f1b", line(2, 3), 1)
    costs = [StageCosts(forward_seconds=1.0, backward_seconds=1.0, output_bytes=3.0)] * 2
    duplex = Link(bandwidth_bytes_per_second=1.0)
    sent = {
        link.duplex: {
            str(e.action): (e.start_seconds, e.end_seconds)
            for e in simulate(schedule, costs, link).messages
        }
        for link in (duplex, replace(duplex, duplex=False))
    }
    assert sent[True] == {
        "0SEND_F0": (1.0, 4.0), "0SEND_F1": (4.0, 7.0), "0SEND_F2": (11.0, 14.0),
        "1SEND_B0": (6.0, 9.0), "1SEND_B1": (9.0, 12.0), "1SEND_B2": (16.0, 19.0),
    }  # fmt: skip
    assert sent[False] == {
        "0SEND_F0": (1.0, 4.0), "0SEND_F1": (4.0, 7.0), "0SEND_F2": (13.0, 16.0),
        "1SEND_B0": (7.0, 10.0), "1SEND_B1": (10.0, 13.0), "1SEND_B2": (18.0, 21.0),
    }  # fmt: skip


@given(schedules(), st.sampled_from([0.5, 1.0, 3.0]), st.sampled_from([0.0, 0.5]))
@settings(max_examples=60)
def test_a_link_that_is_not_duplex_carries_one_message_at_a_time(
    schedule: Schedule, size: float, latency: float
) -> None:
    """No two messages between two ranks take the link at once; who comes first goes first."""
    link = Link(bandwidth_bytes_per_second=1.0, latency_seconds=latency, duplex=False)
    costs = [
        StageCosts(forward_seconds=1.0, backward_seconds=2.0 + stage % 2, output_bytes=size)
        for stage in range(schedule.shape.stages)
    ]
    timeline = simulate(schedule, costs, link)
    shape = schedule.shape
    busy: dict[tuple[int, ...], list[tuple[float, float, float]]] = {}
    done = {(e.action.stage, e.action.kind, e.action.number): e for e in timeline.events}
    for sent in timeline.messages:
        other = sent.action.matching_receive()
        pair = tuple(sorted((sent.rank, shape.rank_of(other.stage, other.number))))
        kinds = (
            (Kind.FORWARD,)
            if sent.action.kind is Kind.SEND_FORWARD
            else (Kind.BACKWARD, Kind.INPUT_BACKWARD)
        )
        asked = next(
            done[sent.action.stage, kind, sent.action.number].end_seconds
            for kind in kinds
            if (sent.action.stage, kind, sent.action.number) in done
        )
        assert sent.seconds == pytest.approx(size + latency)
        busy.setdefault(pair, []).append((sent.start_seconds, asked, sent.end_seconds - latency))
    for spans in busy.values():
        for before, after in pairwise(sorted(spans)):
            assert after[0] >= before[2] - 1e-9
            assert after[1] >= before[1] - 1e-9
            assert after[0] == pytest.approx(max(before[2], after[1]))
    loose = simulate(schedule, costs, replace(link, duplex=True))
    free = simulate(schedule, costs, Link())
    assert timeline.makespan_seconds >= free.makespan_seconds - 1e-9
    assert len(timeline.events) == len(loose.events)
