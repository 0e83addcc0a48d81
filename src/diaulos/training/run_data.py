"""The data of a run file: files of tokens, text, or a source of the user's own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from diaulos.documents import Value
from diaulos.errors import InputError
from diaulos.models.data import STORED_TYPES, StoredType, TokenData
from diaulos.models.factories import find_factory
from diaulos.models.layers import LayeredModel, as_stream
from diaulos.models.megatron_data import read_index
from diaulos.models.tokenizing import tokenize
from diaulos.training.links import EdgeForm
from diaulos.training.objective import BatchSource

_SOURCES = ("tokens", "megatron", "text", "source")
SOURCE_KEYS = (*_SOURCES, "stored_as", "tokenizer", "share")
"""The keys that say what is read; the held-out data have them as well."""
_ONLY_WITH = {"stored_as": "tokens", "tokenizer": "text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBatches:
    """Microbatches of a token file as tensors; a pure function of batch and microbatch."""

    data: TokenData
    seed: int
    microbatch_size: int

    def __call__(self, batch: int, microbatch: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets, [samples, positions] whole numbers."""
        inputs, targets = self.data.microbatch(
            seed=self.seed, batch=batch, microbatch=microbatch, size=self.microbatch_size
        )
        return torch.from_numpy(inputs), torch.from_numpy(targets)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """What all data of a run have in common."""

    base: Path
    """To which paths are relative."""
    folder: Path
    """Where tokens that are made of text are kept."""
    model: LayeredModel
    seed: int
    microbatch_size: int

    def parse(self, value: Value) -> BatchSource:
        """The microbatches of a data table."""
        fields = value.fields((), (*SOURCE_KEYS, "sequence_length"))
        _check_keys(value, fields)
        if "source" in fields:
            with value.context():
                source: BatchSource = find_factory(fields["source"].text())()
            return source
        share = _parse_share(fields["share"]) if "share" in fields else (0.0, 1.0)
        vocabulary = self.model.settings.get("vocabulary")
        path, stored_as = self._tokens(fields)
        with value.context():
            data = TokenData(
                path=path,
                sequence_length=self.model.tokens_per_sample,
                stored_as=stored_as,
                share=share,
                vocabulary=None if vocabulary is None else int(vocabulary),
            )
        return TokenBatches(data=data, seed=self.seed, microbatch_size=self.microbatch_size)

    def _tokens(self, fields: Mapping[str, Value]) -> tuple[Path, StoredType]:
        """The file of tokens, and how they are stored."""
        if "tokens" in fields:
            return self.base / fields["tokens"].text(), _parse_stored(fields.get("stored_as"))
        if "megatron" in fields:
            indexed = read_index(self.base / fields["megatron"].text())
            return indexed.path, indexed.stored_as
        tokenizer = fields["tokenizer"].text() if "tokenizer" in fields else "bytes"
        made = tokenize(
            self.base / fields["text"].text(),
            None if tokenizer == "bytes" else self.base / tokenizer,
            self.folder,
        )
        return made.path, made.stored_as


def check_inputs(model: LayeredModel, data: BatchSource, microbatch_size: int) -> None:
    """Refuse data whose microbatches have another form than the model's example."""
    expected, _ = model.example(microbatch_size)
    found, _ = data(0, 0)
    wanted, given = (EdgeForm.of(as_stream(inputs)) for inputs in (expected, found))
    if wanted != given:
        raise InputError(f"a microbatch of the data is {given}", f"the model takes {wanted}")


def _check_keys(value: Value, fields: Mapping[str, Value]) -> None:
    """Refuse a table that names no data or two, or a key that says nothing of them."""
    named = [key for key in _SOURCES if key in fields]
    if len(named) != 1:
        found = "neither tokens nor source" if not named else " and ".join(named)
        raise value.error(f"has {found}", f"a run reads one of {', '.join(_SOURCES)}")
    for key, needed in _ONLY_WITH.items():
        if key in fields and needed not in fields:
            raise fields[key].error("is given", f"it says how {needed} is read", f"leave {key} out")
    if "share" in fields and "source" in fields:
        raise fields["share"].error("is given", "only files are shared out", "leave share out")


def _parse_stored(value: Value | None) -> StoredType:
    if value is None:
        return "uint8"
    known: dict[str, StoredType] = {name: name for name in STORED_TYPES}
    if value.text() not in known:
        raise value.error(f"is {value.raw!r}", f"it is {' or '.join(known)}")
    return known[value.text()]


def _parse_share(value: Value) -> tuple[float, float]:
    parts = value.items()
    if len(parts) != 2:
        raise value.error(f"has {len(parts)} numbers", "it must have two, such as [0.0, 0.9]")
    return parts[0].number(), parts[1].number()
