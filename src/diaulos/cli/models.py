"""The flags that say which model: a config, or a few sizes."""

from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from cyclopts import Parameter

from diaulos.errors import InputError
from diaulos.models.decoders.configuration import has_closed_form, parse_config, read_document
from diaulos.models.decoders.inline import gpt_sizes
from diaulos.models.decoders.operations import decoder_operations
from diaulos.models.operations import Model


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """The sizes of a GPT, instead of a config."""

    hidden: int | None = None
    """Width of the hidden state."""
    layers: int | None = None
    """Transformer blocks."""
    heads: int | None = None
    """Of attention."""
    vocab: int | None = None
    """Entries of the vocabulary."""
    kv_heads: int | None = None
    """Of keys and values; as many as heads unless given."""
    ffn: int | None = None
    """Width of the network, or of each expert; 4 times hidden unless given."""
    experts: int | None = None
    """Of each block; one network unless given."""
    active_experts: int = 2
    """Experts that a token takes."""

    def model(self, config: Path | None, sequence_length: int) -> Model:
        """Of the config, or of the flags; one of the two must be given."""
        needed = {
            "--hidden": self.hidden,
            "--layers": self.layers,
            "--heads": self.heads,
            "--vocab": self.vocab,
        }
        given = [flag for flag, value in needed.items() if value is not None]
        if config is not None:
            if given:
                raise InputError(
                    f"{', '.join(given)} given beside {config}",
                    "a model is a config or sizes, not both",
                )
            return read_model(config)
        missing = [flag for flag, value in needed.items() if value is None]
        if missing:
            raise InputError(
                f"{', '.join(missing)} not given",
                "a model is a config.json, or --hidden, --layers, --heads and --vocab",
            )
        assert self.hidden is not None
        assert self.layers is not None
        assert self.heads is not None
        assert self.vocab is not None
        sizes = gpt_sizes(
            hidden=self.hidden,
            layers=self.layers,
            heads=self.heads,
            vocabulary=self.vocab,
            positions=sequence_length,
            key_value_heads=self.kv_heads,
            width=self.ffn,
            experts=self.experts,
            active_experts=self.active_experts,
        )
        return partial(decoder_operations, sizes)


def is_factory(config: Path) -> bool:
    """Whether it is the `module:factory` of a torch module, and no file."""
    return ":" in config.name and not config.exists()


def read_model(config: Path) -> Model:
    """By closed form where there is one; else through transformers, where it is installed."""
    if is_factory(config):
        from diaulos.models.traced.module import made_module  # noqa: PLC0415 - loads torch

        return made_module(str(config))
    document, name = read_document(config)
    installed = all(find_spec(package) for package in ("torch", "transformers"))
    if has_closed_form(document) or not installed:
        return partial(decoder_operations, parse_config(document, name))
    from diaulos.models.traced.model import parse_model  # noqa: PLC0415 - takes seconds

    return parse_model(document, name)
