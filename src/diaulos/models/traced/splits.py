"""How tensor parallelism splits the products of a segment, and who then holds what.

A model's own plan says it of modules; of those that it leaves out, the kernels do. A product of
something whole is split by columns if what it makes is the input of another product or of
attention before anything wants whole rows of it, as a norm does; a product of something split is
split along what is summed. So blocks come out as Megatron-LM splits them (Shoeybi et al., 2019).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from diaulos.models.operations import Region, Split
from diaulos.models.traced.tape import ProductShape, Step, Tape


@dataclass(frozen=True, kw_only=True)
class Splits:
    """The products and tensors of a tape."""

    products: Mapping[int, Split]
    """By the position of the product's step in the forward."""
    regions: Mapping[int, Region]
    """Of tensors, by key; those that are not there are whole."""
    weights: Mapping[int, Split]
    """By the key of a product's weights."""

    def region(self, key: int) -> Region:
        """Of a tensor."""
        return self.regions.get(key, Region.WHOLE)


def find_splits(tape: Tape, plan: Mapping[str, Split]) -> Splits:
    """The splits of a tape; `plan` has those of parameters, by name."""
    finder = _Finder(tape, plan)
    for position, step in enumerate(tape.forward):
        finder.forward(position, step)
    for step in tape.backward:
        finder.backward(step)
    return Splits(products=finder.products, regions=finder.regions, weights=finder.weights)


class _Finder:
    """Follows tensors from kernel to kernel."""

    def __init__(self, tape: Tape, plan: Mapping[str, Split]) -> None:
        self._tape = tape
        self._plan = plan
        self.products: dict[int, Split] = {}
        self.regions: dict[int, Region] = {}
        self.weights: dict[int, Split] = {}

    def forward(self, position: int, step: Step) -> None:
        """Say how a step is split, and what it makes."""
        if step.product is None:
            self._carry(step)
            return
        split = self._split(position, step, step.product)
        self.products[position] = split
        if step.product.weight is not None:
            self.weights[step.product.weight] = split
        if split is Split.COLUMNS:
            self._mark(step)

    def backward(self, step: Step) -> None:
        """Say what a step of the backward makes."""
        weights = [self.weights[some.key] for some in step.reads if some.key in self.weights]
        if step.product is None or not weights:
            self._carry(step)
        elif weights[0] is Split.INNER:
            self._mark(step)

    def _split(self, position: int, step: Step, product: ProductShape) -> Split:
        split_input = any(self._is_split(some.key) for some in step.reads)
        if product.weight is None:
            return Split.COLUMNS if split_input else Split.NONE
        planned = self._plan.get(self._tape.parameters[product.weight])
        if planned is not None and not product.stacked:
            return planned
        if split_input:
            return Split.INNER
        return Split.COLUMNS if self._feeds_a_product(position, product) else Split.NONE

    def _feeds_a_product(self, position: int, product: ProductShape) -> bool:
        """Whether what a product makes gets to another one without being wanted whole."""
        reached = {some.key for some in self._tape.forward[position].writes}
        for step in self._tape.forward[position + 1 :]:
            if reached.isdisjoint(some.key for some in step.reads):
                continue
            if step.attention is not None or step.product is not None:
                return True
            if step.reduced_rows == product.rows * product.count:
                return False
            reached.update(some.key for some in step.writes)
        return False

    def _carry(self, step: Step) -> None:
        if step.attention is not None or any(self._is_split(some.key) for some in step.reads):
            self._mark(step)

    def _mark(self, step: Step) -> None:
        for some in step.writes:
            self.regions[some.key] = Region.SPLIT

    def _is_split(self, key: int) -> bool:
        return self.regions.get(key) is Region.SPLIT
