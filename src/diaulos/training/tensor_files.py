"""Named tensors in a file, in the safetensors format: nothing in it is ever executed.

Eight bytes with the length of the header, the header in JSON (type, shape and place of each
tensor), and the tensors one behind the other. Any tool that knows the format reads these files.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from diaulos.errors import InputError

_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """What the header says of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    """In bytes, behind the header."""
    end: int


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors to a file, and wait until the disk has them."""
    header, begin = {}, 0
    for name, tensor in tensors.items():
        end = begin + tensor.nbytes
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())


def read_header(path: Path) -> dict[str, StoredTensor]:
    """What is in a file, without reading it; an `InputError` if it is not whole."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            header = json.loads(file.read(min(length, path.stat().st_size)))
        stored = {name: _stored(entry) for name, entry in header.items() if name[:2] != "__"}
        size_bytes = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("is not a file of tensors", where=str(path)) from None
    wanted = _LENGTH_BYTES + length + max((entry.end for entry in stored.values()), default=0)
    if size_bytes != wanted:
        raise InputError(
            f"holds {size_bytes} bytes", f"its header speaks of {wanted}", where=str(path)
        )
    return stored


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file."""
    stored = read_header(path)
    content = bytearray(path.read_bytes())
    start = len(content) - max((entry.end for entry in stored.values()), default=0)
    return {name: _tensor(content, start, entry) for name, entry in stored.items()}


def _stored(entry: dict[str, Any]) -> StoredTensor:
    begin, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    return StoredTensor(dtype=_TYPES[entry["dtype"]], shape=shape, begin=begin, end=end)


def _tensor(content: bytearray, start: int, entry: StoredTensor) -> Tensor:
    if entry.begin == entry.end:
        return torch.empty(entry.shape, dtype=entry.dtype)
    count = (entry.end - entry.begin) // entry.dtype.itemsize
    flat = torch.frombuffer(content, dtype=entry.dtype, count=count, offset=start + entry.begin)
    return flat.reshape(entry.shape).clone()
