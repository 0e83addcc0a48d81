"""2BW's slack, and PipeDream with its stashed weights."""

from itertools import pairwise

import pytest

from diaulos.schedules.actions import Kind
from diaulos.schedules.generation.endless import update_slack
from diaulos.schedules.generators import generate
from diaulos.schedules.shape import PipelineShape
from tests.schedules.figures import timed
from tests.schedules.shapes import line

DEPTHS = (1, 2, 3, 4, 8, 16)
PIPEDREAMS = ("pipedream", "pipedream-vertical")


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_slack_of_2bw_is_counted_in_pairs(depth: int) -> None:
    """m - (d-1-r) forwards stand between the last backward of a batch and its update."""
    microbatches = depth + 2
    shape = line(depth, microbatches)
    slack = update_slack(shape)
    assert slack == tuple(microbatches - (depth - 1 - rank) for rank in range(depth))
    for rank, row in enumerate(generate("2bw", shape, 4).actions):
        texts = [str(action).partition("@")[0] for action in row]
        done, due = texts.index(f"{rank}REDUCE1"), texts.index(f"{rank}UPDATE1")
        between = [action.kind for action in row[done:due]]
        assert between.count(Kind.FORWARD) == slack[rank]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", PIPEDREAMS)
def test_pipedream_is_idle_only_at_its_ends(depth: int, name: str) -> None:
    """Of 3 batches of 8 microbatches a run takes 24 (f + b), and (d-1)(f + b) once."""
    timeline = timed(generate(name, line(depth, 8), 3))
    assert timeline.makespan_seconds == (24 + depth - 1) * 3.0
    assert [timeline.peak_in_flight(rank) for rank in range(depth)] == [
        min(depth - rank, 24) for rank in range(depth)
    ]


def versions_of(name: str, depth: int, stage: int, microbatches: int) -> list[int | None]:
    row = generate(name, line(depth, 1), microbatches).actions[stage]
    return [action.version for action in row if action.kind is Kind.FORWARD]


def test_stages_of_pipedream_lag_by_what_they_hold() -> None:
    """Stage r computes microbatch t with version t - (d-1-r): the newest one at its forward."""
    assert versions_of("pipedream", 4, 0, 8) == [0, 0, 0, 0, 1, 2, 3, 4]
    assert versions_of("pipedream", 4, 2, 8) == [0, 0, 1, 2, 3, 4, 5, 6]
    assert versions_of("pipedream", 4, 3, 8) == [0, 1, 2, 3, 4, 5, 6, 7]
    for stage in range(4):
        newest = 0
        for action in generate("pipedream", line(4, 1), 9).actions[stage]:
            newest += action.kind is Kind.UPDATE
            if action.kind is Kind.FORWARD:
                assert action.version == newest


def test_vertical_sync_uses_one_version_on_all_stages() -> None:
    """All stages compute microbatch t with the version that the first has newest."""
    versions = {tuple(versions_of("pipedream-vertical", 4, stage, 9)) for stage in range(4)}
    assert versions == {tuple(versions_of("pipedream", 4, 0, 9))}


def test_figure_1_of_2bw_shows_pipedreams_versions() -> None:
    """Four workers in steady state: the first keeps four versions, the last one keeps one.

    Before and after the backward of an input on worker 1 they are {1, 2, 3, 4} and {2, 3, 4, 5},
    on worker 4 {4} and {5}: the input's own version is dropped and a new one made.
    """
    schedule = generate("pipedream", line(4, 1), 12)
    assert schedule.weight_versions == (4, 3, 2, 1)
    for stage, before, after in ((0, {4, 5, 6, 7}, {5, 6, 7, 8}), (3, {7}, {8})):
        newest, in_use, seen = 0, {}, []
        for action in schedule.actions[stage]:
            if action.kind is Kind.FORWARD:
                in_use[action.number] = action.version
            if action.kind is Kind.BACKWARD and action.number == 7:
                seen.append({newest, *in_use.values()})
            if action.kind is Kind.BACKWARD:
                del in_use[action.number]
            if action.kind is Kind.UPDATE:
                newest += 1
                if action.number == 7:
                    seen.append({newest, *in_use.values()})
        assert seen == [before, after]


@pytest.mark.parametrize("name", PIPEDREAMS)
def test_an_update_follows_every_backward(name: str) -> None:
    """Of every stage on its own, with two replicas after one microbatch on each."""
    schedule = generate(name, PipelineShape(replicas=(2, 2), microbatches=4), 2)
    assert (schedule.shape.microbatches, schedule.batches) == (2, 4)
    for row in schedule.actions:
        assert [a.number for a in row if a.kind is Kind.UPDATE] == [0, 1, 2, 3]
        for reduce, update in pairwise(row):
            if reduce.kind is Kind.REDUCE:
                assert (update.kind, update.number) == (Kind.UPDATE, reduce.number)
