"""Microbatches in flight and the time of a batch, against the closed forms of the papers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.models.graph import Layer, Option
from diaulos.planning.evaluation.pipelining import (
    GPIPE,
    ONE_F_ONE_B,
    PIPELININGS,
    STEADY,
    ZERO_BUBBLE,
    Pipelining,
    StageLoad,
    batch_seconds,
    least_weight_backward_seconds,
)

FORWARD, BACKWARD, WEIGHTS, REDUCTION = 10.0, 12.0, 9.0, 4.0


def alike(stages: int, microbatches: int) -> list[StageLoad]:
    load = StageLoad(
        microbatches=microbatches,
        microbatch_seconds=FORWARD + BACKWARD + WEIGHTS,
        reduction_seconds=REDUCTION,
        weight_backward_seconds=WEIGHTS,
    )
    return [load] * stages


@pytest.mark.parametrize(
    ("pipelining", "bubble"),
    [
        (STEADY, 0.0),
        (GPIPE, FORWARD + BACKWARD + WEIGHTS),
        (ONE_F_ONE_B, FORWARD + BACKWARD + WEIGHTS),
        (ZERO_BUBBLE, FORWARD + BACKWARD - WEIGHTS),
    ],
)
@pytest.mark.parametrize("stages", [1, 2, 5])
def test_the_bubble_of_equal_stages(pipelining: Pipelining, bubble: float, stages: int) -> None:
    """A batch takes m microbatches, the reduction and (p-1) times the schedule's bubble."""
    work = 8 * (FORWARD + BACKWARD + WEIGHTS) + REDUCTION
    found = batch_seconds(pipelining, alike(stages, 8))
    assert found == pytest.approx(work + (stages - 1) * bubble)


def test_unequal_stages_by_hand() -> None:
    """The slowest stage runs all its microbatches, every other one adds a single one."""
    loads = [
        StageLoad(
            microbatches=m,
            microbatch_seconds=seconds,
            reduction_seconds=reduction,
            weight_backward_seconds=0.0,
        )
        for m, seconds, reduction in ((4, 3.0, 0.0), (2, 5.0, 0.5), (4, 1.0, 6.0))
    ]
    assert batch_seconds(ONE_F_ONE_B, loads) == 12 + 5 + 1
    assert batch_seconds(STEADY, loads) == 12


@pytest.mark.parametrize(
    ("pipelining", "expected"),
    [(STEADY, [1, 3, 12, 2]), (ONE_F_ONE_B, [1, 3, 8, 2]), (GPIPE, [8, 4, 8, 2])],
)
def test_microbatches_in_flight(pipelining: Pipelining, expected: list[int]) -> None:
    """ceil(s/d) in steady state, at most a batch with a flush, all of it for GPipe."""
    cases = [(1, 1), (5, 2), (12, 1), (7, 4)]
    assert [pipelining.in_flight(s, d, 8) for s, d in cases] == expected


def option(name: str = "x", **fields: object) -> Option:
    return Option(
        **{"name": name, "seconds": 12.0, "parameter_bytes": 0, "activation_bytes": 0, **fields}
    )


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, 4.0),
        ({"recompute": True}, 3.0),
        ({"forward_seconds": 2.0}, 5.0),
        ({"forward_seconds": 2.0, "recompute": True}, 4.0),
        ({"forward_seconds": 9.0, "recompute": True}, 0.0),
        ({"forward_seconds": 2.0, "weight_backward_seconds": 1.0}, 1.0),
        ({"weight_backward_seconds": 10.0}, 6.0),
    ],
)
def test_the_weight_backward_of_an_option(fields: dict[str, object], seconds: float) -> None:
    """As measured, else half of the backward without recomputation; at most half of all."""
    layer = Layer(id=0, options=(option(**fields),))
    assert least_weight_backward_seconds(layer, 1) == seconds


def test_the_least_weight_backward_counts() -> None:
    """All options of a layer at a degree defer what the one with the least can."""
    some = option("a"), option("b", recompute=True), option("c", tensor_parallel=2, seconds=1.0)
    assert least_weight_backward_seconds(Layer(id=0, options=some), 1) == 3.0


_SECONDS = st.integers(0, 50).map(float)


@given(
    st.lists(st.tuples(st.integers(1, 9), _SECONDS, _SECONDS, st.floats(0, 0.5)), min_size=1),
    st.sampled_from(list(PIPELININGS.values())),
)
def test_a_batch_is_never_shorter_than_a_stage(
    stages: list[tuple[int, float, float, float]], pipelining: Pipelining
) -> None:
    """Every schedule takes at least what each stage has to do, and 2BW takes no more."""
    loads = [
        StageLoad(
            microbatches=m,
            microbatch_seconds=seconds,
            reduction_seconds=reduction,
            weight_backward_seconds=share * seconds,
        )
        for m, seconds, reduction, share in stages
    ]
    longest = max(m * seconds + reduction for m, seconds, reduction, _ in stages)
    assert batch_seconds(pipelining, loads) >= longest * (1 - 1e-12)
    assert batch_seconds(STEADY, loads) == longest


def test_what_counts_for_the_microbatches_in_flight() -> None:
    """The degrees of a stage and all later ones; of all where weight backwards are deferred."""
    assert ONE_F_ONE_B.totals((2, 1, 4)) == STEADY.totals((2, 1, 4)) == (7, 5, 4)
    assert ZERO_BUBBLE.totals((2, 1, 4)) == (7, 7, 7)
