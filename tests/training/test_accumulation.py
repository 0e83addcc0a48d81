"""Gradients summed up over microbatches."""

import torch
from torch import nn

from diaulos.training.accumulation import Accumulator
from diaulos.training.precision import Precision

MICROBATCHES = 1000


def _accumulate(precision):
    """The gradients of two weights, of which one is used, with 1 from each microbatch."""
    used, unused = (nn.Parameter(torch.zeros(2, dtype=precision.computing)) for _ in range(2))
    accumulator = Accumulator([used, unused], precision)
    for _ in range(MICROBATCHES):
        used.sum().backward()
    return accumulator, accumulator.take()


def test_low_precision_is_summed_in_full():
    """In bfloat16 the sum of a thousand ones would end at 256."""
    for precision in (Precision.FLOAT32, Precision.BF16, Precision.FP16):
        _, (summed, missing) = _accumulate(precision)
        assert summed.dtype is torch.float32
        assert summed.tolist() == [MICROBATCHES, MICROBATCHES]
        assert missing is None


def test_what_is_taken_begins_anew():
    """Nothing of a batch is left for the next."""
    for precision in (Precision.FLOAT32, Precision.BF16):
        accumulator, _ = _accumulate(precision)
        assert accumulator.take() == [None, None]
