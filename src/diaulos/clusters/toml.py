"""A document as TOML."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def toml_text(document: Mapping[str, Any], comments: Mapping[tuple[str, ...], str]) -> str:
    """A document as TOML; values whose keys from the top are in `comments` get that text behind.

    Within a table, plain values come before tables, as TOML wants it.
    """
    return _table(document, (), comments)


def _table(
    table: Mapping[str, Any], path: tuple[str, ...], comments: Mapping[tuple[str, ...], str]
) -> str:
    plain = {key: value for key, value in table.items() if not _is_table(value)}
    text = "".join(
        f"{key} = {_scalar(value)}{_comment(comments.get((*path, key)))}\n"
        for key, value in plain.items()
    )
    for key, value in table.items():
        if isinstance(value, Mapping):
            inner = (*path, key)
            text += f"\n[{'.'.join(inner)}]\n" + _table(value, inner, comments)
        elif _is_table(value):
            inner = (*path, key)
            for each in value:
                text += f"\n[[{'.'.join(inner)}]]\n" + _table(each, inner, comments)
    return text


def _comment(text: str | None) -> str:
    return "" if text is None else f"  # {text}"


def _is_table(value: object) -> bool:
    """Whether a value is a table or a list of tables."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return any(isinstance(each, Mapping) for each in value)
    return isinstance(value, Mapping)


def _scalar(value: object) -> str:
    if isinstance(value, str):
        # TOML's strings are JSON's, but that it wants the one control character DEL escaped too.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Sequence):
        return f"[{', '.join(_scalar(each) for each in value)}]"
    return repr(value)
