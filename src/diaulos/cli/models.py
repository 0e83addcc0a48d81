"""The flags that say which model: a config, or a few sizes."""

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from diaulos.errors import InputError
from diaulos.models.decoders.configuration import read_config
from diaulos.models.decoders.inline import gpt_sizes
from diaulos.models.decoders.sizes import DecoderSizes


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

    def sizes(self, config: Path | None, sequence_length: int) -> DecoderSizes:
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
            return read_config(config)
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
        return gpt_sizes(
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
