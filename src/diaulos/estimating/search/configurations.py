"""All configurations that a search looks at: every way to spread a model over all devices.

Left out are those that others make needless. Tensor-parallel groups stay in a node and share what
they do not split by positions (sequence parallelism), which costs nothing. Where there are
replicas, they spread at least the optimizer. Gradients and parameters are spread in one stage
only, since a pipeline would sum or gather them for each microbatch. Sequences are split over
devices from 16,384 tokens on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from diaulos.clusters.cluster import Cluster
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.search.demand import Demand
from diaulos.models.operations import ModelOperations
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.groups import Degrees
from diaulos.pricing.analytic.options import Recompute

_LONG_SEQUENCE = 16_384
_MOST_CONTEXT = 16
_LARGEST_MICROBATCH = 16
_VIRTUAL_STAGES = (2, 3, 4, 5, 6, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What layers take their time by: the same for all configurations that only stack differently.

    Its members differ in stages, replicas, schedule and what is spread over replicas.
    """

    tensor: int
    context: int
    expert: int
    microbatch_size: int
    recompute: Recompute


def families(operations: ModelOperations, cluster: Cluster, demand: Demand) -> Iterator[Family]:
    """All of them that have members."""
    sizes = [2**i for i in range(_LARGEST_MICROBATCH.bit_length())]
    degrees = product(
        _tensor_degrees(operations, cluster),
        _context_degrees(cluster, demand),
        _expert_degrees(operations, cluster, demand),
        [size for size in sizes if size <= demand.batch_size],
        demand.recompute,
    )
    for tensor, context, expert, size, recompute in degrees:
        if cluster.devices % (tensor * context) == 0:
            yield Family(
                tensor=tensor,
                context=context,
                expert=expert,
                microbatch_size=size,
                recompute=recompute,
            )


def members(
    family: Family, operations: ModelOperations, cluster: Cluster, demand: Demand
) -> Iterator[Configuration]:
    """The configurations of a family."""
    blocks = sum(layer.operations.recomputable for layer in operations.layers)
    rest = cluster.devices // (family.tensor * family.context)
    for pipeline in _divisors(rest, most=blocks):
        data = rest // pipeline
        fits = (data * family.context) % family.expert == 0
        if not fits or demand.batch_size % (data * family.microbatch_size):
            continue
        degrees = Degrees(
            tensor=family.tensor,
            context=family.context,
            data=data,
            pipeline=pipeline,
            expert=family.expert,
        )
        microbatches = demand.batch_size // (data * family.microbatch_size)
        for sharding in _shardings(degrees, demand):
            for schedule, virtual_stages in _schedules(pipeline, blocks, microbatches, demand):
                if schedule != "2bw" or sharding < Sharding.PARAMETERS:
                    yield Configuration(
                        degrees=degrees,
                        microbatch_size=family.microbatch_size,
                        batch_size=demand.batch_size,
                        sequence_length=demand.sequence_length,
                        virtual_stages=virtual_stages,
                        schedule=schedule,
                        recompute=family.recompute,
                        sequence_parallel=family.tensor > 1,
                        sharding=sharding,
                        attention=demand.attention,
                        precision=demand.precision,
                        runtime=demand.runtime,
                    )


def _tensor_degrees(operations: ModelOperations, cluster: Cluster) -> list[int]:
    node = cluster.groups[0].devices_per_node
    return [degree for degree in _divisors(operations.heads, most=node) if node % degree == 0]


def _context_degrees(cluster: Cluster, demand: Demand) -> list[int]:
    if demand.sequence_length < _LONG_SEQUENCE or not demand.splits_sequences:
        return [1]
    most = min(_MOST_CONTEXT, cluster.devices)
    return [degree for degree in _powers(most) if demand.sequence_length % (2 * degree) == 0]


def _expert_degrees(operations: ModelOperations, cluster: Cluster, demand: Demand) -> list[int]:
    if operations.experts == 1 or not demand.spreads_experts:
        return [1]
    most = min(operations.experts, cluster.devices)
    return [degree for degree in _powers(most) if operations.experts % degree == 0]


def _shardings(degrees: Degrees, demand: Demand) -> list[Sharding]:
    """What is of use of what is offered."""
    offered = sorted(demand.sharding)
    if degrees.replicas == 1:
        return offered[:1]
    if degrees.pipeline > 1:
        return [Sharding.OPTIMIZER if Sharding.OPTIMIZER in offered else offered[-1]]
    return [some for some in offered if some is not Sharding.NOTHING] or offered[:1]


def _schedules(
    pipeline: int, blocks: int, microbatches: int, demand: Demand
) -> Iterator[tuple[str, int]]:
    """The schedules with the numbers of stages that a rank has; without a pipeline any is alike."""
    if pipeline == 1:
        yield ("1f1b" if demand.schedules[0] == "interleaved" else demand.schedules[0]), 1
        return
    for schedule in demand.schedules:
        if schedule == "interleaved":
            if microbatches % pipeline == 0:
                for count in _VIRTUAL_STAGES:
                    if pipeline * count <= blocks:
                        yield schedule, count
        elif schedule != "2bw" or microbatches >= pipeline:
            yield schedule, 1


def _divisors(number: int, *, most: int) -> list[int]:
    return [divisor for divisor in range(1, min(number, most) + 1) if number % divisor == 0]


def _powers(most: int) -> list[int]:
    return [2**i for i in range(most.bit_length())]
