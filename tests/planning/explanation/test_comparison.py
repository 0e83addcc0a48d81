"""Contenders side by side: the figures of Piper's paper, ratios, and those who cannot answer."""

from dataclasses import replace

import pytest

from diaulos.planning.evaluation.costs import DETAILED
from diaulos.planning.exact import exact
from diaulos.planning.explanation.comparison import CONTENDERS, Contender, Standing, compare
from tests.planning.problems import chain, option, problem
from tests.planning.reference import (
    expected_seconds,
    label,
    needs_reference,
    piper_file,
    problem_of,
    rows,
)

COLUMNS = {
    "exact": "piper",
    "no-data-parallel": "noDP",
    "no-tensor-parallel": "noTP",
    "no-recompute": "noAR",
    "equal": "equi",
    "equal, no-tensor-parallel": "equi_noTP",
}
SMALL = problem(
    chain(*[[option(seconds=2.0, fixed=1.0), option("split", tensor_parallel=2)]] * 3),
    devices=2,
    memory=2.0,
    microbatches=2,
)


def seconds(standing: Standing) -> float | None:
    """The time per sample of a standing's plan."""
    if standing.result is None or standing.result.evaluation is None:
        return None
    return standing.result.evaluation.time_per_sample_seconds


@needs_reference
@pytest.mark.parametrize("row", rows("fig1.csv", most_devices=128), ids=label)
def test_figure_1_is_one_call(row: dict[str, str]) -> None:
    """Each column of a row of Piper's figure 1 comes out, infeasible entries as such."""
    standings = compare(problem_of(piper_file("bert32a100.json"), row, 1920))
    found = {standing.name: seconds(standing) for standing in standings}

    for name, column in COLUMNS.items():
        expected = expected_seconds(row[column])
        assert found[name] == (None if expected is None else pytest.approx(expected, rel=1e-9))


@needs_reference
def test_pipedream_is_no_better_than_exact_and_may_fail() -> None:
    """PipeDream's planner, which knows no recomputation, is slower or finds nothing."""
    for row in rows("fig1.csv", most_devices=32):
        standings = compare(problem_of(piper_file("bert32a100.json"), row, 1920))
        last = standings[-1]
        assert last.name == "pipedream"
        assert (last.ratio is None) == (last.reason is not None)
        assert last.ratio is None or last.ratio >= 1


def test_ratios_are_to_the_best() -> None:
    """The best has 1; another one how many times as long its batch takes."""
    standings = {standing.name: standing for standing in compare(SMALL)}

    assert standings["exact"].ratio == 1.0
    slower = standings["no-tensor-parallel"]
    assert slower.ratio == seconds(slower) / seconds(standings["exact"])
    assert slower.ratio > 1


def test_what_is_off_stays_off() -> None:
    """A contender takes means away and never gives them back."""
    given = replace(SMALL, tensor_parallel=False)
    for contender in CONTENDERS:
        assert not contender.problem(given).tensor_parallel
    assert Contender(name="a", planner=exact, switches={"recompute": True}).problem(given) == given


def test_who_cannot_answer_says_why() -> None:
    """A planner that does not know the problem's costs has its refusal as the reason."""
    standings = {s.name: s for s in compare(replace(SMALL, costs=DETAILED))}

    assert standings["exact"].ratio == 1.0
    assert standings["equal"].result is None
    assert "Piper's model alone" in str(standings["equal"].reason)


def test_nobody_has_a_plan() -> None:
    """Where nothing fits there is no best, and each says why."""
    tight = replace(SMALL, cluster=SMALL.cluster.with_flat(memory_bytes=0.5), tensor_parallel=False)
    for standing in compare(tight):
        assert standing.ratio is None
        assert standing.reason
