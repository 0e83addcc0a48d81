"""Training text: tokens in a flat file, and the microbatches drawn from it."""

import math
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from diaulos.errors import InputError

_PHILOX_WORDS_PER_COUNTER = 4
_SEED_LIMIT = 2**64

StoredType = Literal["uint8", "uint16", "uint32", "int32", "int64"]
STORED_TYPES: tuple[StoredType, ...] = get_args(StoredType)
Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenData:
    """Windows of a flat file of tokens, memory-mapped when read.

    `uint8` is the byte-level file that `write_tokens` writes; the others (little-endian) are what
    preparations of larger vocabularies write: nanoGPT `uint16`, Megatron-LM `uint16` or `int32`.
    """

    path: Path
    sequence_length: int
    stored_as: StoredType = "uint8"
    share: tuple[float, float] = (0.0, 1.0)
    """From where to where in the file samples are taken, of its length: what is held out is what
    training leaves."""
    vocabulary: int | None = None
    """How many different tokens the model knows, None for any."""

    def __post_init__(self) -> None:
        if self.sequence_length < 1:
            raise InputError(f"sequence_length is {self.sequence_length}", "it must be at least 1")
        try:
            size_bytes = self.path.stat().st_size
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(self.path)) from None
        if size_bytes % self._type.itemsize:
            raise InputError(
                f"holds {size_bytes} bytes",
                f"a file of {self.stored_as} tokens has a multiple of {self._type.itemsize}",
                where=str(self.path),
            )
        if not 0 <= self.share[0] < self.share[1] <= 1:
            raise InputError(
                f"share is {list(self.share)}", "it begins at 0 or later and ends after that, by 1"
            )
        if len(self._range) <= self.sequence_length:
            raise InputError(
                f"holds {len(self._range)} tokens",
                f"a sample takes {self.sequence_length + 1}: the sequence and the token after it",
                "give a longer text or a shorter sequence_length",
                where=str(self.path),
            )

    @property
    def tokens(self) -> int:
        """Tokens in the file."""
        return self.path.stat().st_size // self._type.itemsize

    @property
    def _range(self) -> range:
        """The tokens that samples are taken from."""
        first, end = (math.floor(self.tokens * part) for part in self.share)
        return range(first, end)

    def microbatch(
        self, *, seed: int, batch: int, microbatch: int, size: int
    ) -> tuple[Tokens, Tokens]:
        """Inputs and targets, each [size, sequence_length]; the targets are one token later.

        A pure function of its arguments: every rank can draw its own, and a resumed run goes on
        exactly. Row r is sample `microbatch * size + r` of the batch, so that the samples of a
        batch do not depend on how it is cut into microbatches of equal size.
        """
        starts = self._starts(seed, batch, first_sample=microbatch * size, samples=size)
        # Mapped anew at each call: a mapping kept in the object would travel to ranks as a copy.
        tokens = np.memmap(self.path, dtype=self._type, mode="r")
        windows = np.stack([tokens[start : start + self.sequence_length + 1] for start in starts])
        windows = windows.astype(np.int64)
        self._check_known(windows)
        return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])

    def _starts(self, seed: int, batch: int, *, first_sample: int, samples: int) -> list[int]:
        for name, value in (("seed", seed), ("batch", batch), ("first sample", first_sample)):
            if not 0 <= value < _SEED_LIMIT:
                raise InputError(f"{name} is {value}", "it must be at least 0 and below 2**64")
        if samples < 1:
            raise InputError(f"the microbatch size is {samples}", "it must be at least 1")
        # Raw words, one counter a sample: NumPy keeps these the same in all its releases, which
        # it does not promise of Generator's methods.
        key = np.array([seed, batch], dtype=np.uint64)
        words = np.random.Philox(key=key, counter=first_sample).random_raw(
            samples * _PHILOX_WORDS_PER_COUNTER
        )
        tokens = self._range
        windows = len(tokens) - self.sequence_length
        picked = (int(word) % windows for word in words[::_PHILOX_WORDS_PER_COUNTER])
        return [tokens.start + window for window in picked]

    def _check_known(self, windows: Tokens) -> None:
        """Refuse tokens that the model has not: they would fail within it, without their file."""
        least, most = int(windows.min()), int(windows.max())
        if least < 0 or (self.vocabulary is not None and most >= self.vocabulary):
            known = (
                f"below {self.vocabulary}, the model's vocabulary" if least >= 0 else "at least 0"
            )
            raise InputError(
                f"holds the token {most if least >= 0 else least}, read as {self.stored_as}",
                f"tokens are {known}",
                "check stored_as and the model's vocabulary",
                where=str(self.path),
            )

    @property
    def _type(self) -> np.dtype[np.integer]:
        return np.dtype(self.stored_as).newbyteorder("<")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text and where it comes from."""

    content: str
    origin: str


def write_tokens(text: str, path: Path) -> None:
    """Write a text as byte-level tokens: the bytes of its UTF-8 form, a `uint8` each."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(text.encode("utf-8"))
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def demo_text() -> Text:
    """English text that every Python has: its language reference, else its library's sources."""
    try:
        from pydoc_data.topics import topics  # noqa: PLC0415 - some distributions leave it out
    except ImportError:
        return _library_sources()
    content = "\n\n".join(topics[name] for name in sorted(topics))
    return Text(content=content, origin="Python's language reference (pydoc_data.topics)")


def _library_sources() -> Text:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    content = "\n\n".join(file.read_text(encoding="utf-8", errors="replace") for file in files)
    return Text(
        content=content,
        origin="sources of Python's standard library (this Python lacks pydoc_data.topics)",
    )
