"""The operations of the feed-forward half of a block: one network, or experts."""

from diaulos.models.decoders.parts import LayerParts
from diaulos.models.decoders.sizes import DecoderSizes, ExpertSizes, NetworkSizes
from diaulos.models.operations import (
    Dispatch,
    MatrixProduct,
    MemoryBound,
    Parameters,
    Region,
    SavedTensor,
    Split,
    Traffic,
    Workload,
)

_ROUTER_BYTES = 4
"""Scores of experts are made in fp32."""


def network_parts(
    model: DecoderSizes, sizes: NetworkSizes | ExpertSizes, workload: Workload
) -> LayerParts:
    """What the network adds to its block."""
    width = model.hidden * workload.element_bytes
    entering = SavedTensor(name="network_input", bytes=workload.tokens * width, region=Region.WHOLE)
    parts = (
        _dense(model.hidden, sizes, workload)
        if isinstance(sizes, NetworkSizes)
        else _experts(model.hidden, sizes, workload)
    )
    return LayerParts(saved=(entering,)) + parts


def _dense(hidden: int, sizes: NetworkSizes, workload: Workload) -> LayerParts:
    tokens = workload.tokens
    up, down = _projections(hidden, sizes, tokens, count=1, experts=False)
    weights = hidden * (sizes.entering + sizes.width)
    biases = sizes.entering if sizes.bias else 0
    parameters = [Parameters(name="network", count=weights + biases, region=Region.SPLIT)]
    if sizes.bias:
        parameters.append(Parameters(name="network_bias", count=hidden, region=Region.WHOLE))
    return LayerParts(
        products=(up, down),
        memory_bound=(_activation("activation", sizes, tokens * workload.element_bytes),),
        saved=_inner_saved("network", sizes, tokens * workload.element_bytes),
        parameters=tuple(parameters),
    )


def _experts(hidden: int, sizes: ExpertSizes, workload: Workload) -> LayerParts:
    """A router, `active` copies of each token sent to experts and back, and the shared network."""
    tokens, element_bytes = workload.tokens, workload.element_bytes
    copies = tokens * sizes.active
    each = copies / sizes.count
    up, down = _projections(hidden, sizes.network, each, count=sizes.count, experts=True)
    router = MatrixProduct(
        name="router", rows=tokens, inner=hidden, columns=sizes.count, split=Split.NONE
    )
    weights = sizes.count * hidden * (sizes.network.entering + sizes.network.width)
    biases = sizes.count * (sizes.network.entering + hidden) if sizes.network.bias else 0
    routed = copies * hidden * element_bytes
    gate = hidden if sizes.shared_gate else 0
    own = LayerParts(
        products=(router, up, down),
        memory_bound=(
            _permutation((copies + tokens) * hidden * element_bytes),
            _activation("expert_activation", sizes.network, copies * element_bytes),
        ),
        saved=(
            SavedTensor(
                name="router", bytes=2 * tokens * sizes.count * _ROUTER_BYTES, region=Region.WHOLE
            ),
            SavedTensor(name="expert_inputs", bytes=routed, region=Region.WHOLE),
            *_inner_saved("experts", sizes.network, copies * element_bytes),
        ),
        parameters=(
            Parameters(name="router", count=hidden * sizes.count + gate, region=Region.WHOLE),
            Parameters(name="experts", count=weights + biases, region=Region.EXPERTS),
        ),
        dispatches=(Dispatch(bytes=routed),),
    )
    return own if sizes.shared is None else own + _dense(hidden, sizes.shared, workload)


def _projections(
    hidden: int, sizes: NetworkSizes, rows: float, *, count: int, experts: bool
) -> tuple[MatrixProduct, MatrixProduct]:
    prefix = "expert" if experts else "network"
    up = MatrixProduct(
        name=f"{prefix}_up", rows=rows, inner=hidden, columns=sizes.entering, count=count,
        split=Split.COLUMNS, experts=experts,
    )  # fmt: skip
    down = MatrixProduct(
        name=f"{prefix}_down", rows=rows, inner=sizes.width, columns=hidden, count=count,
        split=Split.INNER, experts=experts,
    )  # fmt: skip
    return up, down


def _activation(name: str, sizes: NetworkSizes, element_bytes: float) -> MemoryBound:
    """The activation function, with the gate's product and the gradient of the bias."""
    size = sizes.width * element_bytes
    if sizes.gated:
        fused = Traffic(forward_bytes=3 * size, backward_bytes=5 * size)
        unfused = Traffic(
            forward_bytes=5 * size, backward_bytes=9 * size, forward_kernels=2, backward_kernels=3
        )
    else:
        passes = 4 if sizes.bias else 3
        fused = Traffic(
            forward_bytes=2 * size, backward_bytes=passes * size, backward_kernels=passes - 2
        )
        unfused = fused
    return MemoryBound(name=name, region=Region.SPLIT, fused=fused, unfused=unfused)


def _permutation(size_bytes: float) -> MemoryBound:
    """Tokens copied to the order of their experts, and summed back; the same backward."""
    traffic = Traffic(
        forward_bytes=2 * size_bytes,
        backward_bytes=2 * size_bytes,
        forward_kernels=4,
        backward_kernels=4,
    )
    return MemoryBound(name="permutation", region=Region.WHOLE, fused=traffic, unfused=traffic)


def _inner_saved(prefix: str, sizes: NetworkSizes, element_bytes: float) -> tuple[SavedTensor, ...]:
    """What the projections up make, and what the activation function makes of it."""
    activated = SavedTensor(
        name=f"{prefix}_activated", bytes=sizes.width * element_bytes, region=Region.SPLIT
    )
    if sizes.relu:
        return (activated,)
    made = sizes.entering * element_bytes
    return (SavedTensor(name=f"{prefix}_up", bytes=made, region=Region.SPLIT), activated)
