"""What a run file trains, and on what: the model and the data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from diaulos.documents import Value
from diaulos.errors import InputError
from diaulos.models.data import TokenData
from diaulos.models.factories import find_factory
from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.layers import LayeredModel, as_stream
from diaulos.training.links import EdgeForm
from diaulos.training.objective import BatchSource

_STORED = ("uint8", "uint16")


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


def parse_model(
    value: Value, base: Path, *, seed: int, sequence_length: Value | None
) -> LayeredModel:
    """The model of a run file: the sizes of a GPT, a path to a Hugging Face model, or a factory.

    A factory is called with the same random numbers on every rank, those of the seed.
    """
    if not isinstance(value.raw, str):
        return gpt(_parse_gpt(value))
    if ":" not in value.text() or (base / value.text()).exists():
        return _pretrained(value, base, sequence_length)
    with torch.random.fork_rng(devices=[]), value.context():
        torch.manual_seed(seed)
        made = find_factory(value.text())()
    if not isinstance(made, LayeredModel):
        raise value.error(
            f"is {value.text()!r}, which returned a {type(made).__name__}",
            "a factory of what is trained returns a LayeredModel",
            "diaulos.models.exported makes one of any module or list of modules",
        )
    return made


def _pretrained(value: Value, base: Path, sequence_length: Value | None) -> LayeredModel:
    if sequence_length is None:
        raise value.error(
            "is a path", "a run of such a model says how long samples are", "data.sequence_length"
        )
    try:
        # Takes seconds to import, and only these models need it.
        from diaulos.models.huggingface.model import read_pretrained  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise value.error(
            f"needs {error.name}",
            "Hugging Face models are built by transformers",
            "pip install 'diaulos[hf]'",
        ) from None
    return read_pretrained(base / value.text(), sequence_length=sequence_length.integer(minimum=1))


def freeze(model: LayeredModel, names: Sequence[Value]) -> LayeredModel:
    """The model whose layers of these names are not trained."""
    known = [spec.name for spec in model.layers]
    for name in names:
        if name.text() not in known:
            raise name.error(f"is {name.raw!r}", f"there are the layers {', '.join(known)}")
    frozen = {name.text() for name in names}
    layers = [replace(spec, frozen=spec.frozen or spec.name in frozen) for spec in model.layers]
    return replace(model, layers=tuple(layers))


def _parse_gpt(value: Value) -> GPTConfig:
    sizes = ("layers", "width", "heads", "sequence_length")
    fields = value.fields(sizes, ("vocabulary", "dropout", "tied"))
    with value.context():
        return GPTConfig(
            **{
                key: fields[key].integer(minimum=1)
                for key in (*sizes, "vocabulary")
                if key in fields
            },
            dropout=fields["dropout"].number() if "dropout" in fields else 0.0,
            tied=fields["tied"].boolean() if "tied" in fields else False,
        )


def parse_data(
    value: Value, base: Path, *, tokens_per_sample: int, seed: int, microbatch_size: int
) -> BatchSource:
    """The microbatches of a data table: of a file of tokens, or of a source of the user's own."""
    members = value.fields((), ("tokens", "source", "stored_as", "sequence_length"))
    if "source" in members:
        with value.context():
            source: BatchSource = find_factory(members["source"].text())()
        return source
    stored_as = members["stored_as"].text() if "stored_as" in members else "uint8"
    if stored_as not in _STORED:
        raise members["stored_as"].error(f"is {stored_as!r}", f"it is {' or '.join(_STORED)}")
    if "tokens" not in members:
        raise value.error("has neither tokens nor source", "a run reads one of the two")
    data = TokenData(
        path=base / members["tokens"].text(),
        sequence_length=tokens_per_sample,
        stored_as="uint8" if stored_as == "uint8" else "uint16",
    )
    return TokenBatches(data=data, seed=seed, microbatch_size=microbatch_size)


def check_inputs(model: LayeredModel, data: BatchSource, microbatch_size: int) -> None:
    """Refuse data whose microbatches have another form than the model's example."""
    expected, _ = model.example(microbatch_size)
    found, _ = data(0, 0)
    wanted, given = (EdgeForm.of(as_stream(inputs)) for inputs in (expected, found))
    if wanted != given:
        raise InputError(f"a microbatch of the data is {given}", f"the model takes {wanted}")
