"""A decoder-only transformer from a few sizes, as GPT-2 and GPT-3 are made."""

from diaulos.errors import InputError
from diaulos.models.decoders.sizes import (
    AttentionSizes,
    BlockSizes,
    DecoderSizes,
    ExpertSizes,
    NetworkSizes,
)


def gpt_sizes(
    *,
    hidden: int,
    layers: int,
    heads: int,
    vocabulary: int,
    positions: int,
    key_value_heads: int | None = None,
    width: int | None = None,
    experts: int | None = None,
    active_experts: int = 2,
    name: str = "gpt",
) -> DecoderSizes:
    """Learned positions, LayerNorm, biases, dropout, a tied head and a network without a gate.

    `width` is that of the network, or of each expert; 4 times `hidden` if not given.
    """
    if layers < 1:
        raise InputError(f"layers is {layers}", "it must be at least 1")
    if heads < 1 or hidden % heads:
        raise InputError(
            f"heads is {heads} and hidden is {hidden}", "hidden must be a multiple of heads"
        )
    network = NetworkSizes(width=4 * hidden if width is None else width, gated=False, bias=True)
    block = BlockSizes(
        attention=AttentionSizes(
            heads=heads,
            key_value_heads=heads if key_value_heads is None else key_value_heads,
            head_size=hidden // heads,
            input_bias=True,
            output_bias=True,
            rotary=False,
        ),
        network=network
        if experts is None
        else ExpertSizes(count=experts, active=active_experts, network=network),
    )
    return DecoderSizes(
        name=name,
        hidden=hidden,
        vocabulary=vocabulary,
        blocks=(block,) * layers,
        tied=True,
        positions=positions,
        norm_bias=True,
        dropout=True,
    )
