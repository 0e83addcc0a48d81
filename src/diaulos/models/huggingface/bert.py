"""BERT and encoders like it, with the head of masked language modelling."""

from collections.abc import Iterator
from functools import partial

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from diaulos.models.decoders.operations import EMBEDDING, HEAD
from diaulos.models.huggingface.layout import LayerLayout, block_class, inner_of
from diaulos.models.huggingface.masks import both_ways
from diaulos.models.layers import Stream


def bert(config: PreTrainedConfig, _: PreTrainedModel) -> Iterator[LayerLayout]:
    """The layers of a BERT: embeddings, blocks, the head's transform, the scores."""
    yield LayerLayout(name=EMBEDDING, make=_embedding, places={"embeddings": "bert.embeddings"})
    for index in range(config.num_hidden_layers):
        yield LayerLayout(
            name=f"block_{index}",
            make=partial(_block, config, index),
            places={"block": f"bert.encoder.layer.{index}"},
        )
    transform = "cls.predictions.transform"
    yield LayerLayout(
        name="head_transform", make=partial(inner_of, transform), places={"inner": transform}
    )
    yield LayerLayout(
        name=HEAD,
        make=partial(inner_of, "cls.predictions.decoder"),
        places={"inner.bias": "cls.predictions.bias", "inner": "cls.predictions.decoder"},
    )


class Embedding(nn.Module):
    """Tokens to vectors: of the token, its position and its kind, all of the first kind."""

    def __init__(self, embeddings: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings

    def forward(self, tokens: Tensor, padding: Tensor | None = None) -> Stream:
        """The hidden state, and the padding where there is some."""
        hidden = self.embeddings(tokens)
        return (hidden,) if padding is None else (hidden, padding)


def _embedding(template: PreTrainedModel) -> nn.Module:
    return Embedding(template.get_submodule("bert.embeddings"))


class Block(nn.Module):
    """A block that attends both ways, but not to padding."""

    def __init__(self, block: nn.Module, *, is_last: bool) -> None:
        super().__init__()
        self.block = block
        self.is_last = is_last

    def forward(self, hidden: Tensor, padding: Tensor | None = None) -> Stream:
        """The next hidden state, and the padding where there is some and who needs it."""
        hidden = self.block(hidden, both_ways(padding))
        return (hidden,) if padding is None or self.is_last else (hidden, padding)


def _block(config: PreTrainedConfig, index: int, template: PreTrainedModel) -> nn.Module:
    made = block_class(template, "bert.encoder.layer")(config, index)
    return Block(made, is_last=index == config.num_hidden_layers - 1)
