"""What is said of a plan's stages, its gap, and what would change."""

import io
from dataclasses import replace

from rich.console import Console

from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.explanation.explain import explain
from diaulos.planning.explanation.gap import Gap
from diaulos.planning.explanation.what_if import what_if
from diaulos.reporting.explain import gap_table, stages_table, what_if_sentences
from tests.planning.plans import plan, stage
from tests.planning.problems import chain, option, problem

GIVEN = problem(
    chain(
        [option(seconds=2.0, activations=9.0), option("lean", seconds=3.0, recompute=True)],
        [option(seconds=1.0, fixed=4.0)],
    ),
    devices=2,
    memory=4.0,
    microbatches=4,
)
TWO = plan(stage(0, of_0="lean"), stage(1), microbatches=4)


def lines(table: object) -> list[str]:
    """What a table prints."""
    console = Console(width=160, file=io.StringIO())
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def test_stages() -> None:
    """Each stage with what fills it and what binds it."""
    found = explain(GIVEN.graph, TWO, GIVEN.cluster)
    first, second = lines(stages_table(GIVEN.graph, TWO, found))[1:]
    assert "memory, which bars 1 faster option" in first
    assert "4 B unspecified" in second
    assert "2 s" in second  # It waits so long for the first.
    assert second.rstrip().endswith("compute")


def test_the_gap_leaves_zeros_out() -> None:
    """Bound, parts above zero, and their sum."""
    table = lines(gap_table(explain(GIVEN.graph, TWO, GIVEN.cluster).gap))
    assert [line.split("  ")[0] for line in table[1:]] == [
        "least work, in perfect balance (the bound)",
        "recomputation",
        "imbalance",
        "all",
    ]
    assert table[-1].split()[-3:] == ["3", "s", "100.0%"]


def test_no_time_at_all_has_no_shares() -> None:
    """A plan of layers that take no time is told without dividing by it."""
    nothing = Gap(**dict.fromkeys(Gap.__dataclass_fields__, 0.0))
    assert lines(gap_table(nothing))[-1].split() == ["all", "0", "ns", "-"]


def test_what_would_change() -> None:
    """More devices and memory with the new time, and the part that is saved."""
    seconds = evaluate(GIVEN.graph, TWO, GIVEN.cluster).batch_seconds
    changes = what_if(GIVEN, seconds, more_memory_bytes=20.0)
    assert what_if_sentences(GIVEN, changes, seconds, more_memory_bytes=20.0) == [
        "planned anew on the same devices: 8 s per batch, 33.3% less",
        "1 more device: 6 s per batch, 25.0% less",
        "20 B more memory on each device: 6 s per batch, 25.0% less",
    ]


def test_nothing_would_change() -> None:
    """Where nothing helps it is said, and only as sure as it is known."""
    single = problem(chain([option(seconds=2.0)]))
    changes = what_if(single, 2.0, more_memory_bytes=20.0)
    sure = what_if_sentences(single, changes, 2.0, more_memory_bytes=20.0)
    unsure = replace(changes, proven=False)
    assert sure == [
        "more devices: no number of them is faster",
        "20 B more memory on each device: not faster",
    ]
    assert what_if_sentences(single, unsure, 2.0, more_memory_bytes=20.0) == [
        "more devices: no number of them was found that is faster",
        "20 B more memory on each device: nothing faster was found",
    ]
