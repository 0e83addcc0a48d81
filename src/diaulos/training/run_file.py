"""The run file: everything that a training run is, in TOML.

format = "diaulos.run/1"
plan = "plan.json"            # paths are relative to the run file
graph = "graph.json"
folder = "run"                # records and the resolved configuration
schedule = "2bw"              # or any other that `diaulos simulate` knows
chunks = 1                    # optional: stages of the plan that share a rank
batches = 40
microbatch_size = 4
precision = "bf16"            # optional: float32 (without it), float64, bf16 or fp16
clip_norm = 1.0               # optional
seed = 0                      # optional
timeout_seconds = 60          # optional: how long a rank waits for another
frozen = ["embedding"]        # optional: layers whose weights stay as they are
pretrained_folder = "trained" # optional: where a Hugging Face model is written at the end

[model]                       # a GPT over bytes; or model = "folder" or "config.json" of a Hugging
                              # Face model, or model = "module:factory"
layers = 6
width = 256
heads = 8
sequence_length = 128
dropout = 0.1                 # optional
tied = true                   # optional: the head's projection is the token embedding

[data]
tokens = "text.bin"           # flat uint8 tokens, memory-mapped; or source = "module:factory"
stored_as = "uint16"          # optional: of larger vocabularies, little-endian
sequence_length = 128         # where the model is a path

[optimizer.adamw]             # or [optimizer.sgd]
learning_rate = 3e-4

[learning_rate]               # optional; without it the rate is constant
warm_up_updates = 100         # optional: linear
cosine_updates = 1000         # optional: where the cosine ends
final_share = 0.1             # optional: of the full rate, at that end

[evaluation]                  # optional
tokens = "held_out.bin"
microbatches = 8
every_batches = 100           # and at the end

[checkpoints]                 # optional; without it there are none
every_batches = 100           # and at the end
kept = 2                      # optional: the newest of them
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from diaulos.documents import Value, read_toml
from diaulos.planning.files import read_plan
from diaulos.training.evaluation import Evaluation
from diaulos.training.job import TrainingJob
from diaulos.training.learning_rates import LearningRateSchedule
from diaulos.training.objective import BatchSource
from diaulos.training.optimizers import SGD, AdamW
from diaulos.training.precision import Precision
from diaulos.training.run_model import check_inputs, freeze, parse_data, parse_model
from diaulos.training.saving import CheckpointSettings

FORMAT = "diaulos.run/1"
_REQUIRED = (
    "format",
    "plan",
    "folder",
    "schedule",
    "batches",
    "microbatch_size",
    "model",
    "data",
    "optimizer",
)
_OPTIONAL = (
    "checkpoints",
    "chunks",
    "clip_norm",
    "evaluation",
    "frozen",
    "learning_rate",
    "precision",
    "pretrained_folder",
    "seed",
    "timeout_seconds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """A run as its file states it, with the paths resolved."""

    path: Path
    job: TrainingJob
    folder: Path
    checkpoints: CheckpointSettings | None
    timeout_seconds: float
    pretrained_folder: Path | None
    """Where the model is written at the end, in Hugging Face's layout."""


def read_run(path: Path) -> RunFile:
    """The run of a file; the plan is checked against the graph."""
    fields = read_toml(path).fields(_REQUIRED, _OPTIONAL)
    if fields["format"].text() != FORMAT:
        raise fields["format"].error(f"is {fields['format'].raw!r}", f"it must be {FORMAT!r}")
    timeout = fields["timeout_seconds"].number(above=0) if "timeout_seconds" in fields else 60.0
    folder = path.parent / fields["folder"].text()
    checkpoints = None
    if "checkpoints" in fields:
        checkpoints = _parse_checkpoints(fields["checkpoints"], folder / "checkpoints")
    job = _parse_job(fields, path.parent)
    written = None
    if "pretrained_folder" in fields:
        written = path.parent / fields["pretrained_folder"].text()
    if isinstance(fields["model"].raw, str):
        _check_pretrained(job, fields["model"], written)
    elif written is not None:
        raise fields["pretrained_folder"].error("is given", "the model is none of Hugging Face's")
    return RunFile(
        path=path,
        job=job,
        folder=folder,
        checkpoints=checkpoints,
        timeout_seconds=timeout,
        pretrained_folder=written,
    )


def _check_pretrained(job: TrainingJob, model: Value, written: Path | None) -> None:
    """Refuse weights that are not the model's, and places where it cannot be written."""
    if ":" in model.text() and written is None:
        return  # of the user's own: transformers may not be installed
    from diaulos.training.pretrained import check_pretrained, check_target  # noqa: PLC0415

    check_pretrained(job)
    if written is not None:
        check_target(written, job)


def _parse_job(fields: Mapping[str, Value], base: Path) -> TrainingJob:
    optimizer = _parse_optimizer(fields["optimizer"])
    size = fields["microbatch_size"].integer(minimum=1)
    seed = fields["seed"].integer(minimum=0) if "seed" in fields else 0
    sequence_length = fields["data"].members().get("sequence_length")
    model = parse_model(fields["model"], base, seed=seed, sequence_length=sequence_length)
    if "frozen" in fields:
        model = freeze(model, fields["frozen"].items())
    data_of = partial(
        parse_data,
        base=base,
        tokens_per_sample=model.tokens_per_sample,
        seed=seed,
        microbatch_size=size,
    )
    batches = data_of(fields["data"])
    with fields["data"].context():
        check_inputs(model, batches, size)
    learning_rate = LearningRateSchedule()
    if "learning_rate" in fields:
        learning_rate = _parse_learning_rate(fields["learning_rate"])
    evaluation = None
    if "evaluation" in fields:
        evaluation = _parse_evaluation(fields["evaluation"], data_of)
    stored = read_plan(base / fields["plan"].text()).checked()
    return TrainingJob(
        model=model,
        graph=stored.graph,
        plan=stored.plan,
        schedule=fields["schedule"].text(),
        chunks=fields["chunks"].integer(minimum=1) if "chunks" in fields else None,
        data=batches,
        microbatch_size=size,
        batches=fields["batches"].integer(minimum=1),
        make_optimizer=optimizer.factory(),
        learning_rate=learning_rate,
        precision=_parse_precision(fields["precision"])
        if "precision" in fields
        else Precision.FLOAT32,
        evaluation=evaluation,
        clip_norm=fields["clip_norm"].number(above=0) if "clip_norm" in fields else None,
        seed=seed,
    )


def _parse_precision(value: Value) -> Precision:
    known = {precision.value: precision for precision in Precision}
    if value.text() not in known:
        raise value.error(f"is {value.raw!r}", f"it must be one of {', '.join(known)}")
    return known[value.text()]


def _parse_checkpoints(value: Value, folder: Path) -> CheckpointSettings:
    fields = value.fields(("every_batches",), ("kept",))
    return CheckpointSettings(
        folder=folder, **{key: count.integer(minimum=1) for key, count in fields.items()}
    )


def _parse_learning_rate(value: Value) -> LearningRateSchedule:
    fields = value.fields((), ("warm_up_updates", "cosine_updates", "final_share"))
    counts = {key: count.integer() for key, count in fields.items() if key != "final_share"}
    with value.context():
        return LearningRateSchedule(**counts, final_share=_number(fields, "final_share", 0.0))


def _parse_evaluation(value: Value, data_of: Callable[[Value], BatchSource]) -> Evaluation:
    counts = ("microbatches", "every_batches")
    fields = value.fields(counts, ("tokens", "source", "stored_as"))
    data = {key: member.raw for key, member in fields.items() if key not in counts}
    return Evaluation(
        data=data_of(replace(value, raw=data)),
        **{key: fields[key].integer(minimum=1) for key in counts},
    )


def _parse_optimizer(value: Value) -> AdamW | SGD:
    named = value.members()
    if len(named) != 1 or next(iter(named)) not in ("adamw", "sgd"):
        raise value.error(
            f"names {', '.join(named) or 'nothing'}", "it names one optimizer: adamw or sgd"
        )
    ((name, settings),) = named.items()
    with settings.context():
        return _parse_adamw(settings) if name == "adamw" else _parse_sgd(settings)


def _parse_adamw(value: Value) -> AdamW:
    fields = value.fields(("learning_rate",), ("betas", "weight_decay", "fused"))
    defaults = AdamW(learning_rate=1.0)
    betas = [beta.number() for beta in fields["betas"].items()] if "betas" in fields else []
    if "betas" in fields and len(betas) != 2:
        raise fields["betas"].error(f"has {len(betas)} numbers", "it must have two")
    return AdamW(
        learning_rate=fields["learning_rate"].number(above=0),
        betas=(betas[0], betas[1]) if betas else defaults.betas,
        weight_decay=_number(fields, "weight_decay", defaults.weight_decay),
        fused=fields["fused"].boolean() if "fused" in fields else defaults.fused,
    )


def _parse_sgd(value: Value) -> SGD:
    fields = value.fields(("learning_rate",), ("momentum", "weight_decay"))
    defaults = SGD(learning_rate=1.0)
    return SGD(
        learning_rate=fields["learning_rate"].number(above=0),
        momentum=_number(fields, "momentum", defaults.momentum),
        weight_decay=_number(fields, "weight_decay", defaults.weight_decay),
    )


def _number(fields: Mapping[str, Value], key: str, default: float) -> float:
    return fields[key].number() if key in fields else default
