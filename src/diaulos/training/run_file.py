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
peak_of = "H200"              # optional: a known device, or a cluster file with a calibrated one,
                              # whose peak is the 100 % of MFU
profile_steps = [10, 12]      # optional: these are run under torch's profiler
tensorboard = true            # optional: extra diaulos[tensorboard]
wandb = "project"             # optional: extra diaulos[wandb]
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
tokens = "text.bin"           # flat tokens, memory-mapped
stored_as = "uint16"          # optional: uint8 (without it), uint16, uint32, int32 or int64
share = [0.0, 0.95]           # optional: the part of the file that is read
sequence_length = 128         # where the model is a path
# or megatron = "corpus": corpus.bin and corpus.idx of Megatron-LM
# or text = "book.txt", with tokenizer = "tokenizer.json", or without it byte by byte
# or source = "module:factory"

[optimizer.adamw]             # or any other of torch.optim
learning_rate = 3e-4
fused = true                  # and other options of torch
# or [optimizer.muon] with its learning_rate and options, and in [optimizer.muon.adamw] those of
# what is no matrix, and of the matrices of layers = ["embedding", "head"], or the first and last

[delay]                       # optional: against the delay of 2bw
flush_updates = 200           # optional: these are as with 1f1b
extrapolated_weights = true   # optional
learning_rate_updates = 1000  # optional: until then the learning rate is less

[learning_rate]               # optional; without it the rate is constant
warm_up_updates = 100         # optional: linear
cosine_updates = 1000         # optional: where the cosine ends
final_share = 0.1             # optional: of the full rate, at that end

[evaluation]                  # optional
tokens = "held_out.bin"       # or other data, as above
microbatches = 8
every_batches = 100           # and at the end

[checkpoints]                 # optional; without it there are none
every_batches = 100           # and at the end
kept = 2                      # optional: the newest of them
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from diaulos.clusters.catalogue import known_device
from diaulos.clusters.cluster import Cluster
from diaulos.clusters.device import DType
from diaulos.clusters.files import read_cluster
from diaulos.documents import Value, read_toml
from diaulos.planning.files import StoredPlan, read_plan
from diaulos.training.evaluation import Evaluation
from diaulos.training.job import TrainingJob
from diaulos.training.learning_rates import LearningRateSchedule
from diaulos.training.logs import LogSettings
from diaulos.training.mitigation import DelayMitigation
from diaulos.training.precision import Precision
from diaulos.training.profiling import ProfilerWindow
from diaulos.training.run_data import SOURCE_KEYS, DataSettings, check_inputs
from diaulos.training.run_model import parse_model
from diaulos.training.run_optimizer import (
    parse_learning_rate,
    parse_mitigation,
    parse_optimizer,
)
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
    "delay",
    "evaluation",
    "frozen",
    "learning_rate",
    "peak_of",
    "precision",
    "pretrained_folder",
    "profile_steps",
    "seed",
    "tensorboard",
    "timeout_seconds",
    "wandb",
)
_DEFAULT = Precision.FLOAT32
_PEAKS = "name a known device, or a cluster file that diaulos calibrate has written"
_DTYPES = {
    Precision.FLOAT32: DType.FP32,
    Precision.BF16: DType.BF16,
    Precision.FP16: DType.FP16,
}


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
    logs: LogSettings = field(default_factory=LogSettings)
    profiled: ProfilerWindow | None = None
    cluster: Cluster
    """That the plan is for."""


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
    stored = read_plan(path.parent / fields["plan"].text()).checked()
    job = _parse_job(fields, stored, path.parent, folder)
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
        cluster=stored.cluster,
        logs=_parse_logs(fields),
        profiled=_parse_window(fields["profile_steps"]) if "profile_steps" in fields else None,
    )


def _check_pretrained(job: TrainingJob, model: Value, written: Path | None) -> None:
    """Refuse weights that are not the model's, and places where it cannot be written."""
    if ":" in model.text() and written is None:
        return  # of the user's own: transformers may not be installed
    from diaulos.training.pretrained import check_pretrained, check_target  # noqa: PLC0415

    check_pretrained(job)
    if written is not None:
        check_target(written, job)


def _parse_job(
    fields: Mapping[str, Value], stored: StoredPlan, base: Path, folder: Path
) -> TrainingJob:
    size = fields["microbatch_size"].integer(minimum=1)
    seed = fields["seed"].integer(minimum=0) if "seed" in fields else 0
    sequence_length = fields["data"].members().get("sequence_length")
    model = parse_model(fields["model"], base, seed=seed, sequence_length=sequence_length)
    if "frozen" in fields:
        with fields["frozen"].context():
            model = model.freeze([name.text() for name in fields["frozen"].items()])
    settings = DataSettings(
        base=base, folder=folder / "tokens", model=model, seed=seed, microbatch_size=size
    )
    batches = settings.parse(fields["data"])
    with fields["data"].context():
        check_inputs(model, batches, size)
    learning_rate = LearningRateSchedule()
    if "learning_rate" in fields:
        learning_rate = parse_learning_rate(fields["learning_rate"])
    evaluation = None
    if "evaluation" in fields:
        evaluation = _parse_evaluation(fields["evaluation"], settings)
    precision = _parse_precision(fields["precision"]) if "precision" in fields else _DEFAULT
    return TrainingJob(
        model=model,
        graph=stored.graph,
        plan=stored.plan,
        schedule=fields["schedule"].text(),
        chunks=fields["chunks"].integer(minimum=1) if "chunks" in fields else None,
        data=batches,
        microbatch_size=size,
        batches=fields["batches"].integer(minimum=1),
        make_optimizer=parse_optimizer(fields["optimizer"], model, stored.plan).factory(),
        learning_rate=learning_rate,
        mitigation=parse_mitigation(fields["delay"]) if "delay" in fields else DelayMitigation(),
        precision=precision,
        peak_flops_per_second=_parse_peak(fields["peak_of"], base, precision)
        if "peak_of" in fields
        else None,
        evaluation=evaluation,
        clip_norm=fields["clip_norm"].number(above=0) if "clip_norm" in fields else None,
        seed=seed,
    )


def _parse_precision(value: Value) -> Precision:
    known = {precision.value: precision for precision in Precision}
    if value.text() not in known:
        raise value.error(f"is {value.raw!r}", f"it must be one of {', '.join(known)}")
    return known[value.text()]


def _parse_peak(value: Value, base: Path, precision: Precision) -> float:
    """The peak of a known device, or of that in a cluster file, in the run's precision."""
    with value.context():
        if value.text().endswith(".toml"):
            device = read_cluster(base / value.text()).groups[0].device
        else:
            device = known_device(value.text()).device
        if device is None:
            raise value.error("is a cluster without figures of its devices", _PEAKS)
        if precision not in _DTYPES:
            raise value.error("is given", f"no device states its peak in {precision.value}")
        return device.peak_flops_per_second(_DTYPES[precision])


def _parse_logs(fields: Mapping[str, Value]) -> LogSettings:
    return LogSettings(
        tensorboard=fields["tensorboard"].boolean() if "tensorboard" in fields else False,
        wandb_project=fields["wandb"].text() if "wandb" in fields else None,
    )


def _parse_window(value: Value) -> ProfilerWindow:
    steps = [step.integer() for step in value.items()]
    if len(steps) != 2:
        raise value.error(f"has {len(steps)} numbers", "it must have two, such as [10, 12]")
    with value.context():
        return ProfilerWindow(first=steps[0], last=steps[1])


def _parse_checkpoints(value: Value, folder: Path) -> CheckpointSettings:
    fields = value.fields(("every_batches",), ("kept",))
    return CheckpointSettings(
        folder=folder, **{key: count.integer(minimum=1) for key, count in fields.items()}
    )


def _parse_evaluation(value: Value, settings: DataSettings) -> Evaluation:
    counts = ("microbatches", "every_batches")
    fields = value.fields(counts, SOURCE_KEYS)
    data = {key: member.raw for key, member in fields.items() if key not in counts}
    return Evaluation(
        data=settings.parse(replace(value, raw=data)),
        **{key: fields[key].integer(minimum=1) for key in counts},
    )
