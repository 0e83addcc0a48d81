"""Text files as tokens: byte by byte, or with a tokenizer's file."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from diaulos.errors import InputError
from diaulos.models.data import StoredType

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PIECE_CHARACTERS = 1 << 20
"""About how much of a text is tokenized at a time; pieces end where lines do."""
_FILE = "tokenizer.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizedText:
    """Where the tokens of a text are, and in what type."""

    path: Path
    stored_as: StoredType


def tokenize(text: Path, tokenizer: Path | None, folder: Path) -> TokenizedText:
    """The tokens of a text file; without a tokenizer its bytes, where they are.

    A tokenizer is a `tokenizer.json`, or a folder with one. What it makes is written to `folder`
    under a name that goes by the content of both files, and is read from there the next time.
    """
    if tokenizer is None:
        return TokenizedText(path=text, stored_as="uint8")
    file = tokenizer / _FILE if tokenizer.is_dir() else tokenizer
    key = hashlib.sha256(_digest(text) + _digest(file)).hexdigest()[:16]
    made = _load(file)
    stored_as: StoredType = "uint16" if made.get_vocab_size() <= 1 << 16 else "uint32"
    path = folder / f"{text.stem}.{key}.{stored_as}.bin"
    if not path.exists():
        _write(made, text, path, stored_as)
    return TokenizedText(path=path, stored_as=stored_as)


def _load(file: Path) -> "Tokenizer":
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise InputError(
            "tokenizers is not installed",
            "it reads files of tokenizers",
            "pip install 'diaulos[hf]', or take the text byte by byte",
        ) from None
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - its own errors are plain exceptions
        raise InputError("is no tokenizer", str(error), where=str(file)) from None


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def _write(tokenizer: "Tokenizer", text: Path, path: Path, stored_as: StoredType) -> None:
    """Write the tokens of a text; ranks that do so at the same time write the same."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            for piece in _pieces(text):
                tokens = tokenizer.encode(piece, add_special_tokens=False).ids
                file.write(np.asarray(tokens, np.dtype(stored_as).newbyteorder("<")).tobytes())
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def _pieces(text: Path) -> Iterator[str]:
    try:
        with text.open(encoding="utf-8", newline="") as file:
            while lines := file.readlines(_PIECE_CHARACTERS):
                yield "".join(lines)
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", where=str(text)) from None
