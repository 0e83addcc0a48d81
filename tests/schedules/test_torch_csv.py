"""torch's schedule CSV, and torch's own orders."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.schedules.check import check
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.torch_csv import format_torch_csv, parse_torch_csv
from tests.schedules.shapes import line, shape_for

FLUSHED = [name for name in GENERATORS if name not in ("2bw", "pipedream", "pipedream-vertical")]


@given(
    name=st.sampled_from(FLUSHED),
    depth=st.integers(2, 5),
    microbatches=st.integers(1, 12),
    chunks=st.integers(1, 3),
    first=st.integers(0, 2),
)
def test_what_is_written_is_read(
    name: str, depth: int, microbatches: int, chunks: int, first: int
) -> None:
    """The actions come back, shape, messages, reductions and updates included."""
    schedule = generate(name, shape_for(name, depth, microbatches, chunks), 1, first)
    found = parse_torch_csv(format_torch_csv(schedule), name)
    check(found)
    assert found.shape == schedule.shape
    assert found.actions == generate(name, schedule.shape, 1).actions
    assert format_torch_csv(found) == format_torch_csv(schedule)


def test_the_text_is_torchs() -> None:
    """Stage, letter and microbatch of the batch; a row a rank."""
    assert format_torch_csv(generate("zb-h1", line(2, 2), 1, 3)) == (
        "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n"
    )


def test_idle_steps_and_overlaps_are_read() -> None:
    """Empty cells are idle steps; overlapped computations follow each other."""
    text = "0F0,0F1,,(3F0;3B0)OVERLAP_F_B,3F1,3B1,0B0,0B1\n,1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n"
    found = parse_torch_csv(text, "by hand")
    check(found)
    assert found.shape == line(2, 2, chunks=2, folded=True)
    assert format_torch_csv(found).splitlines()[0] == "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0F0,0B0\n1F0,what\n", "row 1: 'what' is not an action"),
        ("0F0,0SEND_F0\n", "row 0: '0SEND_F0' is not a computation"),
        ("0F0@1,0B0\n", "row 0: '0F0@1' is not a computation"),
        ("0F0,0B0\n\n", "a row has no computations"),
        ("0F0,2F0,2B0,0B0\n1F0,1B0\n", r"the rows hold the stages \[0, 2\], \[1\]"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    """The row, the cell and the rule are named."""
    with pytest.raises(InputError, match=message):
        parse_torch_csv(text, "by hand")


def test_what_torch_does_not_know_is_not_written() -> None:
    """Replicas, several batches and orders without a flush are refused."""
    with pytest.raises(InputError, match="one rank of each"):
        format_torch_csv(generate("1f1b", PipelineShape(replicas=(2,), microbatches=2), 1))
    with pytest.raises(InputError, match="has 2 batches; torch's CSV is one batch"):
        format_torch_csv(generate("1f1b", line(1, 1), 2))
    with pytest.raises(InputError, match="has 1 batches and does not flush"):
        format_torch_csv(generate("2bw", line(1, 1), 1))


def torchs_rows(name: str, shape: PipelineShape) -> str:
    """The order that a class of torch's makes, as its CSV."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    rounds = max(shape.microbatches // shape.depth, 1)
    settings = SimpleNamespace(
        pp_group_size=shape.depth,
        num_stages=shape.stages,
        n_local_stages=shape.chunks,
        _n_microbatches=shape.microbatches,
        microbatches_per_round=shape.microbatches // rounds,
    )
    calculate = getattr(schedules, name)._calculate_single_rank_operations
    rows = [calculate(settings, rank) for rank in range(shape.depth)]
    return "".join(
        ",".join("" if action is None else str(action) for action in row) + "\n" for row in rows
    )


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("interleaved", "ScheduleInterleaved1F1B"),
        ("zb-v", "ScheduleZBVZeroBubble"),
        ("dualpipe-v", "ScheduleDualPipeV"),
        ("zb-h1", "ScheduleInterleavedZeroBubble"),
    ],
)
def test_orders_are_those_of_torch(name: str, theirs: str) -> None:
    """Rank by rank and action by action, where torch has the schedule."""
    for depth, rounds in ((2, 2), (4, 2), (4, 5), (8, 2)):
        shape = shape_for(name, depth, rounds * depth)
        ours = generate(name, shape, 1)
        read = parse_torch_csv(torchs_rows(theirs, shape), name)
        assert format_torch_csv(read) == format_torch_csv(ours)
