"""The plan file: JSON that a person can read and edit, and that is never trusted when loaded.

It holds the plan, the cluster it was made for, and where its graph stands. Figures of cost are
written for the reader only: whoever loads the file prices the plan anew.
"""

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as dataclass_fields
from functools import cached_property
from pathlib import Path
from typing import Any

from diaulos._version import __version__
from diaulos.clusters.cluster import Cluster
from diaulos.clusters.files import cluster_document, parse_grouped_cluster
from diaulos.documents import Value, read_json, write_json
from diaulos.errors import CheckError, InputError
from diaulos.models.files import read_graph
from diaulos.models.graph import LayerGraph, Option
from diaulos.models.time_units import TimeUnit
from diaulos.planning.evaluation.costs import PIPER, Collective, CostModel
from diaulos.planning.evaluation.evaluate import Evaluation, StagePrice, evaluate
from diaulos.planning.evaluation.pipelining import PIPELININGS, STEADY, Pipelining
from diaulos.planning.evaluation.places import describe_devices, placed
from diaulos.planning.evaluation.rules import violations
from diaulos.planning.plan import Plan, Stage
from diaulos.planning.problem import PlanningProblem

FORMAT = "diaulos.plan/1"
_STAGE_KEYS = ("layers", "data_parallel", "tensor_parallel", "options")
_STAGE_EXTRAS = ("sharded_optimizer", "first_device")
_PRICE_KEYS = ("in_flight", "memory_bytes", "time_per_sample_seconds", "devices")
_CLUSTER_KEYS = ("devices", "memory_bytes", "bandwidth_bytes_per_second", "latency_seconds", "name")


@dataclass(frozen=True, kw_only=True)
class StoredPlan:
    """A plan from a file with the graph and the cluster that it is for."""

    path: Path
    plan: Plan
    graph: LayerGraph
    graph_path: Path
    cluster: Cluster
    graph_is_unchanged: bool
    """Whether the graph's file is the one that the plan was made from."""
    made_by: Mapping[str, str]
    """Planner, options and version of the tool."""
    costs: CostModel = PIPER
    pipelining: Pipelining = STEADY
    stated_seconds: float | None = None
    """The time per sample that the file states; None where it does not."""

    @cached_property
    def violations(self) -> tuple[str, ...]:
        """Every rule that the plan breaks, one sentence each."""
        return violations(self.graph, self.plan, self.cluster, self.costs, self.pipelining)

    @cached_property
    def evaluation(self) -> Evaluation:
        """The plan's price, computed now."""
        return evaluate(self.graph, self.plan, self.cluster, self.costs, self.pipelining)

    @cached_property
    def problem(self) -> PlanningProblem:
        """What the plan answers: on its cluster, with no more means than its planner had."""
        without = self.made_by.get("without", "").split(", ")
        return PlanningProblem(
            graph=self.graph,
            cluster=self.cluster,
            microbatches=self.plan.microbatches,
            data_parallel="data_parallel" not in without,
            tensor_parallel="tensor_parallel" not in without,
            recompute="recompute" not in without,
            shard_optimizer=any(stage.sharded_optimizer for stage in self.plan.stages),
            costs=self.costs,
            pipelining=self.pipelining,
        )

    @property
    def states_its_time(self) -> bool:
        """Whether the time that the file states, if any, is the plan's to one part in 1e9."""
        now = self.evaluation.time_per_sample_seconds
        return self.stated_seconds is None or math.isclose(self.stated_seconds, now, rel_tol=1e-9)

    def plan_options(self) -> tuple[Option, ...]:
        """The option that the plan chose for each of its layers."""
        return tuple(
            self.graph.layer(layer).option(name, stage.tensor_parallel)
            for stage in self.plan.stages
            for layer, name in stage.options.items()
        )

    def checked(self) -> "StoredPlan":
        """The same, or a `CheckError` with every rule that it breaks."""
        if self.violations:
            found, count = "\n  ".join(self.violations), len(self.violations)
            rules = "a rule" if count == 1 else f"{count} rules"
            raise CheckError(f"{self.path}: the plan breaks {rules}:\n  {found}")
        return self


def write_plan(
    path: Path,
    plan: Plan,
    evaluation: Evaluation,
    *,
    graph_path: Path,
    cluster: Cluster,
    made_by: Mapping[str, str],
    costs: CostModel = PIPER,
    time_unit: TimeUnit = TimeUnit.SECONDS,
) -> None:
    """Write a plan with its price and what it was made from.

    `costs` are those that `evaluation` was made with; the schedule stands there. `time_unit` is
    what the graph's file was read with.
    """
    unit = {} if time_unit is TimeUnit.SECONDS else {"time_unit": time_unit.value}
    write_json(
        path,
        {
            "format": FORMAT,
            "microbatches": plan.microbatches,
            **_model_document(costs, evaluation.pipelining),
            "time_per_sample_seconds": evaluation.time_per_sample_seconds,
            "batch_seconds": evaluation.batch_seconds,
            "stages": stage_documents(plan, evaluation, cluster),
            "cluster": _cluster_document(cluster),
            "graph": {
                "path": os.path.relpath(graph_path, path.parent),
                "sha256": _sha256(graph_path),
                **unit,
            },
            "made_by": {**made_by, "version": __version__},
        },
    )


def read_plan(
    path: Path, *, graph_path: Path | None = None, cluster: Cluster | None = None
) -> StoredPlan:
    """A plan with its graph, from the place that the file names or the one given.

    The plan may break rules: see `StoredPlan.violations`.
    """
    fields = read_json(path).fields(
        ("format", "microbatches", "stages", "cluster", "graph"),
        ("time_per_sample_seconds", "batch_seconds", "made_by", "costs", "pipelining"),
    )
    if fields["format"].text() != FORMAT:
        raise fields["format"].error(f"is {fields['format'].raw!r}", f"it must be {FORMAT!r}")
    source = fields["graph"].fields(("path", "sha256"), ("time_unit",))
    found = graph_path or path.parent / source["path"].text()
    if not found.is_file():
        raise source["path"].error(
            f"is {source['path'].text()!r}, and there is no file {found}",
            "a plan is checked against its layer graph",
            "give its place with --graph",
        )
    stated = fields.get("time_per_sample_seconds")
    made_by = fields["made_by"].members() if "made_by" in fields else {}
    stages = tuple(_parse_stage(stage) for stage in _some(fields["stages"]))
    microbatches = fields["microbatches"].integer(minimum=1)
    with fields["stages"].context():
        plan = Plan(stages=stages, microbatches=microbatches)
    return StoredPlan(
        path=path,
        plan=plan,
        graph=read_graph(found, time_unit=_parse_unit(source.get("time_unit"))).graph,
        graph_path=found,
        cluster=cluster or _parse_cluster(fields["cluster"]),
        graph_is_unchanged=_sha256(found) == source["sha256"].text(),
        made_by={key: value.text() for key, value in made_by.items()},
        costs=_parse_costs(fields["costs"]) if "costs" in fields else PIPER,
        pipelining=_parse_pipelining(fields["pipelining"]) if "pipelining" in fields else STEADY,
        stated_seconds=None if stated is None else stated.number(),
    )


def _parse_unit(value: Value | None) -> TimeUnit:
    units = {unit.value: unit for unit in TimeUnit}
    if value is None:
        return TimeUnit.SECONDS
    if value.text() not in units:
        raise value.error(f"is {value.raw!r}", f"it must be one of {', '.join(units)}")
    return units[value.text()]


def stage_documents(plan: Plan, evaluation: Evaluation, cluster: Cluster) -> list[dict[str, Any]]:
    """The stages with their prices, as plan files and `--json` show them."""
    documents = []
    firsts = placed(plan, cluster)
    for stage, price, first in zip(plan.stages, evaluation.stages, firsts, strict=True):
        document = _stage_document(stage, price)
        if not cluster.is_flat:
            devices = range(first, first + stage.devices)
            document["devices"] = describe_devices(cluster, devices)
        documents.append(document)
    return documents


def _stage_document(stage: Stage, price: StagePrice) -> dict[str, Any]:
    stated = {} if stage.first_device is None else {"first_device": stage.first_device}
    sharded = {"sharded_optimizer": True} if stage.sharded_optimizer else {}
    return {
        "layers": list(stage.layers),
        "data_parallel": stage.data_parallel,
        "tensor_parallel": stage.tensor_parallel,
        "options": {str(layer): name for layer, name in stage.options.items()},
        **sharded,
        **stated,
        "in_flight": price.in_flight,
        "memory_bytes": price.memory_bytes,
        "time_per_sample_seconds": price.time_per_sample_seconds,
    }


def _some(value: Value) -> list[Value]:
    if not value.items():
        raise value.error("is empty", "a plan has at least one stage")
    return value.items()


def _parse_stage(value: Value) -> Stage:
    fields = value.fields(_STAGE_KEYS, (*_STAGE_EXTRAS, *_PRICE_KEYS))
    options = {}
    for key, name in fields["options"].members().items():
        if not key.lstrip("-").isdecimal():
            raise name.error(f"has the key {key!r}", "it must be the id of a layer")
        options[int(key)] = name.text()
    with value.context():
        return Stage(
            layers=tuple(layer.integer() for layer in fields["layers"].items()),
            data_parallel=fields["data_parallel"].integer(minimum=1),
            tensor_parallel=fields["tensor_parallel"].integer(minimum=1),
            options=options,
            sharded_optimizer=(
                fields["sharded_optimizer"].boolean() if "sharded_optimizer" in fields else False
            ),
            first_device=(
                fields["first_device"].integer(minimum=0) if "first_device" in fields else None
            ),
        )


def _model_document(costs: CostModel, pipelining: Pipelining) -> dict[str, Any]:
    """What differs from Piper's costs in steady state."""
    document: dict[str, Any] = {}
    if costs != PIPER:
        document["costs"] = {**asdict(costs), "collective": costs.collective.value}
    if pipelining != STEADY:
        document["pipelining"] = pipelining.name
    return document


def _parse_costs(value: Value) -> CostModel:
    """A cost model; what a file does not state is as in Piper's."""
    fields = value.fields((), tuple(field.name for field in dataclass_fields(CostModel)))
    given: dict[str, Any] = {
        key: fields[key].boolean()
        for key in ("shared_tensors_once", "counts_latency", "counts_buffers", "temporary_once")
        if key in fields
    }
    if "collective" in fields:
        given["collective"] = Collective(
            _one_of(fields["collective"], [c.value for c in Collective])
        )
    if "reserve_bytes" in fields:
        given["reserve_bytes"] = fields["reserve_bytes"].number()
    return replace(PIPER, **given)


def _parse_pipelining(value: Value) -> Pipelining:
    return PIPELININGS[_one_of(value, list(PIPELININGS))]


def _one_of(value: Value, known: list[str]) -> str:
    if value.text() not in known:
        raise value.error(f"is {value.text()!r}", f"it must be one of {', '.join(known)}")
    return value.text()


def _cluster_document(cluster: Cluster) -> dict[str, Any]:
    """The document of a cluster; a flat one has the keys with units that it always had."""
    document = cluster_document(cluster)
    if "groups" in document:
        return document
    return {
        "devices": document["devices"],
        "memory_bytes": document["memory"],
        "bandwidth_bytes_per_second": document["bandwidth"],
        "latency_seconds": document["latency_seconds"],
        "name": document["name"],
    }


def _parse_cluster(value: Value) -> Cluster:
    if "groups" in value.members():
        return parse_grouped_cluster(value)
    fields = value.fields(_CLUSTER_KEYS)
    return Cluster.flat(
        devices=fields["devices"].integer(minimum=1),
        memory_bytes=fields["memory_bytes"].number(),
        bandwidth_bytes_per_second=fields["bandwidth_bytes_per_second"].number(above=0),
        latency_seconds=fields["latency_seconds"].number(),
        name=fields["name"].text(),
    )


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
