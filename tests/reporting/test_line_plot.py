"""Lines on logarithmic axes: ticks, places, and labels that do not touch."""

import itertools
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.reporting.line_plot import Axis, line_plot, log_ticks

AXIS = Axis(title="amount", text=lambda value: f"{value:g}")
NAMESPACE = "{http://www.w3.org/2000/svg}"


def drawn(lines: dict[str, list[tuple[float, float]]]) -> ET.Element:
    """The picture of some lines."""
    return ET.fromstring(line_plot(lines, title="a < b", x=AXIS, y=AXIS))


@given(st.floats(1e-9, 1e9), st.floats(1.0, 1e6), st.sampled_from((2, 10)))
def test_ticks_are_few_and_inside(first: float, span: float, base: int) -> None:
    """At most twelve, ascending, between the ends."""
    ticks = log_ticks(first, first * span, base)
    assert len(ticks) <= 12
    assert ticks == sorted(ticks)
    assert all(first * 0.99 <= tick <= first * span * 1.01 for tick in ticks)


def test_ticks_are_round() -> None:
    """Powers of two; 1, 2, 5 times powers of ten; more of them where the span is short."""
    assert log_ticks(8, 64, 2) == [8, 16, 32, 64]
    assert log_ticks(1, 100, 10) == [1, 2, 5, 10, 20, 50, 100]
    assert log_ticks(15, 60, 10) == [15, 20, 30, 40, 50, 60]
    assert log_ticks(5, 7, 2) == [5, 7]


@given(st.lists(st.floats(1.0, 1.2), min_size=2, max_size=7))
def test_names_stand_apart(ends: list[float]) -> None:
    """However close lines end, their names are a line of text apart and inside the picture."""
    lines = {f"line {i}": [(1.0, 2.0), (10.0, end)] for i, end in enumerate(ends)}
    texts = [e for e in drawn(lines).iter(f"{NAMESPACE}text") if (e.text or "") in lines]
    heights = sorted(float(text.attrib["y"]) for text in texts)

    assert len(heights) == len(ends)
    assert all(b - a >= 14.9 for a, b in itertools.pairwise(heights))
    assert 0 < heights[0]
    assert heights[-1] < 440


def test_a_single_point_is_seen() -> None:
    """A line of one point is a dot; a line without points is left out."""
    picture = drawn({"one": [(3.0, 4.0)], "none": []})
    assert len(list(picture.iter(f"{NAMESPACE}circle"))) == 1
    assert "none" not in {element.text for element in picture.iter()}


def test_nothing_to_draw() -> None:
    """Without a point there is no picture."""
    with pytest.raises(InputError, match="nothing to draw"):
        line_plot({"none": []}, title="", x=AXIS, y=AXIS)
