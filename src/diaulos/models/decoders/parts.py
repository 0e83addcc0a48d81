"""What a part of a layer adds to it."""

from dataclasses import dataclass

from diaulos.models.operations import (
    Attention,
    Dispatch,
    MatrixProduct,
    MemoryBound,
    Parameters,
    SavedTensor,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParts:
    """Operations in the order of the forward, saved tensors and parameters."""

    products: tuple[MatrixProduct, ...] = ()
    attentions: tuple[Attention, ...] = ()
    memory_bound: tuple[MemoryBound, ...] = ()
    saved: tuple[SavedTensor, ...] = ()
    parameters: tuple[Parameters, ...] = ()
    dispatches: tuple[Dispatch, ...] = ()

    def __add__(self, other: "LayerParts") -> "LayerParts":
        return LayerParts(
            products=self.products + other.products,
            attentions=self.attentions + other.attentions,
            memory_bound=self.memory_bound + other.memory_bound,
            saved=self.saved + other.saved,
            parameters=self.parameters + other.parameters,
            dispatches=self.dispatches + other.dispatches,
        )
