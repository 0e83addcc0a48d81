"""The bytes of a model's layers: what they hold, keep, hand on, and need for a moment."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.optim import Optimizer

from diaulos.models.layers import Stream
from diaulos.pricing.chain import Chain
from diaulos.pricing.memory_probe import kept_bytes, peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSizes:
    """What a layer takes for one microbatch, with or without recomputation."""

    activation_bytes: int
    """Kept for the backward: the input always, the parameters never, each storage once."""
    temporary_bytes: int
    """The most alive beside that at one moment of forward, backward or update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSizes:
    """The bytes of one layer."""

    parameter_bytes: int
    output_bytes: int
    plain: OptionSizes
    recompute: OptionSizes


def measure_sizes(chain: Chain) -> list[LayerSizes]:
    """The sizes of each layer, by running it once or twice; takes the first optimizer steps."""
    sizes, entering = [], chain.inputs
    for position, module in enumerate(chain.modules):
        with torch.no_grad():
            leaving = chain.run(position, entering, recompute=False)
        sizes.append(
            LayerSizes(
                parameter_bytes=sum(map(_bytes, module.parameters())),
                output_bytes=sum(map(_bytes, leaving)),
                plain=_option_sizes(chain, position, entering, recompute=False),
                recompute=_option_sizes(chain, position, entering, recompute=True),
            )
        )
        entering = leaving
    return sizes


def _option_sizes(chain: Chain, position: int, hidden: Stream, *, recompute: bool) -> OptionSizes:
    entering = chain.entering(position, hidden)
    module = chain.modules[position]
    kept = kept_bytes(
        partial(chain.run, position, entering, recompute=recompute),
        uncounted=(*entering, *module.parameters(), *module.buffers()),
    )
    peak = _pass_peak_bytes(chain, position, entering, recompute=recompute)
    return OptionSizes(
        activation_bytes=kept + sum(tensor.untyped_storage().nbytes() for tensor in entering),
        temporary_bytes=max(peak - kept, _update_peak_bytes(chain.optimizers[position])),
    )


def _pass_peak_bytes(chain: Chain, position: int, entering: Stream, *, recompute: bool) -> int:
    """The most that is new at one moment of a microbatch's forward and backward."""

    def forward_and_backward() -> None:
        leaving = chain.run(position, entering, recompute=recompute)
        output = [tensor for tensor in leaving if tensor.requires_grad]
        if output:
            torch.autograd.backward(output, [torch.ones_like(tensor) for tensor in output])

    forward_and_backward()  # from the second microbatch on, gradients are added to existing ones
    _forget_gradients(entering)
    peak = peak_bytes(forward_and_backward)
    _forget_gradients(entering)
    return peak


def _forget_gradients(entering: Stream) -> None:
    for tensor in entering:
        tensor.grad = None


def _update_peak_bytes(optimizer: Optimizer | None) -> int:
    """The most that is new at one moment of an update with the gradients that are there."""
    if optimizer is None:
        return 0
    optimizer.step()  # the first makes the optimizer's state
    peak = peak_bytes(optimizer.step)
    optimizer.zero_grad()
    return peak


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
