"""Weights in a folder of safetensors files, read tensor by tensor."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from diaulos.errors import InputError

INDEX = "model.safetensors.index.json"
_MOST_NAMED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFolder:
    """The tensors of a folder; no more than one of them is in memory at a time."""

    folder: Path
    files: Mapping[str, str]
    """The file of each tensor."""

    def tensor(self, name: str) -> Tensor:
        """One of the tensors, on the CPU."""
        if name not in self.files:
            raise InputError(f"lacks {name}", where=str(self.folder))
        with safe_open(self.folder / self.files[name], framework="pt") as file:
            found: Tensor = file.get_tensor(name)
        return found

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all tensors, from the files' headers."""
        found = {}
        for file_name in dict.fromkeys(self.files.values()):
            with safe_open(self.folder / file_name, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - not a mapping
                    found[name] = tuple(file.get_slice(name).get_shape())
        return found


def open_weights(folder: Path) -> WeightFolder | None:
    """The weights of a folder in Hugging Face's layout; None where it has none."""
    index = folder / INDEX
    if index.is_file():
        return WeightFolder(folder=folder, files=_indexed(index))
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        return None
    files: dict[str, str] = {}
    for name in names:
        try:
            with safe_open(folder / name, framework="pt") as file:
                files.update(dict.fromkeys(file.keys(), name))
        except SafetensorError as error:
            raise InputError(f"is not whole: {error}", where=str(folder / name)) from None
    return WeightFolder(folder=folder, files=files)


def _indexed(index: Path) -> dict[str, str]:
    try:
        files = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (ValueError, KeyError, TypeError):
        raise InputError("is not an index of safetensors files", where=str(index)) from None
    missing = sorted({name for name in files.values() if not (index.parent / name).is_file()})
    if missing:
        raise InputError(
            f"names {', '.join(missing[:_MOST_NAMED])}", "no such file is there", where=str(index)
        )
    return dict(files)


def check_weights(
    weights: WeightFolder, wanted: Mapping[str, tuple[int, ...]], stages: Mapping[str, int]
) -> None:
    """Refuse a folder that lacks tensors or has them in other shapes; at most ten are named.

    `wanted` and `stages` go by the names in the files. Reads headers only.
    """
    found = weights.shapes()
    problems = [
        f"lacks {name}, {list(shape)} on stage {stages[name]}"
        if name not in found
        else f"has {name} as {list(found[name])}, which is {list(shape)} on stage {stages[name]}"
        for name, shape in wanted.items()
        if found.get(name) != shape
    ]
    if problems:
        more = len(problems) - _MOST_NAMED
        named = "; ".join(problems[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
        raise InputError(named, where=str(weights.folder))
