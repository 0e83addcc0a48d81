"""Layouts are printed as Megatron-LM writes them, and read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.exporting.layout import parse_layout, print_layout


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40))
def test_what_is_printed_is_read_back(shares: list[int]) -> None:
    """Any shares of blocks, none included."""
    assert parse_layout(print_layout(shares)) == tuple(shares)


def test_a_published_layout() -> None:
    """Issue case C2: DeepSeek-V3 on 8 ranks of 4 stages."""
    shares = (3, *[2] * 29, 0, 0)
    assert print_layout(shares) == "Et*3|(tt|)*29|L"
    assert parse_layout("Et*3|(tt|)*29|L") == shares
    assert sum(shares) == 61


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("EtL", (1,)),
        ("E|t*5|t*6|tL", (0, 5, 6, 1)),
        ("E t | ( t t | ) * 2 t L", (1, 2, 2, 1)),
        ("E|(t*2|(t|)*2)*2L", (0, 2, 1, 1, 2, 1, 1, 0)),
    ],
)
def test_other_forms(text: str, shares: tuple[int, ...]) -> None:
    """Spaces, counts of parts and nested brackets are read."""
    assert parse_layout(text) == shares


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "other places"),
        ("t|tL", "other places"),
        ("Et|t", "other places"),
        ("EtL|t", "other places"),
        ("Et|x|L", "has 'x' in it"),
        ("E(t|L", "open"),
        ("Et)|L", "not open"),
        ("E|(*3)L", "repeats nothing"),
    ],
)
def test_what_is_no_layout(text: str, message: str) -> None:
    """What is wrong with it is said."""
    with pytest.raises(InputError, match=message):
        parse_layout(text)
