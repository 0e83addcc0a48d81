"""The keys of a `config.json`, taken out with checks that name them."""

from collections.abc import Mapping
from dataclasses import dataclass

from diaulos.documents import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The members of a config; keys that say nothing of sizes are passed over."""

    name: str
    """Of the model."""
    document: Value
    members: Mapping[str, Value]

    @classmethod
    def of(cls, document: Value, name: str) -> "Keys":
        """The keys of a document; the model is called as it says itself, or by `name`."""
        members = document.members()
        stated = members.get("_name_or_path")
        if stated is not None and isinstance(stated.raw, str) and stated.raw:
            name = stated.raw
        return cls(name=name or "model", document=document, members=members)

    def __contains__(self, key: str) -> bool:
        found = self.members.get(key)
        return found is not None and found.raw is not None

    def value(self, key: str) -> Value:
        """The value of a key that must be there."""
        if key not in self:
            raise self.document.error(f"lacks the key {key!r}", "the sizes of a model are needed")
        return self.members[key]

    def inner(self, key: str, name: str) -> "Keys":
        """The keys of a config inside this one."""
        document = self.value(key)
        return Keys(name=name, document=document, members=document.members())

    def text(self, key: str) -> str:
        """A string."""
        return self.value(key).text()

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1; needed unless there is a default."""
        if default is not None and key not in self:
            return default
        return self.value(key).integer(minimum=1)

    def number(self, key: str, default: int) -> int:
        """A whole number of at least 0."""
        return self.value(key).integer(minimum=0) if key in self else default

    def optional(self, key: str) -> int | None:
        """A whole number of at least 1, or None where the key is absent or null."""
        return self.value(key).integer(minimum=1) if key in self else None

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        return self.value(key).boolean() if key in self else default

    def rate(self, key: str, default: float) -> float:
        """A number of at least 0, as of dropout."""
        return self.value(key).number() if key in self else default

    def numbers(self, key: str) -> tuple[int, ...]:
        """A list of whole numbers; empty where the key is absent."""
        if key not in self:
            return ()
        return tuple(value.integer(minimum=0) for value in self.value(key).items())

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of strings; empty where the key is absent."""
        return tuple(value.text() for value in self.value(key).items()) if key in self else ()

    def share(self, whole_key: str, parts_key: str) -> int:
        """One number divided by another that must divide it: the hidden size of one head."""
        whole, parts = self.count(whole_key), self.count(parts_key)
        if whole % parts:
            raise self.value(parts_key).error(
                f"is {parts} and {whole_key} is {whole}",
                f"{whole_key} must be a multiple of {parts_key}",
            )
        return whole // parts
