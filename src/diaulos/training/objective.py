"""What is minimised: the data, the loss, and the one place where it is scaled."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from diaulos.models.layers import IGNORED, Reduction, Stream, as_stream
from diaulos.training.precision import Precision

BatchSource = Callable[[int, int], tuple[Tensor | Stream, Tensor]]
"""(batch, microbatch within it) to inputs, one or several, and targets; the same on every rank."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss of an update, as its reduction says, over all its microbatches."""

    data: BatchSource
    precision: Precision
    microbatches: int
    """Of a batch of the data."""
    microbatches_per_update: int
    summed_loss: Callable[..., Tensor]
    reduction: Reduction
    tokens_per_microbatch: int

    def inputs(self, microbatch: int) -> Stream:
        """What the first stage takes for a microbatch, counted through all batches."""
        inputs = as_stream(self.data(*divmod(microbatch, self.microbatches))[0])
        return tuple(self.precision.computed(tensor) for tensor in inputs)

    def loss(self, outputs: Stream, microbatch: int) -> Tensor:
        """The part of the update's loss that a microbatch adds, from the last stage's outputs."""
        targets = self._targets(microbatch).to(outputs[0].device)
        summed = self.summed_loss(*map(self.precision.updated, outputs), targets)
        return summed / self._terms(microbatch // self.microbatches_per_update)

    def _targets(self, microbatch: int) -> Tensor:
        return self.data(*divmod(microbatch, self.microbatches))[1]

    def _terms(self, update: int) -> int:
        """By what the sum of an update's token losses is divided."""
        if self.reduction is Reduction.SUM:
            return 1
        if self.reduction is Reduction.MEAN:
            return self.tokens_per_microbatch * self.microbatches_per_update
        if update not in self._counted:
            self._counted.clear()  # forwards of an update that is done do not come again
            self._counted[update] = max(self._count(update), 1)
        return self._counted[update]

    def _count(self, update: int) -> int:
        """The targets of an update that are not ignored; each rank of the last stage counts all."""
        first = update * self.microbatches_per_update
        numbers = range(first, first + self.microbatches_per_update)
        return sum(int(self._targets(number).ne(IGNORED).sum()) for number in numbers)

    @cached_property
    def _counted(self) -> dict[int, int]:
        return {}
