"""What the search finds for a trainer can be said in its flags."""

from itertools import islice

import pytest

from diaulos.clusters.expression import parse_cluster
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.search.demand import Demand
from diaulos.estimating.search.fastest import Search
from diaulos.exporting.layout import parse_layout
from diaulos.exporting.trainers import MEGATRON, TORCHTITAN, Trainer
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.options import Recompute
from tests.estimating.models import configuration, published


def value(flags: list[str], name: str) -> int:
    """The number behind a flag."""
    (found,) = [flag.split()[-1] for flag in flags if flag.startswith(f"{name} ")]
    return int(found)


def searched(trainer: Trainer) -> list[Configuration]:
    """The fastest configurations that a trainer can run."""
    demand = Demand(
        batch_size=256,
        sequence_length=4096,
        schedules=trainer.schedules,
        recompute=trainer.recompute,
        sharding=trainer.sharding,
    )
    search = Search(published("mixtral-8x7b"), parse_cluster("4x8xH100-80GB"), demand)
    return [one.configuration for one in islice(search.fastest_first(), 60)]


def test_megatron() -> None:
    """Degrees, batch and uneven stages are those of the configuration."""
    for chosen in searched(MEGATRON):
        flags = MEGATRON.flags(chosen)
        tensor = value(flags, "--tensor-model-parallel-size")
        pipeline = value(flags, "--pipeline-model-parallel-size")
        assert 32 // (tensor * pipeline) == chosen.degrees.data
        assert value(flags, "--micro-batch-size") == chosen.microbatch_size
        layouts = [flag.split("'")[1] for flag in flags if "pipeline-model-parallel-layout" in flag]
        if chosen.blocks_per_stage is not None:
            assert [parse_layout(layout) for layout in layouts] == [chosen.blocks_per_stage]
        assert ("--sequence-parallel" in flags) is (tensor > 1)


def test_torchtitan() -> None:
    """Replicas are spread or whole, and what a rank is given for a step is said."""
    for chosen in searched(TORCHTITAN):
        flags = TORCHTITAN.flags(chosen)
        spread = value(flags, "--parallelism.data_parallel_shard_degree")
        whole = value(flags, "--parallelism.data_parallel_replicate_degree")
        assert spread * whole == chosen.degrees.data
        assert (spread > 1) <= (chosen.sharding is Sharding.PARAMETERS)
        local = value(flags, "--training.local_batch_size")
        share = chosen.batch_size // chosen.degrees.data
        assert local == (share if chosen.degrees.pipeline > 1 else chosen.microbatch_size)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recompute": Recompute.SELECTIVE}, "--recompute-granularity selective"),
        ({"recompute": Recompute.FULL}, "--recompute-method uniform"),
        ({"data": 8, "sharding": Sharding.OPTIMIZER}, "--use-distributed-optimizer"),
        ({"data": 8, "sharding": Sharding.PARAMETERS}, "optim_grads_params"),
        (
            {"pipeline": 2, "virtual_stages": 4, "schedule": "interleaved"},
            "--num-virtual-stages-per-pipeline-rank 4",
        ),
        ({"context": 4}, "--context-parallel-size 4"),
        ({"data": 8, "expert": 4}, "--expert-model-parallel-size 4"),
    ],
)
def test_ways_of_megatron(changes: dict[str, object], words: str) -> None:
    """Each way to train has its flag, and only then."""
    assert words in " ".join(MEGATRON.flags(configuration(**changes)))  # type: ignore[arg-type]
    assert words not in " ".join(MEGATRON.flags(configuration()))
