"""The families of decoder-only transformers: which keys of their configs say which size.

Defaults are those of transformers, which leaves out of a file what equals them.
"""

from collections.abc import Callable

from diaulos.models.decoders.keys import Keys
from diaulos.models.decoders.sizes import (
    AttentionSizes,
    BlockSizes,
    DecoderSizes,
    ExpertSizes,
    LatentAttentionSizes,
    NetworkSizes,
)

Network = NetworkSizes | ExpertSizes


def gpt2(keys: Keys) -> DecoderSizes:
    """GPT-2: learned positions, LayerNorm, biases, a network of four times the width."""
    hidden = keys.count("n_embd")
    block = BlockSizes(
        attention=_plain_attention(keys, "n_embd", "n_head", bias=True, rotary=False),
        network=NetworkSizes(width=keys.count("n_inner", 4 * hidden), gated=False, bias=True),
    )
    return DecoderSizes(
        name=keys.name,
        hidden=hidden,
        vocabulary=keys.count("vocab_size"),
        blocks=(block,) * keys.count("n_layer"),
        tied=keys.flag("tie_word_embeddings", default=True),
        positions=keys.count("n_positions"),
        norm_bias=True,
        dropout=keys.rate("resid_pdrop", 0.1) > 0,
    )


def gpt_neox(keys: Keys) -> DecoderSizes:
    """GPT-NeoX and Pythia: attention and network side by side, LayerNorm, biases."""
    bias = keys.flag("attention_bias", default=True)
    block = BlockSizes(
        attention=_plain_attention(
            keys, "hidden_size", "num_attention_heads", bias=bias, rotary=True
        ),
        network=NetworkSizes(width=keys.count("intermediate_size"), gated=False, bias=True),
        parallel=keys.flag("use_parallel_residual", default=True),
    )
    return DecoderSizes(
        name=keys.name,
        hidden=keys.count("hidden_size"),
        vocabulary=keys.count("vocab_size"),
        blocks=(block,) * keys.count("num_hidden_layers"),
        tied=keys.flag("tie_word_embeddings", default=False),
        norm_bias=True,
        dropout=keys.rate("hidden_dropout", 0.0) > 0,
    )


def opt(keys: Keys) -> DecoderSizes:
    """OPT: learned positions (two more than said), LayerNorm, biases, no gate."""
    hidden = keys.count("hidden_size")
    bias = keys.flag("enable_bias", default=True)
    norm_before = keys.flag("do_layer_norm_before", default=True)
    width = keys.count("word_embed_proj_dim", hidden)
    block = BlockSizes(
        attention=_plain_attention(
            keys, "hidden_size", "num_attention_heads", bias=bias, rotary=False
        ),
        network=NetworkSizes(
            width=keys.count("ffn_dim"), gated=False, bias=bias, relu=_has_relu(keys)
        ),
    )
    return DecoderSizes(
        name=keys.name,
        hidden=hidden,
        vocabulary=keys.count("vocab_size"),
        blocks=(block,) * keys.count("num_hidden_layers"),
        tied=keys.flag("tie_word_embeddings", default=True),
        positions=keys.count("max_position_embeddings") + 2,
        norm_bias=True,
        norm_weights=keys.flag("layer_norm_elementwise_affine", default=True),
        final_norm=norm_before and not keys.flag("_remove_final_layer_norm", default=False),
        dropout=keys.rate("dropout", 0.1) > 0,
        embedding_width=None if width == hidden else width,
    )


def _has_relu(keys: Keys) -> bool:
    """Of OPT, which has it unless the file says otherwise."""
    return "activation_function" not in keys or keys.text("activation_function") == "relu"


def llama(keys: Keys) -> DecoderSizes:
    """Llama 1 to 3: RMSNorm, rotary positions, a gated network."""
    bias = keys.flag("attention_bias", default=False)
    attention = _attention(keys, input_bias=bias, output_bias=bias)
    block = BlockSizes(
        attention=attention, network=_gated(keys, bias=keys.flag("mlp_bias", default=False))
    )
    return _rms_decoder(keys, lambda _: block)


def llama4(keys: Keys) -> DecoderSizes:
    """Llama 4: every so many blocks has experts and one that all tokens take.

    Blocks with rotary positions see chunks of the sequence, priced as a window of that length.
    """
    step = keys.count("interleave_moe_layer_step", 1)
    layers = keys.count("num_hidden_layers")
    sparse = keys.numbers("moe_layers") or tuple(range(step - 1, layers, step))
    full = {index for index, rotary in enumerate(keys.numbers("no_rope_layers")) if not rotary}
    chunk = keys.optional("attention_chunk_size")
    network = NetworkSizes(width=keys.count("intermediate_size"))
    experts = ExpertSizes(
        count=keys.count("num_local_experts"),
        active=keys.count("num_experts_per_tok"),
        network=network,
        shared=network,
    )
    dense = NetworkSizes(width=keys.count("intermediate_size_mlp"))

    def block(index: int) -> BlockSizes:
        window = None if index in full or (not full and index % 4 == 3) else chunk
        return BlockSizes(
            attention=_attention(keys, window=window),
            network=experts if index in sparse else dense,
        )

    return _rms_decoder(keys, block)


def mistral(keys: Keys) -> DecoderSizes:
    """Mistral: as Llama, with a window of attention in its first version."""
    attention = _attention(keys, window=keys.optional("sliding_window"))
    block = BlockSizes(attention=attention, network=_gated(keys))
    return _rms_decoder(keys, lambda _: block)


def mixtral(keys: Keys) -> DecoderSizes:
    """Mixtral: as Mistral, with experts in all blocks."""
    experts = ExpertSizes(
        count=keys.count("num_local_experts"),
        active=keys.count("num_experts_per_tok"),
        network=_gated(keys),
    )
    attention = _attention(keys, window=keys.optional("sliding_window"))
    block = BlockSizes(attention=attention, network=experts)
    return _rms_decoder(keys, lambda _: block)


def qwen2(keys: Keys) -> DecoderSizes:
    """Qwen 2 and 2.5: as Llama, with biases of queries, keys and values."""
    return _rms_decoder(
        keys,
        lambda index: BlockSizes(
            attention=_attention(keys, input_bias=True, window=_late_window(keys, index)),
            network=_gated(keys),
        ),
    )


def qwen2_moe(keys: Keys) -> DecoderSizes:
    """Qwen 1.5 and 2 with experts, and a network that all tokens take, weighed by a gate."""
    experts = ExpertSizes(
        count=keys.count("num_experts"),
        active=keys.count("num_experts_per_tok"),
        network=NetworkSizes(width=keys.count("moe_intermediate_size")),
        shared=NetworkSizes(width=keys.count("shared_expert_intermediate_size")),
        shared_gate=True,
    )
    return _rms_decoder(
        keys,
        lambda index: BlockSizes(
            attention=_attention(
                keys,
                input_bias=keys.flag("qkv_bias", default=True),
                window=_late_window(keys, index),
            ),
            network=experts if _is_sparse(keys, index) else _gated(keys),
        ),
    )


def qwen3(keys: Keys) -> DecoderSizes:
    """Qwen 3: as Llama, with norms of queries and keys."""
    return _rms_decoder(
        keys,
        lambda index: BlockSizes(attention=_qwen3_attention(keys, index), network=_gated(keys)),
    )


def qwen3_moe(keys: Keys) -> DecoderSizes:
    """Qwen 3 with experts."""
    experts = ExpertSizes(
        count=keys.count("num_experts"),
        active=keys.count("num_experts_per_tok"),
        network=NetworkSizes(width=keys.count("moe_intermediate_size")),
    )
    return _rms_decoder(
        keys,
        lambda index: BlockSizes(
            attention=_qwen3_attention(keys, index),
            network=experts if _is_sparse(keys, index) else _gated(keys),
        ),
    )


def gemma(keys: Keys) -> DecoderSizes:
    """Gemma 1: as Llama, with heads of a size of their own and a tied head."""
    block = BlockSizes(attention=_attention(keys), network=_gated(keys))
    return _rms_decoder(keys, lambda _: block, tied=True)


def gemma2(keys: Keys) -> DecoderSizes:
    """Gemma 2: four norms a block; every second block sees a window."""
    return _gemma_blocks(keys, pattern=2, query_key_norm=False)


def gemma3(keys: Keys) -> DecoderSizes:
    """Gemma 3's text model: four norms a block and those of queries and keys; windows."""
    pattern = keys.count("sliding_window_pattern", 6)
    return _gemma_blocks(keys, pattern=pattern, query_key_norm=True)


def deepseek(keys: Keys) -> DecoderSizes:
    """DeepSeek-V2 and V3: latent attention; experts but for the first blocks.

    The layers that predict further tokens (`num_nextn_predict_layers`) are not part of it, as they
    are not of transformers' model.
    """
    bias = keys.flag("attention_bias", default=False)
    attention = LatentAttentionSizes(
        heads=keys.count("num_attention_heads"),
        query_rank=keys.optional("q_lora_rank"),
        key_value_rank=keys.count("kv_lora_rank"),
        content_size=keys.count("qk_nope_head_dim"),
        rotary_size=keys.count("qk_rope_head_dim"),
        value_size=keys.count("v_head_dim"),
        bias=bias,
    )
    width = keys.count("moe_intermediate_size")
    shared = keys.number("n_shared_experts", 0)
    experts = ExpertSizes(
        count=keys.count("n_routed_experts"),
        active=keys.count("num_experts_per_tok"),
        network=NetworkSizes(width=width),
        shared=NetworkSizes(width=width * shared) if shared else None,
    )
    first = keys.number("first_k_dense_replace", 0)

    def block(index: int) -> BlockSizes:
        return BlockSizes(attention=attention, network=_gated(keys) if index < first else experts)

    return _rms_decoder(keys, block)


def _plain_attention(
    keys: Keys, hidden_key: str, heads_key: str, *, bias: bool, rotary: bool
) -> AttentionSizes:
    """As many key-value heads as heads, which share the hidden size, and one bias or none."""
    heads = keys.count(heads_key)
    return AttentionSizes(
        heads=heads,
        key_value_heads=heads,
        head_size=keys.share(hidden_key, heads_key),
        input_bias=bias,
        output_bias=bias,
        rotary=rotary,
    )


def _attention(
    keys: Keys,
    *,
    input_bias: bool = False,
    output_bias: bool = False,
    query_key_norm: bool = False,
    window: int | None = None,
) -> AttentionSizes:
    heads = keys.count("num_attention_heads")
    groups = keys.count("num_key_value_heads", heads)
    if heads % groups:
        raise keys.value("num_key_value_heads").error(
            f"is {groups} and num_attention_heads is {heads}",
            "num_attention_heads must be a multiple of num_key_value_heads",
        )
    size = keys.optional("head_dim") or keys.share("hidden_size", "num_attention_heads")
    return AttentionSizes(
        heads=heads,
        key_value_heads=groups,
        head_size=size,
        input_bias=input_bias,
        output_bias=output_bias,
        query_key_norm=query_key_norm,
        window=window,
    )


def _qwen3_attention(keys: Keys, index: int) -> AttentionSizes:
    bias = keys.flag("attention_bias", default=False)
    return _attention(
        keys,
        input_bias=bias,
        output_bias=bias,
        query_key_norm=True,
        window=_late_window(keys, index),
    )


def _gated(keys: Keys, *, bias: bool = False) -> NetworkSizes:
    return NetworkSizes(width=keys.count("intermediate_size"), bias=bias)


def _late_window(keys: Keys, index: int) -> int | None:
    """Qwen's window, which only blocks from `max_window_layers` on have, and only if asked for."""
    if not keys.flag("use_sliding_window", default=False):
        return None
    first = keys.number("max_window_layers", 28)
    return keys.optional("sliding_window") if index >= first else None


def _is_sparse(keys: Keys, index: int) -> bool:
    """Whether a block of Qwen has experts."""
    step = keys.count("decoder_sparse_step", 1)
    return index not in keys.numbers("mlp_only_layers") and (index + 1) % step == 0


def _gemma_blocks(keys: Keys, *, pattern: int, query_key_norm: bool) -> DecoderSizes:
    """Blocks with four norms; all but each `pattern`-th see a window, or what the file says."""
    kinds = keys.texts("layer_types")
    window = keys.optional("sliding_window")

    def block(index: int) -> BlockSizes:
        local = kinds[index] == "sliding_attention" if kinds else (index + 1) % pattern > 0
        attention = _attention(
            keys, query_key_norm=query_key_norm, window=window if local else None
        )
        return BlockSizes(attention=attention, network=_gated(keys), norms=4)

    if kinds and len(kinds) < keys.count("num_hidden_layers"):
        raise keys.value("layer_types").error(
            f"has {len(kinds)} entries", "it has one for each of num_hidden_layers"
        )
    return _rms_decoder(keys, block, tied=True)


def _rms_decoder(
    keys: Keys, block: Callable[[int], BlockSizes], *, tied: bool = False
) -> DecoderSizes:
    """A decoder with RMSNorm and rotary positions; `tied` where the file does not say."""
    return DecoderSizes(
        name=keys.name,
        hidden=keys.count("hidden_size"),
        vocabulary=keys.count("vocab_size"),
        blocks=tuple(block(index) for index in range(keys.count("num_hidden_layers"))),
        tied=keys.flag("tie_word_embeddings", default=tied),
    )
