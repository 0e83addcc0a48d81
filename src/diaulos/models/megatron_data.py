"""Megatron-LM's indexed datasets: a `.bin` of tokens and an `.idx` that says how to read it.

The index is, little-endian: nine bytes `MMIDIDX` and two zeros, a version of eight bytes, a code
of one byte for the type of the tokens, the numbers of sequences and of documents of eight bytes
each, and then the length of each sequence (`indexed_dataset.py` of Megatron-LM).
The tokens of all sequences stand one after another.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from diaulos.errors import InputError
from diaulos.models.data import StoredType

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_VERSION = 1
_TYPES: tuple[tuple[int, StoredType], ...] = (
    (1, "uint8"),
    (4, "int32"),
    (5, "int64"),
    (8, "uint16"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedTokens:
    """Where the tokens of an indexed dataset are, and in what type."""

    path: Path
    stored_as: StoredType


def read_index(prefix: Path) -> IndexedTokens:
    """The tokens of `prefix.bin`, as `prefix.idx` describes them.

    Raises `InputError` where the index is none, or is of other tokens.
    """
    index, tokens = (prefix.with_name(prefix.name + suffix) for suffix in (".idx", ".bin"))
    try:
        content = np.memmap(index, dtype=np.uint8, mode="r")
        held_bytes = tokens.stat().st_size
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(error.filename)) from None
    except ValueError:
        raise InputError("is empty", where=str(index)) from None
    if len(content) < _HEADER.size or bytes(content[: len(_MAGIC)]) != _MAGIC:
        raise InputError("is no index of Megatron-LM", "it begins with MMIDIDX", where=str(index))
    _, version, code, sequences, _ = _HEADER.unpack(bytes(content[: _HEADER.size]))
    known = dict(_TYPES)
    if version != _VERSION or code not in known:
        raise InputError(
            f"has version {version} and type {code}",
            f"known are version {_VERSION} and the types {', '.join(map(str, known))}",
            where=str(index),
        )
    end = _HEADER.size + 4 * sequences
    if len(content) < end:
        raise InputError(f"ends within the lengths of {sequences} sequences", where=str(index))
    stated = int(content[_HEADER.size : end].view("<i4").sum(dtype=np.int64))
    held = held_bytes // np.dtype(known[code]).itemsize
    if stated != held:
        raise InputError(
            f"states {stated} tokens", f"{tokens.name} beside it holds {held}", where=str(index)
        )
    return IndexedTokens(path=tokens, stored_as=known[code])
