"""Plans refuse what is no plan, and know their devices and microbatches in flight."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from diaulos.errors import InputError
from diaulos.planning.plan import Plan, Stage


def stage(*layers: int, d: int = 1, t: int = 1) -> Stage:
    options = dict.fromkeys(layers, "plain")
    return Stage(layers=layers, data_parallel=d, tensor_parallel=t, options=options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (stage, "a stage has no layers"),
        (lambda: stage(1, 1), "a stage names a layer twice: [1, 1]"),
        (lambda: stage(1, d=0), "data_parallel is 0"),
        (lambda: stage(1, t=0), "tensor_parallel is 0"),
        (
            lambda: Stage(layers=(1, 2), data_parallel=1, tensor_parallel=1, options={1: "x"}),
            "layers and options of a stage differ in [2]",
        ),
        (lambda: replace(stage(1), first_device=-1), "first_device is -1"),
        (lambda: Plan(stages=(), microbatches=1), "a plan has no stages"),
        (
            lambda: Plan(stages=(stage(1), replace(stage(2), first_device=0)), microbatches=1),
            "stage 0 does not state its first_device, stage 1 does",
        ),
        (lambda: Plan(stages=(stage(1),), microbatches=0), "microbatches is 0"),
    ],
)
def test_what_is_refused(make: Callable[[], object], message: str) -> None:
    """Each broken rule is an error in words."""
    with pytest.raises(InputError) as caught:
        make()
    assert message in str(caught.value)


def test_in_flight_counts_later_replicas() -> None:
    """y = ceil(s/d), where s sums the degrees of the stage and all later ones."""
    plan = Plan(
        stages=(stage(0, d=2, t=4), stage(1, d=3), stage(2), stage(3, d=4)), microbatches=12
    )
    assert plan.in_flight == (5, 3, 5, 1)
    assert plan.devices_used == 8 + 3 + 1 + 4
    assert plan.totals == (10, 8, 5, 4)


def test_a_placed_plan_knows_its_devices() -> None:
    """Replicas stand one after another from the first device; others say that they do not know."""
    loose = Plan(stages=(stage(0, d=2, t=4),), microbatches=2)
    placed = replace(loose, stages=(replace(loose.stages[0], first_device=3),))
    assert placed.is_placed
    assert placed.devices_of(0) == range(3, 11)
    assert not loose.is_placed
    with pytest.raises(InputError, match="stage 0 does not state its first_device"):
        loose.devices_of(0)
