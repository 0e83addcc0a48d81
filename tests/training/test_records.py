"""Records of a run and the measured timeline that is read from them."""

from dataclasses import replace

import pytest

from diaulos.errors import InputError
from diaulos.schedules.actions import parse_action
from diaulos.training.records import (
    RankRecorder,
    StepRecord,
    read_measured_timeline,
    read_steps,
)

STEP = StepRecord(
    batch=0,
    loss=2.5,
    gradient_norm=1.0,
    step_seconds=0.5,
    tokens_per_second=100.0,
    model_flops_utilization=None,
    bubble_fraction=0.25,
    memory_bytes=2.0**30,
    gradient_delay=1,
    weight_versions=2,
    slack_seconds=0.002,
    in_flight=2,
)


def test_what_is_written_is_read_back(tmp_path):
    """The timeline holds every action of every rank, from 0 on, and the steps of every rank."""
    for rank in range(2):
        with RankRecorder(rank, tmp_path) as recorder:
            recorder.action(parse_action(f"{rank}F0@0"), recorder.now())
            recorder.action(parse_action(f"{rank}B0@0"), recorder.now())
            recorder.step(STEP)
    timeline = read_measured_timeline(tmp_path, "measured", microbatches=1)

    assert timeline.start_seconds == 0
    assert [["0F0@0", "0B0@0"], ["1F0@0", "1B0@0"]] == [
        [str(event.action) for event in timeline.of_rank(rank)] for rank in range(2)
    ]
    assert read_steps(tmp_path) == [[STEP], [STEP]]


def test_the_last_batches_are_read_alone(tmp_path):
    """Of three batches of two microbatches the last two, each with its update, from 0 seconds."""
    with RankRecorder(0, tmp_path) as recorder:
        for batch in range(3):
            for text in (f"0F{2 * batch}@0", f"0B{2 * batch}@0", f"0UPDATE{batch}"):
                recorder.action(parse_action(text), recorder.now())
    timeline = read_measured_timeline(tmp_path, "measured", microbatches=2, last_batches=2)

    actions = [str(event.action) for event in timeline.events]
    assert ["0F2@0", "0B2@0", "0UPDATE1", "0F4@0", "0B4@0", "0UPDATE2"] == actions
    assert timeline.start_seconds == 0


def test_records_survive_until_the_last_step(tmp_path):
    """What was noted before a step can be read while the run still goes on."""
    with RankRecorder(0, tmp_path) as recorder:
        recorder.step(STEP)
        assert read_steps(tmp_path) == [[STEP]]


def test_steps_done_again_count_once(tmp_path):
    """After a run is resumed its file goes on, the steps behind the checkpoint and the timeline
    anew."""
    with RankRecorder(0, tmp_path) as recorder:
        recorder.action(parse_action("0F0@0"), recorder.now())
        for batch in range(3):
            recorder.step(replace(STEP, batch=batch))
    with RankRecorder(0, tmp_path, resumed_updates=2) as recorder:
        recorder.action(parse_action("0F4@2"), recorder.now())
        for batch in range(2, 4):
            recorder.step(replace(STEP, batch=batch, loss=1.0))

    (steps,) = read_steps(tmp_path)
    assert [(0, 2.5), (1, 2.5), (2, 1.0), (3, 1.0)] == [(step.batch, step.loss) for step in steps]
    events = read_measured_timeline(tmp_path, "measured", microbatches=2).events
    assert ["0F4@2"] == [str(event.action) for event in events]


def test_a_folder_without_records_is_refused(tmp_path):
    """Reading a run that is none says which folder."""
    with pytest.raises(InputError, match="has no record of a run"):
        read_steps(tmp_path)


def test_a_last_line_in_part_counts_for_nothing(tmp_path):
    """What a killed rank left is read without it, and gone on with behind the last whole line."""
    with RankRecorder(0, tmp_path) as recorder:
        recorder.step(STEP)
    with (tmp_path / "rank_0.jsonl").open("a") as file:
        file.write('{"step": {"batch": 1, "lo')
    assert read_steps(tmp_path) == [[STEP]]

    with RankRecorder(0, tmp_path, resumed_updates=1) as recorder:
        recorder.step(replace(STEP, batch=1))
    assert read_steps(tmp_path) == [[STEP, replace(STEP, batch=1)]]
