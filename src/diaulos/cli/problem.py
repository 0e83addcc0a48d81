"""The flags that say what to plan, shared by all commands that ask a planner."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from cyclopts import Parameter

from diaulos.cli.output import note
from diaulos.clusters.cluster import Cluster
from diaulos.clusters.expression import find_cluster
from diaulos.errors import InputError
from diaulos.models.files import GraphFile, read_graph
from diaulos.models.time_units import TimeUnit, time_unit_warning
from diaulos.planning.evaluation.costs import DETAILED, PIPER, Collective, CostModel
from diaulos.planning.evaluation.pipelining import PIPELININGS
from diaulos.planning.problem import PlanningProblem
from diaulos.units import parse_bandwidth, parse_bytes


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class UnsizedFlags:
    """Batch, costs and what plans may do, on a cluster whose size is said elsewhere."""

    bandwidth: str | None = None
    """Of each link, such as 25GiB/s."""
    cluster: str | Path | None = None
    """A cluster file, TOML, or one such as 4x8xH100-80GB; where it is flat, what is given besides
    overrides it."""
    microbatches: int | None = None
    """In one batch, over all replicas."""
    time_unit: Literal["s", "ms", "us"] = "s"
    """What the times of a Piper file are; other files say so."""
    batch_size: int | None = None
    """Samples of a step of a model; of a PipeDream profile, where its Input node does not tell."""
    schedule: Literal["2bw", "gpipe", "1f1b", "interleaved", "zb-h1", "auto"] | None = None
    """Whose batch time counts: 2bw never flushes, the others fill and drain with each batch; auto
    compares them. Of graphs 2bw unless given, of models auto, which leaves 2bw out."""
    cost_model: Literal["piper", "detailed"] | None = None
    """piper (as published) or detailed (latency, buffers, shared tensors once); unless given,
    piper on clusters of one node and detailed on others."""
    collective: Literal["ring", "tree"] = "ring"
    """How replicas sum their gradients."""
    reserve: str = "0B"
    """Memory that stays free on every device, such as 2GiB."""
    data_parallel: bool = True
    """Whether stages may have replicas."""
    tensor_parallel: bool = True
    """Whether layers may be split over devices."""
    recompute: bool = True
    """Whether activations may be recomputed."""
    shard_optimizer: bool = False
    """Whether replicas may share the optimizer's state (ZeRO-1)."""

    def read(self, graph: Path) -> GraphFile:
        """The graph of a file; a note on stderr where its times and the link hardly match."""
        file = read_graph(graph, batch_size=self.batch_size, time_unit=TimeUnit(self.time_unit))
        stated = file.piper.bandwidth_bytes_per_second if file.piper is not None else None
        bandwidth = parse_bandwidth(self.bandwidth) if self.bandwidth is not None else stated
        if bandwidth is not None:
            warning = time_unit_warning(file.graph, bandwidth)
            if warning is not None:
                note(f"{graph}: {warning} (--time-unit says what they are)")
        return file

    def sized(
        self, file: GraphFile, *, devices: int | None, memory_bytes: float | None
    ) -> PlanningProblem:
        """The planning problem for the graph of a file, on so many devices of such memory."""
        schedule = self.schedule or "2bw"
        if schedule == "interleaved":
            raise InputError(
                "--schedule is interleaved",
                "the stages of a layer graph's plan stand on devices of their own",
                "plan a model with it, or try it with `diaulos simulate --chunks`",
            )
        if schedule == "auto":
            raise InputError(
                "--schedule is auto",
                "only `diaulos plan` with the exact planner compares schedules",
                f"give one of {', '.join(PIPELININGS)}",
            )
        cluster = self._cluster(file, devices=devices, memory_bytes=memory_bytes)
        return PlanningProblem(
            graph=file.graph,
            cluster=cluster,
            microbatches=self._microbatches(file),
            data_parallel=self.data_parallel,
            tensor_parallel=self.tensor_parallel,
            recompute=self.recompute,
            shard_optimizer=self.shard_optimizer,
            costs=self._costs(cluster),
            pipelining=PIPELININGS[schedule],
        )

    def _cluster(
        self, file: GraphFile, *, devices: int | None, memory_bytes: float | None
    ) -> Cluster:
        """The cluster of the flags, then of the cluster file, then of the graph's file."""
        base = _cluster_of_file(file) if self.cluster is None else find_cluster(self.cluster)
        bandwidth = self.bandwidth
        stated = {
            "devices": devices,
            "memory_bytes": memory_bytes,
            "bandwidth_bytes_per_second": None if bandwidth is None else parse_bandwidth(bandwidth),
        }
        given: dict[str, Any] = {key: value for key, value in stated.items() if value is not None}
        if base is not None:
            return base.with_flat(**given)
        missing = [key.split("_")[0] for key, value in stated.items() if value is None]
        if missing:
            flags = ", ".join(f"--{name}" for name in missing)
            raise InputError(
                f"{flags} not given",
                "only Piper's files state them",
                "give them, or a cluster file with --cluster",
            )
        return Cluster.flat(**given)

    def _microbatches(self, file: GraphFile) -> int:
        if self.microbatches is not None:
            return self.microbatches
        if file.piper is None:
            raise InputError("--microbatches not given", "only Piper's files state it")
        return file.piper.microbatches

    def _costs(self, cluster: Cluster) -> CostModel:
        name = self.cost_model or ("piper" if cluster.is_flat else "detailed")
        return replace(
            PIPER if name == "piper" else DETAILED,
            collective=Collective(self.collective),
            reserve_bytes=parse_bytes(self.reserve),
        )


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemFlags:
    """Cluster, batch, costs and what plans may do; what is not given is the graph file's."""

    unsized: UnsizedFlags = field(default_factory=UnsizedFlags)
    """All but how large the cluster is."""
    devices: int | None = None
    """How many devices there are."""
    memory: str | None = None
    """Of each device, such as 8GiB or 80GB."""

    def problem(self, file: GraphFile) -> PlanningProblem:
        """The planning problem for the graph of a file."""
        memory_bytes = None if self.memory is None else parse_bytes(self.memory)
        return self.unsized.sized(file, devices=self.devices, memory_bytes=memory_bytes)


def _cluster_of_file(file: GraphFile) -> Cluster | None:
    if file.piper is None:
        return None
    return Cluster.flat(
        devices=file.piper.max_devices,
        memory_bytes=file.piper.max_memory_per_device_bytes,
        bandwidth_bytes_per_second=file.piper.bandwidth_bytes_per_second,
    )
