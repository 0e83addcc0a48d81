"""Which layers each stage holds: blocks in even shares or as given, and the ends of the model."""

from dataclasses import dataclass

from diaulos.errors import InputError
from diaulos.models.operations import ModelLayer, ModelOperations


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayers:
    """A stage by its layers, in order."""

    layers: tuple[ModelLayer, ...]
    blocks: int
    """How many of them are blocks."""
    before: ModelLayer | None = None
    """The layer before the first one; whose output a stage without layers passes on."""

    @property
    def names(self) -> frozenset[str]:
        """Of the layers."""
        return frozenset(layer.name for layer in self.layers)


def split_layers(
    operations: ModelOperations, stages: int, blocks_per_stage: tuple[int, ...] | None
) -> tuple[StageLayers, ...]:
    """The layers of each stage, input end first.

    Layers before the first block are on the first stage, those behind the last on the last one.
    """
    layers = operations.layers
    blocks = [index for index, layer in enumerate(layers) if layer.operations.recomputable]
    shares = even_shares(len(blocks), stages) if blocks_per_stage is None else blocks_per_stage
    _check_shares(shares, len(blocks), stages)
    start, found = 0, []
    taken = 0
    for stage, share in enumerate(shares):
        taken += share
        last = stage + 1 == stages
        end = len(layers) if last else (blocks[taken - 1] + 1 if taken else blocks[0])
        before = layers[start - 1] if start else None
        found.append(StageLayers(layers=layers[start:end], blocks=share, before=before))
        start = end
    return tuple(found)


def even_shares(blocks: int, stages: int) -> tuple[int, ...]:
    """As even as can be; the ends of the model, which do more than blocks, get fewer.

    Where some stages have one block more than others, these are in the middle.
    """
    if stages > blocks:
        raise InputError(
            f"there are {stages} stages and {blocks} blocks",
            "each stage has at least one block",
            f"take {blocks} stages or fewer, or say how many blocks each has",
        )
    each, more = divmod(blocks, stages)
    short = stages - more  # of which the last stage is the first to be, then the first one
    behind = (short + 1) // 2
    return (each,) * (short - behind) + (each + 1,) * more + (each,) * behind


def _check_shares(shares: tuple[int, ...], blocks: int, stages: int) -> None:
    if len(shares) != stages:
        raise InputError(
            f"blocks are given for {len(shares)} stages", f"the configuration has {stages}"
        )
    if sum(shares) != blocks or min(shares) < 0:
        raise InputError(
            f"the blocks of the stages, {','.join(map(str, shares))}, are {sum(shares)}",
            f"the model has {blocks}, and all of them are to be trained",
        )
