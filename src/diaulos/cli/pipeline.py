"""What `diaulos simulate` simulates: a plan, or equal stages for learning."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diaulos.cli.output import note
from diaulos.clusters.expression import find_cluster
from diaulos.errors import InputError
from diaulos.planning.files import read_plan
from diaulos.schedules.costs import Link, Links, StageCosts
from diaulos.schedules.plans import plan_costs, plan_links
from diaulos.schedules.shape import PipelineShape


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualStages:
    """The flags of a pipeline without a plan; None where a flag is absent."""

    depth: int | None
    microbatches: int | None
    width: int | None
    forward: float | None
    backward: float | None
    backward_input: float | None
    backward_weight: float | None
    chunks: int | None

    def flags(self) -> dict[str, float | None]:
        """The values by the names of the flags."""
        return {name.replace("_", "-"): getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What is simulated, whatever it comes from."""

    shape: PipelineShape
    """One stage a rank."""
    costs: Sequence[StageCosts]
    links: Links
    chunks: int | None
    """Into how many chunks schedules may cut a stage; None where stages stay whole."""
    memory_bytes: float = math.inf
    """Of each device."""


def equal_stages(given: EqualStages) -> Pipeline:
    """The pipeline of equal stages that the flags describe."""
    if given.depth is None or given.microbatches is None:
        raise InputError(
            "there is neither a plan nor --depth with --microbatches",
            "one of them says what to simulate",
            "for example diaulos simulate --depth 4 --microbatches 8",
        )
    width = 1 if given.width is None else given.width
    chunks = 2 if given.chunks is None else given.chunks
    for name, value in (
        *(("depth", given.depth), ("microbatches", given.microbatches)),
        *(("width", width), ("chunks", chunks)),
    ):
        if value < 1:
            raise InputError(f"--{name} is {value}", "it must be at least 1")
    shape = PipelineShape(replicas=(width,) * given.depth, microbatches=given.microbatches * width)
    costs = [_costs(given)] * given.depth
    return Pipeline(shape=shape, costs=costs, links=Link(), chunks=chunks)


def _costs(given: EqualStages) -> StageCosts:
    forward = 1.0 if given.forward is None else given.forward
    halves = given.backward_input, given.backward_weight
    if halves == (None, None):
        backward = 2.0 if given.backward is None else given.backward
        return StageCosts(forward_seconds=forward, backward_seconds=backward)
    if given.backward is not None or None in halves:
        raise InputError(
            "--backward-input and --backward-weight are the two halves of a backward",
            "they are given together and without --backward",
        )
    of_input, of_weights = (half or 0.0 for half in halves)
    if min(of_input, of_weights) < 0:
        raise InputError(f"the halves of the backward are {halves}", "they must be at least 0")
    return StageCosts(
        forward_seconds=forward,
        backward_seconds=of_input + of_weights,
        weight_backward_seconds=of_weights,
    )


def planned(path: Path, graph: Path | None, cluster: str | Path | None) -> Pipeline:
    """The pipeline of a plan file."""
    given = None if cluster is None else find_cluster(cluster)
    stored = read_plan(path, graph_path=graph, cluster=given).checked()
    if not stored.graph_is_unchanged:
        note(f"{stored.graph_path} is not the graph that the plan was made from")
    if not all(option.is_split for option in stored.plan_options()):
        note(
            "forward and backward were not measured apart: the backward counts as twice the forward"
        )
    return Pipeline(
        shape=PipelineShape.of(stored.plan),
        costs=plan_costs(stored.graph, stored.plan, stored.cluster),
        links=plan_links(stored.plan, stored.cluster),
        chunks=None,
        memory_bytes=stored.cluster.largest_memory_bytes,
    )


def refuse_beside_plan(given: EqualStages) -> None:
    """Raise where a flag of equal stages is given beside a plan."""
    for name, value in given.flags().items():
        if value is not None:
            raise InputError(f"--{name} is given beside a plan", "the plan says what to simulate")


def refuse_without_plan(**flags: Path | str | None) -> None:
    """Raise where a flag of plans is given without one."""
    for name, value in flags.items():
        if value is not None:
            raise InputError(f"--{name} is given without a plan", "the plan file comes first")
