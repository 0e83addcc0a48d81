"""The sizes of a decoder-only transformer: all that its operations and parameters follow from."""

from dataclasses import dataclass, fields

from diaulos.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSizes:
    """Attention with queries of `heads`, and keys and values of `key_value_heads`."""

    heads: int
    key_value_heads: int
    head_size: int
    input_bias: bool = False
    """Whether the projections to queries, keys and values have biases."""
    output_bias: bool = False
    query_key_norm: bool = False
    """Whether queries and keys of each head go through a norm with weights of the head's size."""
    rotary: bool = True
    window: int | None = None
    """How many positions a query sees at most."""

    def __post_init__(self) -> None:
        _check_counts(self)
        if self.heads % self.key_value_heads:
            raise InputError(
                f"there are {self.heads} heads and {self.key_value_heads} key-value heads",
                "the heads must be a multiple of the key-value heads",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttentionSizes:
    """Attention from low-rank latents (multi-head latent attention, DeepSeek-V2, 2024)."""

    heads: int
    query_rank: int | None
    """None where queries are projected from the hidden state at once."""
    key_value_rank: int
    content_size: int
    """Elements of a query or key without position, of one head."""
    rotary_size: int
    """Elements with position; those of the key are shared by all heads."""
    value_size: int
    bias: bool = False
    """Whether the projections down and the one out have biases."""

    def __post_init__(self) -> None:
        _check_counts(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSizes:
    """The two or three projections of a feed-forward network."""

    width: int
    gated: bool = True
    """Whether a third projection gates what the first makes (SwiGLU, GeGLU)."""
    bias: bool = False
    relu: bool = False
    """Whether the activation function is ReLU, whose output is all that its backward needs."""

    def __post_init__(self) -> None:
        _check_counts(self)

    @property
    def entering(self) -> int:
        """Columns of the projections up, together."""
        return (2 if self.gated else 1) * self.width


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertSizes:
    """Networks of which each token takes some, and one that all tokens take."""

    count: int
    active: int
    """Experts that each token takes."""
    network: NetworkSizes
    """Of each expert."""
    shared: NetworkSizes | None = None
    shared_gate: bool = False
    """Whether a projection to one number weighs the shared network."""

    def __post_init__(self) -> None:
        _check_counts(self)
        if self.active > self.count:
            raise InputError(
                f"each token takes {self.active} experts of {self.count}",
                "it cannot take more than there are",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSizes:
    """One transformer block."""

    attention: AttentionSizes | LatentAttentionSizes
    network: NetworkSizes | ExpertSizes
    norms: int = 2
    """Of the width of the hidden state: 4 where the outputs of both halves have one too."""
    parallel: bool = False
    """Whether attention and network both start from the block's input (GPT-NeoX)."""

    def __post_init__(self) -> None:
        _check_counts(self)


@dataclass(frozen=True, kw_only=True)
class DecoderSizes:
    """A decoder-only transformer with its embedding and head."""

    name: str
    hidden: int
    vocabulary: int
    blocks: tuple[BlockSizes, ...]
    tied: bool
    """Whether the head's projection is the token embedding."""
    positions: int | None = None
    """Learned positions; None where there are none."""
    norm_bias: bool = False
    """Whether norms have a bias beside their weight (LayerNorm)."""
    norm_weights: bool = True
    final_norm: bool = True
    dropout: bool = False
    """Whether the embedding, attention and what blocks add have dropout."""
    embedding_width: int | None = None
    """Of the token embedding, where projections lead from it and back to it."""

    def __post_init__(self) -> None:
        _check_counts(self)
        if not self.blocks:
            raise InputError("the model has no blocks", "it needs at least one")

    @property
    def norm_parameters(self) -> int:
        """Of one norm over the hidden state."""
        return self.hidden * (1 + self.norm_bias) if self.norm_weights else 0

    @property
    def heads(self) -> int:
        """Of the block that has the fewest."""
        return min(block.attention.heads for block in self.blocks)

    @property
    def experts(self) -> int:
        """Of the blocks that have some; 1 where none has."""
        counts = [b.network.count for b in self.blocks if isinstance(b.network, ExpertSizes)]
        return min(counts, default=1)


def _check_counts(sizes: object) -> None:
    for field in fields(sizes):  # type: ignore[arg-type]  # a dataclass, as all callers are
        value = getattr(sizes, field.name)
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise InputError(f"{field.name} is {value}", "it must be at least 1")
