"""A decoder-only GPT, given as layers: token and position embedding, blocks, head."""

import math
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from diaulos.errors import InputError
from diaulos.models.dropout import Dropout
from diaulos.models.layers import LayeredModel, LayerSpec
from diaulos.models.tensor_split import Split, TensorSplit

_INITIAL_DEVIATION = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class GPTConfig:
    """The sizes of a GPT; the vocabulary is that of bytes unless said otherwise."""

    layers: int
    """Transformer blocks, the embedding and the head not counted."""
    width: int
    heads: int
    sequence_length: int
    vocabulary: int = 256
    dropout: float = 0.0
    """The share of the embedding, of the attention and of what blocks add that is left out."""
    tied: bool = False
    """Whether the head's projection is the token embedding."""

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "sequence_length", "vocabulary"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}", "it must be at least 0 and below 1")
        if self.width % self.heads:
            divisors = [count for count in range(1, self.width + 1) if self.width % count == 0]
            raise InputError(
                f"width {self.width} does not split into {self.heads} heads",
                "the width must be a multiple of the heads",
                f"heads may be {', '.join(map(str, divisors))}",
            )


class Embedding(nn.Module):
    """Tokens to vectors: what the token is plus where it stands."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Parameter(torch.empty(config.sequence_length, config.width))
        nn.init.normal_(self.tokens.weight, std=_INITIAL_DEVIATION)
        self.dropout = Dropout(config.dropout)
        nn.init.normal_(self.positions, std=_INITIAL_DEVIATION)

    def forward(self, tokens: Tensor) -> Tensor:
        """[samples, positions] whole numbers to [samples, positions, width]."""
        embedded: Tensor = self.dropout(self.tokens(tokens) + self.positions[: tokens.shape[1]])
        return embedded


class Attention(nn.Module):
    """Causal self-attention; q, k and v apart, so that each can be split by heads."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.head_width = config.width // config.heads
        self.query = _linear(config.width, config.width)
        self.key = _linear(config.width, config.width)
        self.value = _linear(config.width, config.width)
        self.out = _residual_linear(config.width, config)
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """What each position takes from itself and those before it."""
        query, key, value = (
            self._by_head(project(hidden)) for project in (self.query, self.key, self.value)
        )
        if self.dropout.is_active:
            mixed = self._mix_with_dropout(query, key, value)
        else:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        attended: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return attended

    def _by_head(self, projected: Tensor) -> Tensor:
        """To [samples, heads, positions, width of a head]: all heads, or those of this shard."""
        return projected.view(*projected.shape[:2], -1, self.head_width).transpose(1, 2)

    def _mix_with_dropout(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """As torch's own attention, which would draw other masks on other numbers of heads."""
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.head_width)
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        weights: Tensor = self.dropout(scores.masked_fill(later, -math.inf).softmax(-1))
        return weights @ value


class Block(nn.Module):
    """A pre-norm transformer block: attention and a GELU network of four times the width."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.network_norm = nn.LayerNorm(config.width)
        self.network = nn.Sequential(
            _linear(config.width, 4 * config.width),
            nn.GELU(),
            _residual_linear(4 * config.width, config),
        )
        self.dropout = Dropout(config.dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """The residual stream, with what this block adds to it."""
        hidden = hidden + self.dropout(self.attention(self.attention_norm(hidden)))
        changed: Tensor = hidden + self.dropout(self.network(self.network_norm(hidden)))
        return changed


class Head(nn.Module):
    """The final norm and the projection to the scores of the next token."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.width)
        self.scores = nn.Linear(config.width, config.vocabulary, bias=False)
        nn.init.normal_(self.scores.weight, std=_INITIAL_DEVIATION)

    def forward(self, hidden: Tensor) -> Tensor:
        """[samples, positions, width] to [samples, positions, vocabulary]."""
        scores: Tensor = self.scores(self.norm(hidden))
        return scores


def gpt(config: GPTConfig) -> LayeredModel:
    """The GPT as layers `embedding`, `block_0` and so on, `head`."""
    block_split, head_split = _block_split(config), _head_split(config)
    blocks = tuple(
        LayerSpec(name=f"block_{index}", build=partial(Block, config), tensor_split=block_split)
        for index in range(config.layers)
    )
    return LayeredModel(
        layers=(
            LayerSpec(
                name="embedding",
                build=partial(Embedding, config),
                tensor_split=TensorSplit(modules={"tokens": Split.GATHERED_COLUMNS}),
            ),
            *blocks,
            LayerSpec(name="head", build=partial(Head, config), tensor_split=head_split),
        ),
        loss=summed_cross_entropy,
        example=partial(_example, config),
        tokens_per_sample=config.sequence_length,
        ties={"head.scores.weight": "embedding.tokens.weight"} if config.tied else {},
        settings={"model": "gpt", **{key: str(value) for key, value in asdict(config).items()}},
    )


def _block_split(config: GPTConfig) -> TensorSplit:
    """As Megatron-LM splits a block: attention by heads, the network by its inner width."""
    return TensorSplit(
        modules={
            "attention_norm": Split.STREAM,
            "attention": Split.INPUT,
            "attention.query": Split.COLUMNS,
            "attention.key": Split.COLUMNS,
            "attention.value": Split.COLUMNS,
            "attention.dropout": Split.HEADS,
            "attention.out": Split.ROWS,
            "network_norm": Split.STREAM,
            "network.0": Split.COLUMNS,
            "network.2": Split.ROWS,
            "dropout": Split.STREAM,
        },
        counts={"heads": config.heads},
        sequence_counts={"positions": config.sequence_length},
        takes_parts=True,
        gives_parts=True,
    )


def _head_split(config: GPTConfig) -> TensorSplit:
    """The scores are put together on every shard, as the loss wants them."""
    return TensorSplit(
        modules={"norm": Split.STREAM, "scores": Split.GATHERED_COLUMNS},
        sequence_counts={"positions": config.sequence_length},
        takes_parts=True,
    )


def summed_cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """The cross entropy of all tokens of a microbatch, summed."""
    return functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum")


def _example(config: GPTConfig, microbatch_size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (microbatch_size, config.sequence_length + 1)
    tokens = torch.randint(config.vocabulary, shape, generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _linear(inputs: int, outputs: int, deviation: float = _INITIAL_DEVIATION) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.normal_(linear.weight, std=deviation)
    nn.init.zeros_(linear.bias)
    return linear


def _residual_linear(inputs: int, config: GPTConfig) -> nn.Linear:
    """A projection into the residual stream, scaled so that the stream's variance stays near 1."""
    return _linear(inputs, config.width, _INITIAL_DEVIATION / math.sqrt(2 * config.layers))
