"""Flags become a planning problem, with what they do not say from the graph's file."""

from dataclasses import replace
from pathlib import Path

import pytest

from diaulos.cli.problem import ProblemFlags, UnsizedFlags
from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.clusters.files import write_cluster
from diaulos.errors import InputError
from diaulos.models.files import GraphFile
from diaulos.models.piper import PiperFile
from diaulos.planning.evaluation.costs import DETAILED, PIPER, Collective, CostModel
from diaulos.planning.evaluation.pipelining import STEADY, ZERO_BUBBLE
from tests.planning.problems import chain, option

LINK = Link(bandwidth_bytes_per_second=1.0)
NODES = Cluster(
    groups=(DeviceGroup(name="a", nodes=2, devices_per_node=2, memory_bytes=9.0, link=LINK),),
    link=LINK,
)


def piper_file() -> GraphFile:
    graph = chain([option()])
    piper = PiperFile(
        graph=graph,
        max_devices=2,
        max_memory_per_device_bytes=8.0,
        bandwidth_bytes_per_second=5.0,
        microbatches=4,
    )
    return GraphFile(graph=graph, piper=piper)


def test_a_piper_file_says_all() -> None:
    """Without flags the problem is the file's, in Piper's model."""
    problem = ProblemFlags().problem(piper_file())
    assert problem.cluster == Cluster.flat(
        devices=2, memory_bytes=8.0, bandwidth_bytes_per_second=5.0
    )
    assert problem.microbatches == 4
    assert (problem.costs, problem.pipelining) == (PIPER, STEADY)
    assert problem.data_parallel
    assert not problem.shard_optimizer


def test_flags_rule() -> None:
    """Each flag sets its part of the problem."""
    flags = UnsizedFlags(
        bandwidth="2B/s",
        microbatches=6,
        schedule="zb-h1",
        cost_model="detailed",
        collective="tree",
        reserve="16B",
        data_parallel=False,
        tensor_parallel=False,
        recompute=False,
        shard_optimizer=True,
    )
    problem = ProblemFlags(devices=3, memory="1KiB", unsized=flags).problem(piper_file())
    assert problem.cluster == Cluster.flat(
        devices=3, memory_bytes=1024.0, bandwidth_bytes_per_second=2.0
    )
    assert problem.costs == CostModel(collective=Collective.TREE, reserve_bytes=16.0)
    assert (problem.microbatches, problem.pipelining) == (6, ZERO_BUBBLE)
    switches = (problem.data_parallel, problem.tensor_parallel, problem.recompute)
    assert switches == (False, False, False)
    assert problem.shard_optimizer


def test_the_detailed_model_is_for_nodes(tmp_path: Path) -> None:
    """Unless it is said, clusters of several nodes are priced in detail; it may be said."""
    write_cluster(tmp_path / "nodes.toml", NODES)
    unsaid = UnsizedFlags(cluster=tmp_path / "nodes.toml")
    said = replace(unsaid, cost_model="piper")
    assert ProblemFlags(unsized=unsaid).problem(piper_file()).costs == DETAILED
    assert ProblemFlags(unsized=said).problem(piper_file()).costs == PIPER
    assert ProblemFlags(unsized=unsaid).problem(piper_file()).tensor_degrees == (1,)


def test_what_is_missing_is_asked_for() -> None:
    """A graph of the project's own states neither a cluster nor microbatches."""
    own = GraphFile(graph=chain([option()]))
    with pytest.raises(InputError, match="--memory, --bandwidth not given"):
        ProblemFlags(devices=2, unsized=UnsizedFlags(microbatches=1)).problem(own)
    with pytest.raises(InputError, match="--microbatches not given"):
        ProblemFlags(devices=2, memory="1B", unsized=UnsizedFlags(bandwidth="1B")).problem(own)
