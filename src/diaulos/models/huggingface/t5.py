"""T5: an encoder and a decoder, in one chain of layers.

The inputs are the encoder's tokens, the decoder's, and the encoder's padding where there is some.
The decoder's tokens pass through the encoder's stages, and what the encoder gives, which every
block of the decoder takes, through the decoder's. The bias of relative positions, which the first
block of each stack owns, is computed by every block of it: its weights are tied, since they are a
few numbers and the bias is as large as all scores of a layer.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from diaulos.models.decoders.operations import FINAL_NORM, HEAD
from diaulos.models.huggingface.layout import LayerLayout, block_class
from diaulos.models.huggingface.masks import both_ways
from diaulos.models.layers import Stream

_BIAS = "block.layer.0.SelfAttention.relative_attention_bias.weight"


def t5(config: PreTrainedConfig, template: PreTrainedModel) -> Iterator[LayerLayout]:
    """The layers of a T5: as the two stacks have them, what stands between them in one."""
    tokens = "shared" if template.all_tied_weights_keys else "encoder.embed_tokens"
    yield LayerLayout(name="encoder_embedding", make=_encoder_embedding, places={"tokens": tokens})
    yield from _blocks("encoder", config.num_layers)
    yield LayerLayout(
        name="decoder_embedding",
        make=_decoder_embedding,
        places={"norm": "encoder.final_layer_norm", "tokens": "decoder.embed_tokens"},
    )
    yield from _blocks("decoder", config.num_decoder_layers)
    yield LayerLayout(
        name=FINAL_NORM, make=_final_norm, places={"norm": "decoder.final_layer_norm"}
    )
    yield LayerLayout(name=HEAD, make=partial(_head, config), places={"scores": "lm_head"})


def shared_biases(config: PreTrainedConfig) -> Mapping[str, str]:
    """The weights of the blocks' biases, tied to those of the first block of their stack."""
    stacks = {"encoder": config.num_layers, "decoder": config.num_decoder_layers}
    return {
        f"{stack}_block_{index}.{_BIAS}": f"{stack}_block_0.{_BIAS}"
        for stack, blocks in stacks.items()
        for index in range(1, blocks)
    }


def _blocks(stack: str, count: int) -> Iterator[LayerLayout]:
    make = {"encoder": _encoder_block, "decoder": _decoder_block}[stack]
    for index in range(count):
        yield LayerLayout(
            name=f"{stack}_block_{index}",
            make=partial(make, index),
            places={"block": f"{stack}.block.{index}"},
        )


class EncoderEmbedding(nn.Module):
    """The encoder's tokens to vectors."""

    def __init__(self, tokens: nn.Module, dropout: nn.Module) -> None:
        super().__init__()
        self.tokens = tokens
        self.dropout = dropout

    def forward(self, tokens: Tensor, decoder_tokens: Tensor, *padding: Tensor) -> Stream:
        """The hidden state, and what is passed on."""
        return (self.dropout(self.tokens(tokens)), decoder_tokens, *padding)


def _encoder_embedding(template: PreTrainedModel) -> nn.Module:
    tokens = template.get_submodule("encoder.embed_tokens")
    return EncoderEmbedding(tokens, template.get_submodule("encoder.dropout"))


class EncoderBlock(nn.Module):
    """A block that attends both ways, but not to padding."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, hidden: Tensor, decoder_tokens: Tensor, *padding: Tensor) -> Stream:
        """The next hidden state, and what is passed on."""
        mask = both_ways(*padding) if padding else None
        return (self.block(hidden, mask)[0], decoder_tokens, *padding)


def _encoder_block(index: int, template: PreTrainedModel) -> nn.Module:
    return EncoderBlock(_t5_block(template, "encoder", index))


def _t5_block(template: PreTrainedModel, stack: str, index: int) -> nn.Module:
    config = template.get_submodule(stack).config
    made = block_class(template, f"{stack}.block")
    return made(config, has_relative_attention_bias=True, layer_idx=index)


class DecoderEmbedding(nn.Module):
    """The norm after the encoder, and the decoder's tokens to vectors."""

    def __init__(self, tokens: nn.Module, norm: nn.Module, dropout: nn.Module) -> None:
        super().__init__()
        self.tokens = tokens
        self.norm = norm
        self.dropout = dropout

    def forward(self, hidden: Tensor, decoder_tokens: Tensor, *padding: Tensor) -> Stream:
        """The decoder's hidden state, what the encoder gives, and the padding."""
        encoded = self.dropout(self.norm(hidden))
        return (self.dropout(self.tokens(decoder_tokens)), encoded, *padding)


def _decoder_embedding(template: PreTrainedModel) -> nn.Module:
    names = ("decoder.embed_tokens", "encoder.final_layer_norm", "encoder.dropout")
    return DecoderEmbedding(*map(template.get_submodule, names))


class DecoderBlock(nn.Module):
    """A block that attends to what stands before, and to what the encoder gives."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, hidden: Tensor, encoded: Tensor, *padding: Tensor) -> Stream:
        """The next hidden state, and what is passed on."""
        mask = both_ways(*padding) if padding else None
        hidden = self.block(hidden, encoder_hidden_states=encoded, encoder_attention_mask=mask)[0]
        return (hidden, encoded, *padding)


def _decoder_block(index: int, template: PreTrainedModel) -> nn.Module:
    return DecoderBlock(_t5_block(template, "decoder", index))


class FinalNorm(nn.Module):
    """The norm after the decoder."""

    def __init__(self, norm: nn.Module, dropout: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = dropout

    def forward(self, hidden: Tensor, *_: Tensor) -> Tensor:
        """The decoder's hidden state alone, normed."""
        normed: Tensor = self.dropout(self.norm(hidden))
        return normed


def _final_norm(template: PreTrainedModel) -> nn.Module:
    names = ("decoder.final_layer_norm", "decoder.dropout")
    return FinalNorm(*map(template.get_submodule, names))


class Head(nn.Module):
    """The projection to the scores of tokens."""

    def __init__(self, scores: nn.Module, scale: float) -> None:
        super().__init__()
        self.scores = scores
        self.scale = scale

    def forward(self, hidden: Tensor) -> Tensor:
        """[samples, positions, width] to [samples, positions, vocabulary]."""
        scores: Tensor = self.scores(hidden if self.scale == 1 else hidden * self.scale)
        return scores


def _head(config: PreTrainedConfig, template: PreTrainedModel) -> nn.Module:
    scaled = getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)
    return Head(template.get_submodule("lm_head"), config.d_model**-0.5 if scaled else 1.0)
