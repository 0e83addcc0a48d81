"""The operations of the attention half of a block, from its norm to the residual sum excluded."""

from collections.abc import Iterator

from diaulos.models.decoders.parts import LayerParts
from diaulos.models.decoders.sizes import AttentionSizes, DecoderSizes, LatentAttentionSizes
from diaulos.models.operations import (
    Attention,
    MatrixProduct,
    MemoryBound,
    Parameters,
    Region,
    SavedTensor,
    Split,
    Traffic,
    Workload,
)


def attention_parts(
    model: DecoderSizes, sizes: AttentionSizes | LatentAttentionSizes, workload: Workload
) -> LayerParts:
    """What attention adds to its block."""
    if isinstance(sizes, AttentionSizes):
        return _multi_head(model, sizes, workload)
    return _latent(model, sizes, workload)


def _multi_head(model: DecoderSizes, sizes: AttentionSizes, workload: Workload) -> LayerParts:
    hidden, tokens = model.hidden, workload.tokens
    queries = sizes.heads * sizes.head_size
    keys = sizes.key_value_heads * sizes.head_size
    columns = queries + 2 * keys
    return LayerParts(
        products=(
            MatrixProduct(
                name="query_key_value", rows=tokens, inner=hidden, columns=columns,
                split=Split.COLUMNS,
            ),
            MatrixProduct(
                name="attention_output", rows=tokens, inner=queries, columns=hidden,
                split=Split.INNER,
            ),
        ),
        attentions=(_kernel(model, sizes, workload),),
        memory_bound=tuple(_multi_head_traffic(sizes, columns, workload)),
        saved=tuple(_multi_head_saved(model, sizes, columns, workload)),
        parameters=tuple(_multi_head_parameters(sizes, hidden, columns)),
    )  # fmt: skip


def _kernel(model: DecoderSizes, sizes: AttentionSizes, workload: Workload) -> Attention:
    return Attention(
        samples=workload.microbatch_size,
        heads=sizes.heads,
        key_value_heads=sizes.key_value_heads,
        queries=workload.sequence_length,
        keys=workload.sequence_length,
        score_size=sizes.head_size,
        value_size=sizes.head_size,
        window=sizes.window,
        dropout=model.dropout,
    )


def _multi_head_traffic(
    sizes: AttentionSizes, columns: int, workload: Workload
) -> Iterator[MemoryBound]:
    """Passes over queries, keys and values: in and out of the layout that the kernel wants."""
    element = workload.tokens * workload.element_bytes
    rotated = (sizes.heads + sizes.key_value_heads) * sizes.head_size * element
    yield layout("attention_layout", columns * element, bias=sizes.input_bias)
    if sizes.query_key_norm:
        yield MemoryBound(
            name="query_key_norm",
            region=Region.SPLIT,
            fused=Traffic(forward_bytes=2 * rotated, backward_bytes=5 * rotated),
            unfused=Traffic(
                forward_bytes=16 * rotated,
                backward_bytes=24 * rotated,
                forward_kernels=7,
                backward_kernels=10,
            ),
        )
    if sizes.rotary:
        yield rotary(rotated)
    yield layout("context_layout", sizes.heads * sizes.head_size * element, bias=False)


def layout(name: str, size_bytes: float, *, bias: bool) -> MemoryBound:
    """One copy forward and one backward, and where there is a bias a pass for its gradient."""
    traffic = Traffic(
        forward_bytes=2 * size_bytes,
        backward_bytes=(3 if bias else 2) * size_bytes,
        backward_kernels=2 if bias else 1,
    )
    return MemoryBound(name=name, region=Region.SPLIT, fused=traffic, unfused=traffic)


def rotary(size_bytes: float) -> MemoryBound:
    """Rotation of queries and keys by their positions; apart in fp32, with casts before and after.

    A cast reads 1 and writes 2 of the size, the product reads and writes 2 each, and back.
    """
    unfused = Traffic(
        forward_bytes=10 * size_bytes,
        backward_bytes=10 * size_bytes,
        forward_kernels=6,
        backward_kernels=6,
    )
    fused = Traffic(forward_bytes=2 * size_bytes, backward_bytes=2 * size_bytes)
    return MemoryBound(name="rotary", region=Region.SPLIT, fused=fused, unfused=unfused)


def _multi_head_saved(
    model: DecoderSizes, sizes: AttentionSizes, columns: int, workload: Workload
) -> Iterator[SavedTensor]:
    element = workload.tokens * workload.element_bytes
    queries = sizes.heads * sizes.head_size
    yield SavedTensor(name="attention_input", bytes=model.hidden * element, region=Region.WHOLE)
    yield SavedTensor(name="query_key_value", bytes=columns * element, region=Region.SPLIT)
    if sizes.query_key_norm:
        normed = (sizes.heads + sizes.key_value_heads) * sizes.head_size
        yield SavedTensor(name="query_key_norm", bytes=normed * element, region=Region.SPLIT)
    yield SavedTensor(name="context", bytes=queries * element, region=Region.SPLIT)


def _multi_head_parameters(
    sizes: AttentionSizes, hidden: int, columns: int
) -> Iterator[Parameters]:
    queries = sizes.heads * sizes.head_size
    weights = hidden * columns + queries * hidden + (columns if sizes.input_bias else 0)
    yield Parameters(name="attention", count=weights, region=Region.SPLIT)
    whole = hidden if sizes.output_bias else 0
    whole += 2 * sizes.head_size if sizes.query_key_norm else 0
    if whole:
        yield Parameters(name="attention_whole", count=whole, region=Region.WHOLE)


def _latent(model: DecoderSizes, sizes: LatentAttentionSizes, workload: Workload) -> LayerParts:
    element = workload.tokens * workload.element_bytes
    kernel = Attention(
        samples=workload.microbatch_size,
        heads=sizes.heads,
        key_value_heads=sizes.heads,
        queries=workload.sequence_length,
        keys=workload.sequence_length,
        score_size=sizes.content_size + sizes.rotary_size,
        value_size=sizes.value_size,
        dropout=model.dropout,
    )
    queries = sizes.heads * kernel.score_size
    values = sizes.heads * sizes.value_size
    ranks = (sizes.query_rank or 0) + sizes.key_value_rank
    saved = (
        ("attention_input", model.hidden, Region.WHOLE),
        ("latents", 2 * ranks + sizes.rotary_size, Region.WHOLE),
        ("query_key_value", 2 * queries + values, Region.SPLIT),
        ("context", values, Region.SPLIT),
    )
    latent_norm = Traffic(forward_bytes=2 * ranks * element, backward_bytes=5 * ranks * element)
    return LayerParts(
        products=tuple(_latent_products(model, sizes, workload.tokens)),
        attentions=(kernel,),
        memory_bound=(
            MemoryBound(
                name="latent_norms", region=Region.WHOLE, fused=latent_norm, unfused=latent_norm
            ),
            layout("attention_layout", (2 * queries + values) * element, bias=False),
            rotary((sizes.heads + 1) * sizes.rotary_size * element),
            layout("context_layout", values * element, bias=False),
        ),
        saved=tuple(
            SavedTensor(name=name, bytes=size * element, region=region)
            for name, size, region in saved
        ),
        parameters=tuple(_latent_parameters(model, sizes, workload.tokens)),
    )


def _latent_products(
    model: DecoderSizes, sizes: LatentAttentionSizes, tokens: int
) -> Iterator[MatrixProduct]:
    """Down to the latents, up to the heads, and out."""
    heads, hidden, rank = sizes.heads, model.hidden, sizes.query_rank
    queries = heads * (sizes.content_size + sizes.rotary_size)
    shapes = [("key_value_down", hidden, sizes.key_value_rank + sizes.rotary_size, Split.NONE)]
    if rank is None:
        shapes.append(("query", hidden, queries, Split.COLUMNS))
    else:
        shapes.append(("query_down", hidden, rank, Split.NONE))
        shapes.append(("query_up", rank, queries, Split.COLUMNS))
    columns = heads * (sizes.content_size + sizes.value_size)
    shapes.append(("key_value_up", sizes.key_value_rank, columns, Split.COLUMNS))
    shapes.append(("attention_output", heads * sizes.value_size, hidden, Split.INNER))
    for name, inner, outer, split in shapes:
        yield MatrixProduct(name=name, rows=tokens, inner=inner, columns=outer, split=split)


def _latent_parameters(
    model: DecoderSizes, sizes: LatentAttentionSizes, tokens: int
) -> Iterator[Parameters]:
    split, whole = 0, (sizes.query_rank or 0) + sizes.key_value_rank  # the norms of the latents
    for product in _latent_products(model, sizes, tokens):
        if product.split is Split.NONE:
            whole += product.inner * product.columns
        else:
            split += product.inner * product.columns
    if sizes.bias:
        downs = sizes.key_value_rank + sizes.rotary_size + (sizes.query_rank or 0)
        whole += downs + model.hidden
    yield Parameters(name="attention", count=split, region=Region.SPLIT)
    yield Parameters(name="latents", count=whole, region=Region.WHOLE)
