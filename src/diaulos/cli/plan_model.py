"""`diaulos plan` for a model: the best way to train it on a cluster of known devices."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from cyclopts import Parameter

from diaulos.cli.models import ModelFlags, is_factory
from diaulos.cli.output import make_console, print_json
from diaulos.cli.problem import ProblemFlags, UnsizedFlags
from diaulos.clusters.expression import find_cluster
from diaulos.documents import read_json
from diaulos.errors import InfeasibleError, InputError
from diaulos.estimating.as_plan import PIPELININGS, as_plan
from diaulos.estimating.estimate import Estimate
from diaulos.estimating.search.demand import SYNCHRONOUS, Demand
from diaulos.estimating.search.planned import plan_configuration
from diaulos.exporting.trainers import TRAINERS, Trainer
from diaulos.models.files import write_graph
from diaulos.planning.evaluation.costs import DETAILED
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.files import write_plan
from diaulos.pricing.analytic.options import PRECISIONS
from diaulos.pricing.devices.attention import AttentionKind
from diaulos.reporting.configurations import no_configuration, planned_document, planned_lines

_CONFIG_KEYS = frozenset({"model_type", "architectures", "num_hidden_layers", "hidden_size"})
_NAMES: Mapping[str, str] = MappingProxyType({"zb-h1": "zero-bubble"})
"""Schedules that models and layer graphs call otherwise."""


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFlags:
    """How a model is trained, where a config is planned; graphs have their prices."""

    sequence_length: int | None = None
    """Tokens of a sample."""
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8"] = "bf16"
    """Of products; below fp32 with weights in fp32 beside."""
    attention: Literal["flash", "plain"] = "flash"
    """In one kernel, or with its scores in memory."""
    trainer: Literal["diaulos", "megatron", "torchtitan"] | None = None
    """Who is to train it: only what it can do is searched. The answer has the flags of other
    trainers; a plan file is for diaulos, the usual trainer where one is written."""


def is_model(source: Path | None) -> bool:
    """Whether this is a model and not a layer graph: no file, a folder, or a config's JSON."""
    if source is None or source.is_dir() or source.name == "config.json" or is_factory(source):
        return True
    if not source.exists():
        raise InputError(
            "there is no such file", "it is a model or a layer graph", where=str(source)
        )
    if source.suffix != ".json":
        return False
    document = read_json(source).raw
    return isinstance(document, dict) and not _CONFIG_KEYS.isdisjoint(document)


def plan_model(
    config: Path | None,
    flags: ProblemFlags,
    model: ModelFlags,
    training: TrainingFlags,
    *,
    output: Path | None,
    as_json: bool,
) -> None:
    """Search all ways to spread a model over a cluster, and print the best and others.

    `output` is where the best is written as a plan, with its priced layers beside it.
    """
    _refuse_flags_of_graphs(flags)
    asked = flags.unsized
    if asked.cluster is None:
        raise InputError(
            "--cluster not given",
            "prices follow from the devices",
            "give nodes x devices x device, such as 4x8xH100-80GB, or a file",
        )
    if asked.batch_size is None or training.sequence_length is None:
        missing = "--batch-size" if asked.batch_size is None else "--sequence-length"
        raise InputError(f"{missing} not given", "a step is planned for so much")
    trainer = _trainer(training, output)
    demand = _demand(asked.batch_size, training.sequence_length, asked.schedule, training, trainer)
    described = model.model(config, training.sequence_length)
    planned = plan_configuration(described, find_cluster(asked.cluster), demand)
    best = planned.best
    words = [] if best is None else _flags(trainer, best)
    if as_json:
        print_json({**planned_document(planned), **({"flags": words} if words else {})})
    if best is None:
        raise InfeasibleError(no_configuration(planned))
    if output is not None:
        _write(output, best)
    if not as_json:
        console = make_console()
        command = f"diaulos estimate {_model_words(config, model)} --cluster {asked.cluster}"
        for line in planned_lines(planned, command):
            console.print(line, markup=False, soft_wrap=True)
        if trainer is not None and words:
            console.print(f"with {trainer.name}:")
            console.print("  " + " ".join(words), markup=False, soft_wrap=True)


def _trainer(training: TrainingFlags, output: Path | None) -> Trainer | None:
    """Who is to train; diaulos itself where a plan file is wanted."""
    if output is None:
        return None if training.trainer is None else TRAINERS[training.trainer]
    if training.trainer not in {None, "diaulos"}:
        raise InputError(
            f"--output is given with --trainer {training.trainer}",
            "a plan file is what diaulos trains",
            "leave one of them out",
        )
    return TRAINERS["diaulos"]


def _flags(trainer: Trainer | None, best: Estimate) -> list[str]:
    known = None if trainer is None else trainer.flags
    return [] if known is None else known(best.configuration)


def _write(path: Path, best: Estimate) -> None:
    """The plan, and beside it its layers with their prices."""
    graph, plan = as_plan(best)
    graph_path = path.with_suffix(".graph.json")
    write_graph(graph_path, graph)
    pipelining = PIPELININGS[best.configuration.schedule]
    write_plan(
        path,
        plan,
        evaluate(graph, plan, best.cluster, DETAILED, pipelining),
        graph_path=graph_path,
        cluster=best.cluster,
        costs=DETAILED,
        made_by={"planner": "configurations"},
    )


def _demand(
    batch_size: int,
    sequence_length: int,
    schedule: str | None,
    training: TrainingFlags,
    trainer: Trainer | None,
) -> Demand:
    """What is asked of the search, within what a trainer can do."""
    schedules = SYNCHRONOUS if schedule in {None, "auto"} else (_NAMES.get(schedule, schedule),)
    demand = Demand(
        batch_size=batch_size,
        sequence_length=sequence_length,
        schedules=schedules,
        precision=PRECISIONS[training.precision],
        attention=AttentionKind(training.attention),
    )
    if trainer is None:
        return demand
    known = tuple(name for name in demand.schedules if name in trainer.schedules)
    if not known:
        raise InputError(
            f"--schedule is {schedule}",
            f"{trainer.name} runs {', '.join(trainer.schedules)}",
            "give one of these, or leave --trainer out",
        )
    return replace(demand, schedules=known, recompute=trainer.recompute, sharding=trainer.sharding)


def _refuse_flags_of_graphs(flags: ProblemFlags) -> None:
    """Raise where a flag is given that the search for configurations does not go by."""
    usual = UnsizedFlags()
    others = {field.name for field in fields(usual)} - {"cluster", "batch_size", "schedule"}
    named = [name for name in ("devices", "memory") if getattr(flags, name) is not None]
    named += sorted(name for name in others if getattr(flags.unsized, name) != getattr(usual, name))
    if named:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in named)
        raise InputError(
            f"{words} given for a model",
            "a layer graph is planned with them; a model with --cluster, --batch-size and "
            "--sequence-length",
        )


def _model_words(config: Path | None, model: ModelFlags) -> str:
    if config is not None:
        return str(config)
    named = {"hidden": model.hidden, "layers": model.layers, "heads": model.heads}
    named |= {"vocab": model.vocab, "kv-heads": model.kv_heads, "ffn": model.ffn}
    named |= {"experts": model.experts}
    if model.experts is not None:
        named |= {"active-experts": model.active_experts}
    return " ".join(f"--{name} {value}" for name, value in named.items() if value is not None)
