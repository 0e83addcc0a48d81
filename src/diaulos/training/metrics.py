"""How fast a run is and what it takes: the figures of a step beside its loss."""

import resource
import sys
from dataclasses import dataclass

import torch
from torch.utils.flop_counter import FlopCounterMode

from diaulos.errors import InputError
from diaulos.models.layers import LayeredModel, as_stream, meta_layer


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """What an update computes, and what all devices of the run could compute at their peak."""

    tokens_per_update: int
    flops_per_update: float | None = None
    """Of the model; None where no peak is known to which it could be compared."""
    peak_flops_per_second: float | None = None
    """Of all devices together, None where it is not known."""

    def __post_init__(self) -> None:
        peak = self.peak_flops_per_second
        if peak is not None and not peak > 0:
            raise InputError(f"peak_flops_per_second is {peak}", "it must be above 0")

    def utilization(self, step_seconds: float) -> float | None:
        """The model FLOPs utilization of a step (MFU; Chowdhery et al., 2022, PaLM, appendix B)."""
        if self.flops_per_update is None or self.peak_flops_per_second is None:
            return None
        return self.flops_per_update / (step_seconds * self.peak_flops_per_second)


def model_flops(model: LayeredModel, microbatch_size: int) -> float:
    """The FLOPs of one microbatch, forward and backward, whatever is recomputed.

    Of the matrix products that torch counts in the forward, masked ones included, times three.
    """
    inputs, _ = model.example(microbatch_size)
    stream = tuple(tensor.detach().to("meta") for tensor in as_stream(inputs))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        for spec in model.layers:
            stream = as_stream(meta_layer(spec)(*stream))
    return 3.0 * float(counter.get_total_flops())


def peak_memory_bytes(device: torch.device) -> float:
    """The most that this process has held so far: on a device there, on a CPU in all."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(resident if sys.platform == "darwin" else resident * 1024)
