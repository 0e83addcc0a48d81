"""The pipeline of an estimate is the simulator's, also where rounds are left out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.estimating.pipeline import GENERATOR_NAMES, Simulators, run_pipeline, steady_pipeline
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import generate
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.simulate import Simulator

seconds = st.floats(0.5, 2.0)


@st.composite
def stage_costs(draw: st.DrawFn) -> StageCosts:
    of_weights = draw(seconds)
    return StageCosts(
        forward_seconds=draw(seconds),
        backward_seconds=draw(seconds) + of_weights,
        weight_backward_seconds=of_weights,
        output_bytes=draw(st.floats(0, 0.3)),
        activation_bytes=draw(st.floats(1, 3)),
    )


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_rounds_that_repeat_need_no_simulating(data: st.DataObject) -> None:
    """Left-out rounds change the time of a batch by less than a percent, and no peak."""
    name = data.draw(st.sampled_from(["1f1b", "interleaved", "zero-bubble"]))
    depth = data.draw(st.integers(2, 4))
    chunks = data.draw(st.integers(2, 3)) if name == "interleaved" else 1
    microbatches = depth * data.draw(st.integers(9, 12))
    costs = data.draw(st.lists(stage_costs(), min_size=depth * chunks, max_size=depth * chunks))
    links = [Link(bandwidth_bytes_per_second=1.0, overlaps=False)] * (depth * chunks - 1)
    run = run_pipeline(
        name,
        depth=depth,
        chunks=chunks,
        microbatches=microbatches,
        costs=costs,
        links=links,
        simulators=Simulators(),
    )
    shape = PipelineShape(replicas=(1,) * depth, microbatches=microbatches, chunks=chunks)
    timeline = Simulator(generate(GENERATOR_NAMES[name], shape, 1)).timeline(costs, links)
    assert run.seconds == pytest.approx(timeline.makespan_seconds, rel=0.01)
    peaks = [timeline.peak_memory_bytes(rank) for rank in range(depth)]
    assert run.peak_bytes == pytest.approx(peaks)


@pytest.mark.parametrize(("microbatches", "depth"), [(1, 4), (3, 8), (8, 8), (40, 8)])
def test_each_place_holds_what_is_in_flight(microbatches: int, depth: int) -> None:
    """With 1F1B place i of p holds min(m, p - i) microbatches; with GPipe all (case M3)."""
    costs = [StageCosts(forward_seconds=1.0, backward_seconds=2.0, activation_bytes=1.0)] * depth
    links = [Link()] * (depth - 1)
    held = {
        name: run_pipeline(
            name,
            depth=depth,
            chunks=1,
            microbatches=microbatches,
            costs=costs,
            links=links,
            simulators=Simulators(),
        ).peak_bytes
        for name in ("1f1b", "gpipe")
    }
    assert held["1f1b"] == tuple(min(microbatches, depth - place) for place in range(depth))
    assert held["gpipe"] == (microbatches,) * depth


def test_the_bubble_of_equal_stages_is_the_formula() -> None:
    """A batch takes (m + (p-1)/v) (F + B) where messages take no time."""
    for name, chunks in (("1f1b", 1), ("interleaved", 3)):
        costs = [StageCosts(forward_seconds=1.0, backward_seconds=2.0)] * (4 * chunks)
        run = run_pipeline(
            name,
            depth=4,
            chunks=chunks,
            microbatches=16,
            costs=costs,
            links=[Link()] * (4 * chunks - 1),
            simulators=Simulators(),
        )
        assert run.seconds == run.seconds_without_messages
        assert run.seconds == pytest.approx(3 * (16 * chunks + 3))


def test_a_pipeline_without_flush_has_no_bubble() -> None:
    """Of 2BW a batch takes m times the slowest stage."""
    costs = [StageCosts(forward_seconds=f, backward_seconds=2.0) for f in (1.0, 1.5, 1.0)]
    run = steady_pipeline(
        "2bw",
        depth=3,
        microbatches=8,
        costs=costs,
        links=[Link()] * 2,
        simulators=Simulators(),
    )
    assert run.seconds == pytest.approx(8 * 3.5)
