"""The comparison that the demo makes."""

from diaulos.training.compare import compare_gradients
from tests.training.toy import toy_job


def test_a_pipeline_has_no_difference():
    """All parameters of all batches are compared, and none differs."""
    job = toy_job("2bw", (1, 1), 2, batches=3)
    difference = compare_gradients(job)

    assert difference.largest == 0
    assert difference.batches == 3
    assert str(difference) == f"0 over {difference.parameters} parameters in 3 batches"
