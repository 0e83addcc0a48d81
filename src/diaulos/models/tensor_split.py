"""How a layer is split over the shards of a tensor-parallel stage: a plan of its modules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from diaulos.errors import InputError


class Split(Enum):
    """What tensor parallelism does to a module of a layer.

    The stream is what passes from layer to layer, [samples, positions, ...]. It is whole on every
    shard; under sequence parallelism each shard has a part of the positions.
    """

    COLUMNS = "a projection of which each shard gives a part of the outputs"
    ROWS = "a projection of a part of the inputs; the sum over the shards goes to the stream"
    GATHERED_COLUMNS = "columns whose outputs are put together on every shard"
    INPUT = "takes the stream once for all its projections"
    STREAM = "works on the stream: a norm, or dropout"
    HEADS = "dropout on [samples, heads, ...], of which each shard has a part"
    HEAD_NORM = "a norm of each head on [samples, positions, heads, ...], whole on every shard"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSplit:
    """How a layer is split over the shards of a stage: its own tensor-parallel plan."""

    modules: Mapping[str, Split] = field(default_factory=dict)
    """By the name of the module within the layer; all others are whole on every shard."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What a tensor-parallel degree must divide, such as the heads, by its name in messages."""
    sequence_counts: Mapping[str, int] = field(default_factory=dict)
    """What it must divide under sequence parallelism as well."""
    takes_parts: bool = False
    """Whether under sequence parallelism the layer takes a part of the positions."""
    gives_parts: bool = False
    """Whether it gives a part of them."""

    def check(self, layer: str, degree: int, *, sequence_parallel: bool) -> None:
        """Refuse a degree that does not divide what it must; the message names the layer."""
        counts = {**self.counts, **(self.sequence_counts if sequence_parallel else {})}
        for name, count in counts.items():
            if count % degree:
                divisors = [str(t) for t in range(1, count + 1) if count % t == 0]
                raise InputError(
                    f"layer {layer} has {count} {name}, and its stage has tensor-parallel degree "
                    f"{degree}",
                    f"each shard takes an equal share of the {name}",
                    f"degrees may be {', '.join(divisors)}",
                )
