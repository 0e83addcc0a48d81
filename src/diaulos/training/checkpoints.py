"""Checkpoints: what a run is after a number of updates, in one file for each layer.

A checkpoint holds each layer's weights in the versions that are alive, and the optimizer's state;
the data are a function of the batch's number, so that this is their position. Files and tensors
have the names of layers and parameters, whatever the stages were: any split of the model reads
them. They are written aside, and the folder gets its name when all are there: a folder with a
checkpoint's name is whole.
"""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from diaulos.documents import read_json, write_json
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
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint on a disk."""

    path: Path
    description: Description

    def header(self, layer: str) -> dict[str, StoredTensor]:
        """What is stored of a layer."""
        return read_header(self.path / _file(layer))

    def tensors(self, layer: str) -> dict[str, Tensor]:
        """All that is stored of a layer."""
        return read_tensors(self.path / _file(layer))


def weight_key(parameter: str, version: int) -> str:
    """The name under which a version of a parameter is stored; parameters as the layer has them."""
    return f"weights.{version}/{parameter}"


def state_key(parameter: str, key: str) -> str:
    """The name under which the optimizer's tensor of this key is stored."""
    return f"optimizer.{key}/{parameter}"


def latest_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint of a folder that has most updates; None where there is none."""
    paths = _complete(folder)
    return read_checkpoint(paths[-1]) if paths else None


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint of a folder of its own, such as `update_00000012`."""
    names = ("updates", "batches", "samples_per_batch", "seed", "schedule", "optimizer", "layers")
    document = read_json(path / _DESCRIPTION)
    fields = document.fields(("format", *names))
    if fields["format"].text() != FORMAT:
        raise fields["format"].error(f"is {fields['format'].raw!r}", f"it must be {FORMAT!r}")
    description = Description(
        updates=fields["updates"].integer(minimum=0),
        batches=fields["batches"].integer(minimum=0),
        samples_per_batch=fields["samples_per_batch"].integer(minimum=1),
        seed=fields["seed"].integer(minimum=0),
        schedule=fields["schedule"].text(),
        optimizer=fields["optimizer"].text(),
        layers=tuple(layer.text() for layer in fields["layers"].items()),
    )
    return Checkpoint(path=path, description=description)


def write_layers(folder: Path, updates: int, layers: LayerTensors) -> None:
    """Write layers aside, to become part of the checkpoint of so many updates."""
    aside = _aside(_path(folder, updates))
    aside.mkdir(parents=True, exist_ok=True)
    for layer, tensors in layers.items():
        write_tensors(aside / _file(layer), tensors)


def complete(folder: Path, description: Description, *, kept: int) -> None:
    """Give a checkpoint of which all layers are written its name, and keep the newest `kept`."""
    path = _path(folder, description.updates)
    write_json(_aside(path) / _DESCRIPTION, _document(description))
    if path.exists():  # of a run that went on from before it: the same numbers
        shutil.rmtree(path)
    _aside(path).rename(path)
    _prune(folder, kept)


def _path(folder: Path, updates: int) -> Path:
    return folder / f"update_{updates:08d}"


def _aside(path: Path) -> Path:
    return path.with_name(path.name + _ASIDE)


def _document(description: Description) -> dict[str, object]:
    return {
        "format": FORMAT,
        **{name: getattr(description, name) for name in description.__dataclass_fields__},
        "layers": list(description.layers),
    }


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


def _file(layer: str) -> str:
    return f"{layer}.safetensors"
