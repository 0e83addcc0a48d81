"""What the model says of the small block that is measured."""

from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.clusters.device import Device
from diaulos.models.decoders.operations import decoder_operations
from diaulos.models.decoders.sizes import AttentionSizes, BlockSizes, DecoderSizes, NetworkSizes
from diaulos.models.operations import Workload
from diaulos.pricing.analytic.groups import Degrees, rank_groups
from diaulos.pricing.analytic.options import PRECISIONS, LayerOptions, Runtime
from diaulos.pricing.analytic.times import layer_seconds
from diaulos.pricing.calibration.measured import MeasuredBlock

_UNUSED = Link(bandwidth_bytes_per_second=1.0)
"""One device exchanges nothing."""


def block_seconds(device: Device, block: MeasuredBlock) -> float:
    """Seconds forward and backward of the block of `diaulos.models.gpt`, one kernel at a time."""
    group = DeviceGroup(
        name="one",
        nodes=1,
        devices_per_node=1,
        memory_bytes=device.memory_bytes,
        link=_UNUSED,
        device=device,
    )
    groups = rank_groups(Cluster(groups=(group,), link=_UNUSED), Degrees())
    options = LayerOptions(precision=PRECISIONS["fp32"], runtime=Runtime(fused=False))
    workload = Workload(microbatch_size=1, sequence_length=block.length, element_bytes=4)
    sizes = gpt_sizes(
        layers=1, width=block.width, heads=block.heads, vocabulary=1, positions=block.length
    )
    _, layer, *_ = decoder_operations(sizes, workload).layers
    return layer_seconds(layer.operations, options, groups).total


def gpt_sizes(
    *, layers: int, width: int, heads: int, vocabulary: int, positions: int
) -> DecoderSizes:
    """The GPT of `diaulos.models.gpt` in the words of the closed form."""
    attention = AttentionSizes(
        heads=heads,
        key_value_heads=heads,
        head_size=width // heads,
        input_bias=True,
        output_bias=True,
        rotary=False,
    )
    network = NetworkSizes(width=4 * width, gated=False, bias=True)
    return DecoderSizes(
        name="gpt",
        hidden=width,
        vocabulary=vocabulary,
        blocks=(BlockSizes(attention=attention, network=network),) * layers,
        tied=False,
        positions=positions,
        norm_bias=True,
    )
