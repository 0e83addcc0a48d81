"""Where a number that is not finite comes from."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from diaulos.models.layers import Stream
from diaulos.training.stage import StageModule


def is_finite(tensor: Tensor) -> bool:
    """Whether all entries are finite, in one pass where they are."""
    return math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all())


def first_bad_output(module: StageModule, entering: Stream, microbatch: int) -> str | None:
    """The first layer of a stage whose output for a microbatch is not finite; None if none is.

    What a layer passes on as it came is not its output.
    """
    stream = tuple(tensor.detach() for tensor in entering)
    with torch.no_grad():
        for name in module.names:
            before = {id(tensor) for tensor in stream}
            stream = module.run_one(name, stream, microbatch)
            if not all(is_finite(tensor) for tensor in stream if id(tensor) not in before):
                return name
    return None


def first_bad_gradient(
    module: StageModule,
    entering: Stream,
    microbatch: int,
    gradients_of: Callable[[Stream], Stream],
) -> str | None:
    """The first layer of a stage, from its output on, that gives a gradient that is not finite.

    `gradients_of` takes the output of the stage and gives the gradients that its backward begins
    with. None if those are not finite themselves, or all layers give finite ones.
    """
    steps = []
    stream = entering
    for name in module.names:
        leaves = _leaves(stream)
        stream = module.run_one(name, leaves, microbatch)
        steps.append((name, leaves, stream))
    gradients = gradients_of(_leaves(stream))
    if not all(map(is_finite, gradients)):
        return None
    for name, leaves, output in reversed(steps):
        into = [leaf for leaf in leaves if leaf.requires_grad]
        weights = [weight for weight in module.layer(name).parameters() if weight.requires_grad]
        roots = [tensor for tensor in output if tensor.requires_grad]
        if not roots:
            return None
        found = torch.autograd.grad(
            roots, [*into, *weights], gradients, allow_unused=True, materialize_grads=True
        )
        if not all(map(is_finite, found)):
            return name
        gradients = found[: len(into)]
    return None


def _leaves(stream: Stream) -> Stream:
    """The same tensors, cut from the graph before."""
    return tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in stream)
