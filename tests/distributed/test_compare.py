"""The comparison that the demo makes."""

from diaulos.training.compare import compare_gradients
from diaulos.training.precision import Precision
from tests.training.toy import toy_job


def test_a_pipeline_has_no_difference():
    """All parameters of all batches are compared, and none differs."""
    job = toy_job("2bw", (1, 1), 2, batches=3)
    difference = compare_gradients(job)

    assert difference.largest == 0
    assert difference.batches == 3
    assert str(difference) == f"0 over {difference.parameters} parameters in 3 batches"


def test_shards_are_compared_with_their_parts():
    """What a shard holds of a gradient is compared with that part of the whole."""
    job = toy_job("1f1b", (1, 1), 2, batches=1, shards=(2, 1), precision=Precision.FLOAT64)
    difference = compare_gradients(job)

    assert 0 < difference.largest < 1e-12
