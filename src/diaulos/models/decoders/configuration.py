"""A `config.json` of Hugging Face transformers as the sizes of a decoder-only transformer."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from diaulos.documents import Value, read_json
from diaulos.errors import InputError
from diaulos.models.decoders import families
from diaulos.models.decoders.keys import Keys
from diaulos.models.decoders.sizes import DecoderSizes

_FAMILIES: Mapping[str, Callable[[Keys], DecoderSizes]] = MappingProxyType(
    {
        "deepseek_v2": families.deepseek,
        "deepseek_v3": families.deepseek,
        "gemma": families.gemma,
        "gemma2": families.gemma2,
        "gemma3_text": families.gemma3,
        "gpt2": families.gpt2,
        "gpt_neox": families.gpt_neox,
        "llama": families.llama,
        "llama4_text": families.llama4,
        "mistral": families.mistral,
        "mixtral": families.mixtral,
        "opt": families.opt,
        "qwen2": families.qwen2,
        "qwen2_moe": families.qwen2_moe,
        "qwen3": families.qwen3,
        "qwen3_moe": families.qwen3_moe,
    }
)
_WITH_TEXT: Mapping[str, str] = MappingProxyType(
    {"gemma3": "gemma3_text", "llama4": "llama4_text", "mistral3": "mistral"}
)
"""Models that also read images, of which the text part is a family of its own."""


def model_types() -> tuple[str, ...]:
    """The values of `model_type` that have a closed form."""
    return tuple(sorted((*_FAMILIES, *_WITH_TEXT)))


def read_document(path: Path) -> tuple[Value, str]:
    """The document of a `config.json`, or of a folder that has one, and what the model is called.

    That is what the file is called or, of a `config.json`, the folder.
    """
    file = path / "config.json" if path.is_dir() else path
    stem = file.parent.resolve().name if file.name == "config.json" else file.stem
    return read_json(file), stem


def read_config(path: Path) -> DecoderSizes:
    """The sizes in a `config.json`, or in a folder that has one."""
    return parse_config(*read_document(path))


def has_closed_form(document: Value) -> bool:
    """Whether `parse_config` reads configs of its `model_type`, if it has one."""
    kind = document.members().get("model_type")
    return kind is not None and kind.raw in model_types()


def parse_config(document: Value, name: str) -> DecoderSizes:
    """The sizes in the document of a config; of one that also reads images, of its text part."""
    keys = Keys.of(document, name)
    kind = keys.text("model_type")
    if kind in _WITH_TEXT and "text_config" in keys:
        inner = keys.inner("text_config", f"{keys.name} (its text part)")
        return _FAMILIES[_WITH_TEXT[kind]](inner)
    if kind not in _FAMILIES:
        raise _unknown(keys, kind)
    with document.context():
        return _FAMILIES[kind](keys)


def _unknown(keys: Keys, kind: str) -> InputError:
    near = get_close_matches(kind, model_types(), n=3)
    known = ", ".join(model_types())
    others = "pip install 'diaulos[hf]' has others read through transformers"
    remedy = f"did you mean {' or '.join(near)}?" if near else others
    return keys.value("model_type").error(
        f"is {kind!r}, of which no closed form is known", f"there are those of {known}", remedy
    )
