"""The figures of the 2BW paper, read back from the pictures box by box."""

from xml.etree import ElementTree as ET

import pytest

from diaulos.reporting.colours import fill, version_band
from diaulos.reporting.svg import schedule_svg
from diaulos.reporting.svg_rows import BAND_HEIGHT
from diaulos.schedules.actions import Kind
from diaulos.schedules.generators import generate
from tests.reporting.drawn import NAMESPACE, placed_texts, spans
from tests.schedules.figures import FIGURE_2_OF_2BW, PIPEDREAM_FLUSH, drawn, timed
from tests.schedules.shapes import line

SECONDS = 28
Bars = list[tuple[float, float, float]]
"""Middle, left and right."""


def bars(root: ET.Element, colour: str, *, bands: bool = False) -> Bars:
    found: Bars = []
    for group in root.iter(f"{NAMESPACE}g"):
        if (group.get("stroke-width") == f"{BAND_HEIGHT:g}") != bands:
            continue
        for path in group.findall(f"{NAMESPACE}path"):
            if path.get("stroke") == colour:
                middle = float(group.get("transform", "").split()[1].rstrip(")"))
                found += [(middle, left, left + width) for left, width in spans(path)]
    return found


def numbers(root: ET.Element) -> Bars:
    """Baseline, place and number of all texts in boxes."""
    found = []
    for group in root.iter(f"{NAMESPACE}g"):
        for text in group.findall(f"{NAMESPACE}text"):
            if (text.text or "").isdigit() and "transform" in group.attrib:
                baseline = float(group.get("transform", "").split()[1].rstrip(")"))
                found += [(baseline, x, float(told)) for x, told in placed_texts(text)]
    return found


def picture(name: str, batches: int) -> tuple[ET.Element, float, float]:
    """The picture of a schedule of 4 stages and microbatches, its left edge, and a second."""
    timeline = timed(generate(name, line(4, 4), batches))
    root = ET.fromstring(schedule_svg([timeline], until_seconds=SECONDS))
    forwards = bars(root, fill(Kind.FORWARD, 0, 1).box)
    left = min(start for _, start, _ in forwards)
    return root, left, (980 - left) / SECONDS


def read_back(name: str, batches: int) -> dict[tuple[int, float], str]:
    """The boxes that begin in the picture, by row and second, with kind and number."""
    root, left, second = picture(name, batches)
    labels = numbers(root)
    found = {}
    for letter, kind in (("f", Kind.FORWARD), ("b", Kind.BACKWARD)):
        boxes = bars(root, fill(kind, 0, 1).box)
        rows = sorted({middle for middle, _, _ in bars(root, fill(Kind.FORWARD, 0, 1).box)})
        for middle, start, end in boxes:
            inside = [n for y, x, n in labels if abs(y - middle) < 8 and start < x < end]
            if inside:
                key = rows.index(middle), round((start - left) / second, 1)
                found[key] = f"{letter}{inside[0]:g}"
    return found


@pytest.mark.parametrize(
    ("name", "figure"),
    [("2bw", FIGURE_2_OF_2BW), ("1f1b", PIPEDREAM_FLUSH)],
    ids=["figure 2", "PipeDream-Flush"],
)
def test_a_figure_of_the_paper_is_drawn(name: str, figure: str) -> None:
    """Every box of the figure stands in the picture, at its second, with its number."""
    until = len(figure.split("\n")[1].split())
    found = {key: box for key, box in read_back(name, 4).items() if key[1] < until - 1}
    expected = {key: box for key, box in drawn(figure).items() if key[1] < until - 1}
    assert found == expected


def test_the_versions_of_figure_2_are_drawn() -> None:
    """Until 28 s the new version is seen below the forwards of input 9 and 10 alone.

    The paper counts inputs from 1: its input 9 is the first of the third batch.
    """
    root, left, second = picture("2bw", 4)
    rows = sorted({middle for middle, _, _ in bars(root, version_band(0), bands=True)})
    starts = {
        (rows.index(middle), round((start - left) / second, 1))
        for middle, start, _ in bars(root, version_band(1), bands=True)
    }
    forwards = {key for key, box in drawn(FIGURE_2_OF_2BW).items() if box in ("f8", "f9")}
    assert starts == forwards
