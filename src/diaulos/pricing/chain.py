"""A model's layers on a device, run one microbatch at a time as a stage runs them."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import AdamW, Optimizer

from diaulos.models.layers import LayeredModel, Stream, as_stream, build_layer, run_layer
from diaulos.pricing.stopwatch import Stopwatch

OptimizerFactory = Callable[[list[Parameter]], Optimizer]
"""Builds an optimizer over parameters, such as `partial(torch.optim.AdamW, lr=1e-3)`."""


def adamw(parameters: list[Parameter]) -> Optimizer:
    """AdamW as torch makes it by default."""
    return AdamW(parameters, lr=1e-4)


class Chain:
    """The layers of a model with an optimizer each; the loss counts to the last layer.

    Every layer is a graph of its own, so that its backward can be timed apart.
    """

    def __init__(
        self,
        model: LayeredModel,
        *,
        microbatch_size: int,
        optimizer: OptimizerFactory,
        device: torch.device,
    ) -> None:
        self.device = device
        self.modules = [build_layer(spec, seed=0).to(device) for spec in model.layers]
        inputs, targets = model.example(microbatch_size)
        self.inputs = tuple(tensor.to(device) for tensor in as_stream(inputs))
        self.targets = targets.to(device)
        self._loss = model.loss
        tokens = microbatch_size * model.tokens_per_sample
        self._scale = torch.tensor(1.0 / tokens, device=device)
        weights = [
            [weight for weight in module.parameters() if weight.requires_grad]
            for module in self.modules
        ]
        self.optimizers = [optimizer(some) if some else None for some in weights]
        self._weights = weights
        self._banks = [[weight.detach().clone() for weight in some] for some in weights]

    def run_microbatch(self, *, recompute: bool, watch: Stopwatch) -> None:
        """Forward and backward; marks the watch at the start and after each layer of each."""
        entered, left = [], []
        hidden = self.inputs
        watch.mark()
        for position in range(len(self.modules)):
            entering = self.entering(position, hidden)
            hidden = self.run(position, entering, recompute=recompute)
            entered.append(entering)
            left.append(hidden)
            watch.mark()
        gradients: list[Tensor | None] = [self._scale]
        while left:
            entering, leaving = entered.pop(), left.pop()
            _backward(leaving, gradients)
            gradients = [tensor.grad for tensor in entering]
            watch.mark()

    def run_microbatch_whole(self, watch: Stopwatch) -> None:
        """Forward and backward as one graph, between two marks: what the parts must add up to."""
        watch.mark()
        hidden = self.inputs
        for position in range(len(self.modules)):
            hidden = self.run(position, hidden, recompute=False)
        _backward(hidden, [self._scale])
        watch.mark()

    def update(self, watch: Stopwatch) -> None:
        """What a trainer does for each layer once a batch; marks the watch as above.

        Gradients are measured and scaled (clipping), weights are copied (the next version of
        2BW), and the optimizer steps.
        """
        watch.mark()
        for optimizer, weights, bank in zip(
            self.optimizers, self._weights, self._banks, strict=True
        ):
            if optimizer is not None:
                gradients = [weight.grad for weight in weights if weight.grad is not None]
                torch.nn.utils.get_total_norm(gradients)
                torch._foreach_mul_(gradients, 1.0)
                with torch.no_grad():
                    torch._foreach_copy_(bank, [*weights])
                optimizer.step()
                optimizer.zero_grad()
            watch.mark()

    def entering(self, position: int, hidden: Stream) -> Stream:
        """A layer's input, cut from the graph before; the first takes no gradient."""
        if position == 0:
            return hidden
        return tuple(t.detach().requires_grad_(t.is_floating_point()) for t in hidden)

    def run(self, position: int, entering: Stream, *, recompute: bool) -> Stream:
        """A layer's output, or the loss after the last."""
        output = run_layer(self.modules[position], entering, recompute=recompute)
        if position < len(self.modules) - 1:
            return output
        return (self._loss(*output, self.targets),)


def _backward(leaving: Stream, gradients: Sequence[Tensor | None]) -> None:
    """From what leaves a layer and is of use to the next."""
    pairs = [
        (tensor, gradient)
        for tensor, gradient in zip(leaving, gradients, strict=True)
        if tensor.requires_grad and gradient is not None
    ]
    if pairs:
        torch.autograd.backward([t for t, _ in pairs], [gradient for _, gradient in pairs])
