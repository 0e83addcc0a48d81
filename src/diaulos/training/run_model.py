"""What a run file trains: the model."""

from pathlib import Path

import torch

from diaulos.documents import Value
from diaulos.models.factories import find_factory, pretrained_model
from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.layers import LayeredModel


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
    length = sequence_length.integer(minimum=1)
    return pretrained_model(base / value.text(), sequence_length=length)


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
