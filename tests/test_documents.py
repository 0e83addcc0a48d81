"""Values of documents know their place, so that every complaint names it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from diaulos.documents import Value, read_json, read_toml, write_json
from diaulos.errors import InputError
from diaulos.units import parse_bytes


def value(raw: object) -> Value:
    return Value(raw, "$.here", "file.json")


def message_of(action: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        action()
    return str(caught.value)


def test_members_and_items_extend_the_path() -> None:
    """A value deep inside has its whole path."""
    deep = Value({"a": [{"b": 1}, {"b": -2}]}, "$", "x.json").members()["a"].items()[1]
    assert deep.members()["b"].path == "$.a[1].b"
    assert message_of(deep.members()["b"].number) == (
        "x.json: $.a[1].b is -2; it must be finite and at least 0"
    )


@pytest.mark.parametrize(
    ("raw", "take", "message"),
    [
        ([], Value.members, "is an array; it must be an object"),
        ({}, Value.items, "is an object; it must be an array"),
        ("1", Value.number, "is a string ('1'); it must be a number"),
        (True, Value.number, "is a boolean (True); it must be a number"),
        (1.5, Value.integer, "is a number (1.5); it must be a whole number"),
        (True, Value.integer, "is a boolean (True); it must be a whole number"),
        (None, Value.text, "is null; it must be a string"),
        (0, Value.boolean, "is a number (0); it must be true or false"),
        (float("inf"), Value.number, "is inf; it must be finite and at least 0"),
    ],
)
def test_wrong_types(raw: object, take: Callable[[Value], object], message: str) -> None:
    """A value of another type is refused, with what it is and what it must be."""
    assert message_of(lambda: take(value(raw))) == f"file.json: $.here {message}"


def test_bounds() -> None:
    """Bounds are part of the complaint."""
    assert message_of(lambda: value(0).number(above=0)).endswith(
        "$.here is 0; it must be finite and above 0"
    )
    assert message_of(lambda: value(0).integer(minimum=1)).endswith(
        "$.here is 0; it must be at least 1"
    )
    assert value(3).number(above=0) == 3.0


def test_fields_must_be_complete_and_known() -> None:
    """A key that is missing or unknown is named, with those that there are."""
    assert message_of(lambda: value({}).fields(("a",))).endswith("lacks the key 'a'; it needs a")
    assert message_of(lambda: value({"a": 1, "c": 2}).fields(("a",), ("b",))).endswith(
        "has the unknown key 'c'; known are a, b"
    )
    assert set(value({"a": 1}).fields(("a",), ("b",))) == {"a"}


def test_text_with_units_is_parsed() -> None:
    """A number stands for itself, text goes through the parser, and its errors get the place."""
    assert value(7).parsed(parse_bytes) == 7.0
    assert value("7KiB").parsed(parse_bytes) == 7168.0
    assert message_of(lambda: value("7 miles").parsed(parse_bytes)).startswith(
        "file.json: $.here: '7 miles' is not a size"
    )


def test_json_is_written_and_read(tmp_path: Path) -> None:
    """A document is read as it was written, and no partial file is left behind."""
    path = tmp_path / "new folder" / "x.json"
    write_json(path, {"a": [1, 2.5, "text", None, True]})
    assert read_json(path).raw == {"a": [1, 2.5, "text", None, True]}
    assert [entry.name for entry in path.parent.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON: Expecting value at line 1, column 1"),
        ('{"a": 1,\n}', "not JSON: "),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice in one object"),
        ('{"a": NaN}', "the number NaN stands in the file; numbers must be finite"),
    ],
)
def test_what_is_no_json(text: str, message: str, tmp_path: Path) -> None:
    """The file is named, and the place in it."""
    path = tmp_path / "x.json"
    path.write_text(text)
    found = message_of(lambda: read_json(path))
    assert found.startswith(f"{path}: ")
    assert message in found


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder, and bytes that are no text are told by name."""
    assert message_of(lambda: read_json(tmp_path / "none.json")) == (
        f"{tmp_path / 'none.json'}: cannot be read: No such file or directory"
    )
    assert "cannot be read" in message_of(lambda: read_json(tmp_path))
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in message_of(lambda: read_json(tmp_path / "x"))
    (tmp_path / "x.toml").write_text("a = = 1")
    assert "not TOML" in message_of(lambda: read_toml(tmp_path / "x.toml"))


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    """Writing below a file is an error in words."""
    (tmp_path / "file").write_text("")
    assert "cannot be written" in message_of(lambda: write_json(tmp_path / "file" / "x.json", {}))
