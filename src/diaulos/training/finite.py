"""Where a number that is not finite comes from."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from diaulos.training.stage import StageModule


def is_finite(tensor: Tensor) -> bool:
    """Whether all entries are finite, in one pass where they are."""
    return math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all())


def first_bad_output(module: StageModule, entering: Tensor, microbatch: int) -> str | None:
    """The first layer of a stage whose output for a microbatch is not finite; None if none is."""
    hidden = entering.detach()
    with torch.no_grad():
        for name in module.names:
            hidden = module.run_one(name, hidden, microbatch)
            if not is_finite(hidden):
                return name
    return None


def first_bad_gradient(
    module: StageModule,
    entering: Tensor,
    microbatch: int,
    gradient_of: Callable[[Tensor], Tensor],
) -> str | None:
    """The first layer of a stage, from its output on, that gives a gradient that is not finite.

    `gradient_of` takes the output of the stage and gives the gradient that its backward begins
    with. None if that is not finite itself, or all layers give finite ones.
    """
    steps = []
    hidden = entering.detach()
    for name in module.names:
        leaf = hidden.detach().requires_grad_(hidden.is_floating_point())
        hidden = module.run_one(name, leaf, microbatch)
        steps.append((name, leaf, hidden))
    gradient = gradient_of(hidden.detach().requires_grad_())
    if not is_finite(gradient):
        return None
    for name, leaf, output in reversed(steps):
        wanted = [leaf] if leaf.requires_grad else []
        wanted += module.layer(name).parameters()
        gradient, *others = torch.autograd.grad(output, wanted, gradient)
        if not all(map(is_finite, (gradient, *others))):
            return name
    return None
