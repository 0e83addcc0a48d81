"""A decoder-only transformer as layers: embedding, blocks, final norm, head and loss."""

from collections.abc import Iterator

from diaulos.models.decoders.attention import attention_parts
from diaulos.models.decoders.network import network_parts
from diaulos.models.decoders.sizes import BlockSizes, DecoderSizes
from diaulos.models.operations import (
    Border,
    Exchange,
    LayerOperations,
    MatrixProduct,
    MemoryBound,
    ModelLayer,
    ModelOperations,
    Parameters,
    Region,
    SavedTensor,
    Split,
    Traffic,
    Workload,
)

EMBEDDING, FINAL_NORM, HEAD, LOSS = "embedding", "final_norm", "head", "loss"

_LOSS_BYTES = 4
"""Scores are made fp32 before the softmax."""
_LOSS_FORWARD_BYTES = 36.0
_LOSS_BACKWARD_BYTES = 12.0
"""Moved for each score beside the score itself, in fp32 passes of four bytes: a cast writes 1; the
largest score reads 1; the difference, the exponential and the quotient read and write 1 each; the
sum and the target's score read 1 each. Backward: the product with the incoming gradient reads and
writes 1, a cast reads 1. This is what Megatron-LM's vocabulary-parallel cross entropy does, and
torch's own moves as much (18 forward and 30 backward)."""


def decoder_operations(model: DecoderSizes, workload: Workload) -> ModelOperations:
    """All layers of the model for one microbatch of this workload."""
    made = {block: _block(model, block, workload) for block in dict.fromkeys(model.blocks)}
    blocks = [made[block] for block in model.blocks]
    layers = [ModelLayer(name=EMBEDDING, operations=_embedding(model, workload))]
    layers += [
        ModelLayer(name=f"block_{index}", operations=block) for index, block in enumerate(blocks)
    ]
    if model.final_norm:
        layers.append(ModelLayer(name=FINAL_NORM, operations=_final_norm(model, workload)))
    layers.append(ModelLayer(name=HEAD, operations=_head(model, workload)))
    scores = workload.tokens * model.vocabulary
    layers.append(ModelLayer(name=LOSS, operations=loss_operations(scores, workload.element_bytes)))
    return ModelOperations(
        name=model.name,
        workload=workload,
        layers=tuple(layers),
        heads=model.heads,
        experts=model.experts,
    )


def _block(model: DecoderSizes, sizes: BlockSizes, workload: Workload) -> LayerOperations:
    size = _hidden_bytes(model, workload)
    parts = attention_parts(model, sizes.attention, workload)
    parts += network_parts(model, sizes.network, workload)
    halves = 1 if sizes.parallel else 2
    norms = sizes.norms * model.norm_parameters
    parameters = parts.parameters
    if norms:
        parameters += (Parameters(name="norms", count=norms, region=Region.WHOLE),)
    return LayerOperations(
        products=parts.products,
        attentions=parts.attentions,
        memory_bound=(*_norms_and_sums(model, sizes, size), *parts.memory_bound),
        saved=(*parts.saved, *_block_saved(model, sizes, workload)),
        parameters=parameters,
        exchanges=tuple(
            Exchange(border=border, bytes=size) for _ in range(halves) for border in Border
        ),
        dispatches=parts.dispatches,
        input_bytes=size,
        output_bytes=size,
    )


def _norms_and_sums(model: DecoderSizes, sizes: BlockSizes, size: float) -> Iterator[MemoryBound]:
    for index in range(sizes.norms):
        yield norm(f"norm_{index}", size, bias=model.norm_bias)
    for name in ("attention_sum", "network_sum"):
        yield residual_sum(name, size, dropout=model.dropout)


def norm(name: str, size_bytes: float, *, bias: bool) -> MemoryBound:
    """A norm over the hidden state: one kernel, but for RMSNorm without fusion.

    Backward the incoming gradient and the input are read twice, for the gradients of the input and
    of the weights. RMSNorm step by step: casts to fp32 and back, square, mean, two products.
    """
    fused = Traffic(forward_bytes=2 * size_bytes, backward_bytes=5 * size_bytes, backward_kernels=2)
    unfused = Traffic(
        forward_bytes=16 * size_bytes,
        backward_bytes=24 * size_bytes,
        forward_kernels=7,
        backward_kernels=10,
    )
    return MemoryBound(
        name=name, region=Region.WHOLE, fused=fused, unfused=fused if bias else unfused
    )


def residual_sum(name: str, size_bytes: float, *, dropout: bool) -> MemoryBound:
    """Dropout and sum forward; backward the masked gradient, and the sum of two branches' ones."""
    masked = size_bytes / 2 if dropout else 0.0
    backward = 3 * size_bytes + (2 * size_bytes + masked if dropout else 0.0)
    kernels = 2 if dropout else 1
    fused = Traffic(
        forward_bytes=3 * size_bytes + masked, backward_bytes=backward, backward_kernels=kernels
    )
    unfused = Traffic(
        forward_bytes=fused.forward_bytes + (2 * size_bytes if dropout else 0.0),
        backward_bytes=backward,
        forward_kernels=kernels,
        backward_kernels=kernels,
    )
    return MemoryBound(name=name, region=Region.WHOLE, fused=fused, unfused=unfused)


def _block_saved(
    model: DecoderSizes, sizes: BlockSizes, workload: Workload
) -> Iterator[SavedTensor]:
    """The inputs of norms, and the masks of the dropout before the two sums."""
    size = _hidden_bytes(model, workload)
    for index in range(1 if sizes.parallel else sizes.norms):
        yield SavedTensor(name=f"norm_{index}", bytes=size, region=Region.WHOLE)
    if model.dropout:
        mask = workload.tokens * model.hidden
        for name in ("attention_mask", "network_mask"):
            yield SavedTensor(name=name, bytes=mask, region=Region.WHOLE)


def _embedding(model: DecoderSizes, workload: Workload) -> LayerOperations:
    size = _hidden_bytes(model, workload)
    width = model.embedding_width or model.hidden
    table = width * model.vocabulary
    masked = workload.tokens * model.hidden if model.dropout else 0
    parameters = [Parameters(name="tokens", count=table, region=Region.SPLIT)]
    if model.positions is not None:
        count = model.positions * model.hidden
        parameters.append(Parameters(name="positions", count=count, region=Region.WHOLE))
    products = []
    if width != model.hidden:
        products.append(
            MatrixProduct(
                name="embedding_up", rows=workload.tokens, inner=width, columns=model.hidden,
                split=Split.NONE,
            )
        )  # fmt: skip
        count = width * model.hidden
        parameters.append(Parameters(name="projection", count=count, region=Region.WHOLE))
    rows = workload.tokens * width * workload.element_bytes
    passes = 2 * (model.positions is not None) + 2 * model.dropout
    lookup = Traffic(forward_bytes=2 * rows + passes * size + masked, backward_bytes=2 * rows)
    zeros = Traffic(forward_bytes=0, backward_bytes=table * workload.element_bytes,
                    forward_kernels=0)  # fmt: skip
    return LayerOperations(
        products=tuple(products),
        memory_bound=(
            MemoryBound(name="lookup", region=Region.WHOLE, fused=lookup, unfused=lookup),
            MemoryBound(name="gradient_zeros", region=Region.SPLIT, fused=zeros, unfused=zeros),
        ),
        saved=(SavedTensor(name="embedding_mask", bytes=masked, region=Region.WHOLE),),
        parameters=tuple(parameters),
        exchanges=(Exchange(border=Border.LEAVING, bytes=size),),
        input_bytes=0.0,
        output_bytes=size,
        recomputable=False,
    )


def _final_norm(model: DecoderSizes, workload: Workload) -> LayerOperations:
    size = _hidden_bytes(model, workload)
    count = model.norm_parameters
    return LayerOperations(
        memory_bound=(norm("final_norm", size, bias=model.norm_bias),),
        saved=(SavedTensor(name="final_norm", bytes=size, region=Region.WHOLE),),
        parameters=(Parameters(name="norm", count=count, region=Region.WHOLE),) if count else (),
        input_bytes=size,
        output_bytes=size,
        recomputable=False,
    )


def _head(model: DecoderSizes, workload: Workload) -> LayerOperations:
    """The projection to scores of the whole vocabulary."""
    size, tokens = _hidden_bytes(model, workload), workload.tokens
    width = model.embedding_width or model.hidden
    shapes = [("scores", width, model.vocabulary, Split.COLUMNS)]
    owner = EMBEDDING if model.tied else None
    count = width * model.vocabulary
    parameters = [Parameters(name="scores", count=count, region=Region.SPLIT, tied_to=owner)]
    if width != model.hidden:
        shapes.insert(0, ("head_down", model.hidden, width, Split.NONE))
        count = width * model.hidden
        parameters.append(Parameters(name="projection", count=count, region=Region.WHOLE))
    return LayerOperations(
        products=tuple(
            MatrixProduct(name=name, rows=tokens, inner=inner, columns=columns, split=split)
            for name, inner, columns, split in shapes
        ),
        saved=(SavedTensor(name="head_input", bytes=size, region=Region.WHOLE),),
        parameters=tuple(parameters),
        exchanges=(Exchange(border=Border.ENTERING, bytes=size),),
        input_bytes=size,
        output_bytes=tokens * model.vocabulary * workload.element_bytes,
        recomputable=False,
    )


def loss_operations(scores: int, element_bytes: float) -> LayerOperations:
    """The cross entropy of so many scores, with softmax in fp32."""
    traffic = Traffic(
        forward_bytes=scores * (_LOSS_FORWARD_BYTES + element_bytes),
        backward_bytes=scores * (_LOSS_BACKWARD_BYTES + element_bytes),
        forward_kernels=7,
        backward_kernels=2,
    )
    return LayerOperations(
        memory_bound=(
            MemoryBound(name="cross_entropy", region=Region.SPLIT, fused=traffic, unfused=traffic),
        ),
        saved=(SavedTensor(name="softmax", bytes=scores * _LOSS_BYTES, region=Region.SPLIT),),
        temporary=(
            SavedTensor(name="share_gradient", bytes=scores * _LOSS_BYTES, region=Region.SPLIT),
            SavedTensor(name="score_gradient", bytes=scores * _LOSS_BYTES, region=Region.SPLIT),
        ),
        input_bytes=scores * element_bytes,
        output_bytes=0.0,
        recomputable=False,
    )


def _hidden_bytes(model: DecoderSizes, workload: Workload) -> float:
    return workload.tokens * model.hidden * workload.element_bytes
