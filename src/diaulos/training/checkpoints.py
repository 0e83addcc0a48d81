"""Checkpoints: what a run is after a number of updates, in one file for each layer.

A checkpoint holds each layer's weights in the versions that are alive, and the optimizer's state;
replicas that share it write their shares into files of their own. The data are a function of the
batch's number, so that this is their position. Files and tensors have the names of layers and
parameters, whatever the stages were: any split of the model reads them. They are written aside, and
the folder gets its name when all are there: a folder with a checkpoint's name is whole.
"""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from diaulos.documents import Value, read_json, write_json
from diaulos.errors import InputError
from diaulos.training.loss_scale import ScaleState
from diaulos.training.tensor_files import StoredTensor, read_header, read_tensors, write_tensors

FORMAT = "diaulos.checkpoint/1"
_PATTERN = re.compile(r"update_(\d{8,})")
_DESCRIPTION = "checkpoint.json"
_ASIDE = ".partial"

LayerTensors = Mapping[str, Mapping[str, Tensor]]
"""By layer, and by the names that `weight_key` and `state_key` give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a checkpoint is of."""

    updates: int
    batches: int
    """Of the data, used up."""
    samples_per_batch: int
    seed: int
    schedule: str
    optimizer: str
    precision: str
    layers: tuple[str, ...]
    loss_scale: ScaleState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint on a disk."""

    path: Path
    description: Description
    files: tuple[str, ...]

    def header(self, layer: str) -> dict[str, StoredTensor]:
        """What is stored of a layer."""
        headers = (read_header(path) for path in self._files(layer))
        return {name: tensor for header in headers for name, tensor in header.items()}

    def tensors(self, layer: str) -> dict[str, Tensor]:
        """All that is stored of a layer."""
        read = (read_tensors(path) for path in self._files(layer))
        return {name: tensor for tensors in read for name, tensor in tensors.items()}

    def _files(self, layer: str) -> list[Path]:
        """Of the first replica, and of others that have updated some of its weights."""
        parts = f"{layer}.replica_"
        others = [name for name in self.files if name.startswith(parts)]
        return [self.path / name for name in (_file(layer), *others)]


def weight_key(parameter: str, version: int) -> str:
    """The name under which a version of a parameter is stored; parameters as the layer has them."""
    return f"weights.{version}/{parameter}"


def state_key(parameter: str, key: str) -> str:
    """The name under which the optimizer's tensor of this key is stored."""
    return f"optimizer.{key}/{parameter}"


def master_key(parameter: str) -> str:
    """The name under which the newest weights in full are stored, where they are kept apart."""
    return f"master/{parameter}"


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint of a folder that has most updates; None where there is none."""
    paths = _complete(folder)
    return read_checkpoint(paths[-1]) if paths else None


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint of a folder of its own, such as `update_00000012`."""
    texts = ("schedule", "optimizer", "precision")
    names = ("updates", "batches", "samples_per_batch", "seed", "layers", "files", *texts)
    document = read_json(path / _DESCRIPTION)
    fields = document.fields(("format", *names), ("loss_scale",))
    if fields["format"].text() != FORMAT:
        raise fields["format"].error(f"is {fields['format'].raw!r}", f"it must be {FORMAT!r}")
    description = Description(
        updates=fields["updates"].integer(minimum=0),
        batches=fields["batches"].integer(minimum=0),
        samples_per_batch=fields["samples_per_batch"].integer(minimum=1),
        seed=fields["seed"].integer(minimum=0),
        **{name: fields[name].text() for name in texts},
        loss_scale=_parse_scale(fields["loss_scale"]) if "loss_scale" in fields else None,
        layers=tuple(layer.text() for layer in fields["layers"].items()),
    )
    files = tuple(name.text() for name in fields["files"].items())
    missing = [name for name in files if not (path / name).is_file()]
    if missing:
        raise InputError(f"lacks {', '.join(missing[:10])}", where=str(path))
    return Checkpoint(path=path, description=description, files=files)


def _parse_scale(value: Value) -> ScaleState:
    fields = value.fields(("scales", "streak", "skipped"))
    return ScaleState(
        scales=tuple(scale.number(above=0) for scale in fields["scales"].items()),
        streak=fields["streak"].integer(minimum=0),
        skipped=fields["skipped"].integer(minimum=0),
    )


def write_layers(folder: Path, updates: int, layers: LayerTensors, *, replica: int = 0) -> None:
    """Write what a replica has of layers aside, for the checkpoint of so many updates."""
    aside = _aside(_path(folder, updates))
    aside.mkdir(parents=True, exist_ok=True)
    for layer, tensors in layers.items():
        write_tensors(aside / _file(layer, replica), tensors)


def complete(folder: Path, description: Description, *, kept: int) -> None:
    """Give a checkpoint of which all layers are written its name, and keep the newest `kept`."""
    path = _path(folder, description.updates)
    files = sorted(file.name for file in _aside(path).glob("*.safetensors"))
    write_json(_aside(path) / _DESCRIPTION, _document(description, files))
    if path.exists():  # of a run that went on from before it: the same numbers
        shutil.rmtree(path)
    _aside(path).rename(path)
    _prune(folder, kept)


def remove_torn(folder: Path) -> None:
    """Remove what a run that ended before has left aside; nobody may be writing."""
    for aside in folder.glob("update_*" + _ASIDE):
        shutil.rmtree(aside)


def _path(folder: Path, updates: int) -> Path:
    return folder / f"update_{updates:08d}"


def _aside(path: Path) -> Path:
    return path.with_name(path.name + _ASIDE)


def _document(description: Description, files: Sequence[str]) -> dict[str, object]:
    stated = asdict(description)
    if description.loss_scale is None:
        del stated["loss_scale"]
    return {"format": FORMAT, **stated, "files": files}


def _prune(folder: Path, kept: int) -> None:
    """Remove all but the newest checkpoints, and what was written aside before the newest."""
    paths = _complete(folder)
    for path in paths[:-kept]:
        aside = _aside(path)
        path.rename(aside)  # so that it has no checkpoint's name while it is only in part there
        shutil.rmtree(aside)
    for aside in folder.glob("update_*" + _ASIDE):
        if aside.name < paths[-1].name:
            shutil.rmtree(aside)


def _complete(folder: Path) -> list[Path]:
    found = (path for path in folder.glob("update_*") if _PATTERN.fullmatch(path.name))
    return sorted(found, key=lambda path: int(path.name.partition("_")[2]))


def _file(layer: str, replica: int = 0) -> str:
    part = f".replica_{replica}" if replica else ""
    return f"{layer}{part}.safetensors"
