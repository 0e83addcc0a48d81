"""Values of a JSON or TOML document, taken out with checks that name their place.

A `Value` knows the file it came from and its path in it, so that every complaint reads like
`bert.json: $.nodes[3].TMPCs.2[0].timePerSample is -1.0; it must be ...`.
"""

import json
import math
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diaulos.errors import InputError


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a document, with its place."""

    raw: object
    path: str
    source: str

    def error(self, problem: str, rule: str = "", remedy: str = "") -> InputError:
        """The error that this value has the problem."""
        return InputError(f"{self.path} {problem}", rule, remedy, where=self.source)

    def fields(
        self, required: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> dict[str, "Value"]:
        """The members of an object that has all `required` keys and no unknown ones."""
        members = self.members()
        known = (*required, *optional)
        for key in required:
            if key not in members:
                raise self.error(f"lacks the key {key!r}", f"it needs {', '.join(required)}")
        for key in members:
            if key not in known:
                raise self.error(f"has the unknown key {key!r}", f"known are {', '.join(known)}")
        return members

    def members(self) -> dict[str, "Value"]:
        """The members of an object, by key."""
        if not isinstance(self.raw, dict):
            raise self._wrong_type("an object")
        return {
            key: Value(value, f"{self.path}.{key}", self.source) for key, value in self.raw.items()
        }

    def items(self) -> list["Value"]:
        """The elements of an array."""
        if not isinstance(self.raw, list):
            raise self._wrong_type("an array")
        return [
            Value(value, f"{self.path}[{index}]", self.source)
            for index, value in enumerate(self.raw)
        ]

    def number(self, *, above: float | None = None) -> float:
        """A finite number of at least 0, or above the bound given."""
        if isinstance(self.raw, bool) or not isinstance(self.raw, int | float):
            raise self._wrong_type("a number")
        number = float(self.raw)
        rule = "it must be finite and " + ("at least 0" if above is None else f"above {above:g}")
        if not math.isfinite(number) or number < 0 or (above is not None and number <= above):
            raise self.error(f"is {self.raw!r}", rule)
        return number

    def integer(self, *, minimum: int | None = None) -> int:
        """A whole number, of at least `minimum` where one is given."""
        if isinstance(self.raw, bool) or not isinstance(self.raw, int):
            raise self._wrong_type("a whole number")
        if minimum is not None and self.raw < minimum:
            raise self.error(f"is {self.raw}", f"it must be at least {minimum}")
        return self.raw

    def boolean(self) -> bool:
        """True or false."""
        if not isinstance(self.raw, bool):
            raise self._wrong_type("true or false")
        return self.raw

    def text(self) -> str:
        """A string."""
        if not isinstance(self.raw, str):
            raise self._wrong_type("a string")
        return self.raw

    def parsed(self, parse: Callable[[str], float]) -> float:
        """A number, or a string with a unit that `parse` understands."""
        if not isinstance(self.raw, str):
            return self.number()
        with self.context():
            return parse(self.raw)

    @contextmanager
    def context(self) -> Iterator[None]:
        """Errors raised inside that do not know a place get this value's."""
        try:
            yield
        except InputError as error:
            if error.where:
                raise
            raise error.at(f"{self.source}: {self.path}") from None

    def _wrong_type(self, expected: str) -> InputError:
        names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
        found = names.get(type(self.raw), "a number" if self.raw is not None else "null")
        shown = "" if isinstance(self.raw, dict | list | None) else f" ({self.raw!r})"
        return self.error(f"is {found}{shown}", f"it must be {expected}")


def read_json(path: Path) -> Value:
    """The document of a JSON file; a key that stands twice is an error."""
    text = read_text(path)
    try:
        raw = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        problem = f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise InputError(problem, where=str(path)) from None
    except InputError as error:
        raise error.at(str(path)) from None
    return Value(raw, "$", str(path))


def read_toml(path: Path) -> Value:
    """The document of a TOML file."""
    return parse_toml(read_text(path), str(path))


def parse_toml(text: str, source: str) -> Value:
    """The document of a text of TOML; complaints name the source."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"not TOML: {error}", where=source) from None
    return Value(raw, "$", source)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document, so that nobody ever sees half of it."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text, so that nobody ever sees half of it."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None


def read_text(path: Path) -> str:
    """The text of a file; what keeps it from being read is an error with its name."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", where=str(path)) from None


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"the key {twice!r} stands twice in one object", "keys must be unique")
    return members


def _no_constant(name: str) -> object:
    raise InputError(f"the number {name} stands in the file", "numbers must be finite")
