"""Cost models refuse what cannot be."""

import pytest

from diaulos.errors import InputError
from diaulos.planning.evaluation.costs import DETAILED, PIPER, CostModel


@pytest.mark.parametrize("reserve", [-1.0, float("nan"), float("inf")])
def test_the_reserve_is_an_amount(reserve: float) -> None:
    """Memory that stays free is finite and at least 0."""
    with pytest.raises(InputError, match="reserve_bytes is"):
        CostModel(reserve_bytes=reserve)


def test_the_two_models_differ_in_all_that_counts() -> None:
    """Piper's model leaves out everything that the detailed one counts."""
    for name in ("shared_tensors_once", "counts_latency", "counts_buffers", "temporary_once"):
        assert (getattr(PIPER, name), getattr(DETAILED, name)) == (False, True)
