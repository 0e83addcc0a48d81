"""What is minimised: the data, the loss, and the one place where it is scaled."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

BatchSource = Callable[[int, int], tuple[Tensor, Tensor]]
"""(batch, microbatch within it) to inputs and targets; the same on every rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The mean loss per token over all microbatches of an update."""

    data: BatchSource
    microbatches: int
    """Of a batch of the data."""
    summed_loss: Callable[[Tensor, Tensor], Tensor]
    tokens_per_update: int

    def inputs(self, microbatch: int) -> Tensor:
        """What the first stage takes for a microbatch, counted through all batches."""
        return self.data(*divmod(microbatch, self.microbatches))[0]

    def loss(self, outputs: Tensor, microbatch: int) -> Tensor:
        """The part of the mean that a microbatch adds, from what the last stage gives for it."""
        targets = self.data(*divmod(microbatch, self.microbatches))[1]
        return self.summed_loss(outputs, targets.to(outputs.device)) / self.tokens_per_update
