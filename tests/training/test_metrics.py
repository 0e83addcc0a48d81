"""Figures of a step beside its loss."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from diaulos.errors import InputError
from diaulos.models.gpt import gpt
from diaulos.training.metrics import Throughput, model_flops, peak_memory_bytes
from diaulos.training.reduction import BatchTotals
from tests.training.toy import CONFIG, toy_job


def test_flops_are_those_of_the_closed_form():
    """Six for each weight of a product and token, and 12 b s^2 h for each block's attention."""
    config = replace(CONFIG, layers=3, width=32, heads=4, sequence_length=16)
    samples, width, length = 5, config.width, config.sequence_length
    products = config.layers * 12 * width**2 + width * config.vocabulary
    attention = config.layers * 12 * samples * length**2 * width

    assert model_flops(gpt(config), samples) == 6 * samples * length * products + attention


def test_utilization_is_what_is_computed_over_the_peak_of_all_ranks():
    """Two ranks of 1 TFLOP/s each that compute half of what they could in a step."""
    job = replace(toy_job("2bw", (1, 1), 4), peak_flops_per_second=1e12)
    flops = model_flops(job.model, 2) * 4

    assert job.throughput.utilization(flops / 1e12) == pytest.approx(0.5)


def test_an_unknown_peak_leaves_utilization_out():
    """Without a peak no utilization is made up, and a peak of nothing is refused."""
    assert toy_job("2bw", (1, 1), 4).throughput.utilization(1.0) is None
    with pytest.raises(InputError, match="peak_flops_per_second is 0"):
        Throughput(tokens_per_update=1, flops_per_update=1.0, peak_flops_per_second=0.0)


def test_the_peak_of_memory_counts_what_is_held():
    """Sixty-four MiB that are held are seen, and still counted when they are gone."""
    before = peak_memory_bytes(torch.device("cpu"))
    held = np.ones(int(before) // 8 + 2**23)
    during = peak_memory_bytes(torch.device("cpu"))
    assert during >= held.nbytes
    del held
    assert peak_memory_bytes(torch.device("cpu")) >= during


def test_no_bubble_is_negative():
    """Each rank is idle for what its own step has beyond its work, though steps differ."""
    totals = BatchTotals(
        squared_norms=torch.ones(1),
        loss=1.0,
        busy_seconds=3.0 + 1.0,
        step_seconds=4.0 + 1.0,
        memory_bytes=1.0,
        weight_versions=1,
        there_seconds=0.0,
    )

    assert totals.bubble_fraction == pytest.approx(1 / 5)
