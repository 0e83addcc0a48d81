"""The colours of schedules."""

import itertools

import numpy as np
import pytest

from diaulos.reporting.colours import (
    INK,
    PAPER,
    SHADES,
    VERSION_BANDS,
    contrast,
    fill,
    version_band,
)
from diaulos.schedules.actions import Kind

SIGHT = {
    "usual": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "none": [[0.2126, 0.7152, 0.0722]] * 3,
}  # fmt: skip
"""What becomes of linear RGB (Machado, Oliveira and Fernandes 2009, severity 1), and in grey."""
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def seen(colour: str, sight: str) -> np.ndarray:
    """A colour in CIELAB as somebody sees it; 2.3 apart is just noticeable."""
    encoded = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(XYZ @ np.clip(np.array(SIGHT[sight]) @ linear, 0, 1) / WHITE)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def apart(colour: str, other: str, sight: str) -> float:
    return float(np.linalg.norm(seen(colour, sight) - seen(other, sight)))


@pytest.mark.parametrize("sight", ["usual", "protanopia", "deuteranopia", "tritanopia"])
@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_kinds_are_told_apart_by_all_eyes(sight: str, chunks: int) -> None:
    """Any shade of one kind is far from any shade of another, whatever the colour vision."""
    for kind, other in itertools.combinations(SHADES, 2):
        for first, second in itertools.product(range(chunks), repeat=2):
            pair = fill(kind, first, chunks).box, fill(other, second, chunks).box
            assert apart(*pair, sight) > 20


@pytest.mark.parametrize("sight", SIGHT)
def test_stages_of_a_rank_are_told_apart(sight: str) -> None:
    """The two shades of a kind differ for everybody, also in grey."""
    for kind in SHADES:
        assert apart(fill(kind, 0, 2).box, fill(kind, 1, 2).box, sight) > 9


def test_neighbouring_versions_are_told_apart_in_grey() -> None:
    """The bands of versions v and v + 1 differ much, and come again after some versions."""
    for version in range(8):
        pair = version_band(version), version_band(version + 1)
        assert apart(*pair, "none") > 30
    assert version_band(0) == version_band(len(VERSION_BANDS))


@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", SHADES)
def test_numbers_are_read_on_every_shade(kind: Kind, chunks: int) -> None:
    """The text's contrast is at least 4, of the two inks the better one."""
    for chunk in range(chunks):
        found = fill(kind, chunk, chunks)
        assert contrast(found.box, found.text) >= 4
        assert found.text in (INK, PAPER)


def test_contrast_is_that_of_the_standard() -> None:
    """Black on white is 21, a colour on itself 1 (WCAG 2.2)."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#777777") == 1
    assert contrast("#ffffff", "#777777") == pytest.approx(4.48, abs=0.01)
