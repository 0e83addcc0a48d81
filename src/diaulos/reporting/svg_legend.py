"""The legend of a schedule's picture: what its colours and marks mean, and only those it shows."""

from collections.abc import Iterator, Sequence

from diaulos.reporting.colours import (
    IDLE,
    INK,
    KIND_NAMES,
    SHADES,
    VERSION_BANDS,
    fill,
    version_band,
)
from diaulos.reporting.svg_rows import BAND_HEIGHT, Row
from diaulos.schedules.actions import Kind

LINE_HEIGHT = 22.0
_LETTER_WIDTH = 5.6
_SWATCH_WIDTH, _SWATCH_HEIGHT = 16.0, 12.0
_ITEM_GAP = 18.0

_Item = tuple[tuple[tuple[str, float, float], ...], str]
"""Swatches, as colour, width and height, and their text."""


def draw_legend(
    rows: Sequence[Row], left_and_top: tuple[float, float], width: float
) -> tuple[list[str], float]:
    """The legend of these rows in lines that fit, and where they end."""
    start, top = left_and_top
    left, elements = start, []
    for swatches, text in _items(rows):
        size = sum(w + 1.0 for _, w, _ in swatches) + 5.0 + _LETTER_WIDTH * len(text)
        if left > start and left + size > start + width:
            left, top = start, top + LINE_HEIGHT
        for colour, w, h in swatches:
            place = f'x="{left:g}" y="{top + _SWATCH_HEIGHT - h:g}"'
            elements.append(f'<rect {place} width="{w:g}" height="{h:g}" fill="{colour}"/>')
            left += w + 1.0
        elements.append(f'<text x="{left + 4:g}" y="{top + 10:g}">{text}</text>')
        left += 5.0 + _LETTER_WIDTH * len(text) + _ITEM_GAP
    return elements, top + LINE_HEIGHT


def _items(rows: Sequence[Row]) -> Iterator[_Item]:
    kinds = {event.action.kind for row in rows for event in row.events}
    chunks = max(len(row.stages) for row in rows)
    for kind in SHADES:
        if kind in kinds:
            colours = [fill(kind, chunk, chunks).box for chunk in range(chunks)]
            yield tuple((c, _SWATCH_WIDTH, _SWATCH_HEIGHT) for c in colours), KIND_NAMES[kind]
    if chunks > 1:
        yield (), "(light to dark: first to last stage of a rank)"
    newest = max((event.action.version or 0 for row in rows for event in row.events), default=0)
    if newest:
        shown = range(min(newest + 1, len(VERSION_BANDS)))
        bands = tuple((version_band(v), _SWATCH_WIDTH, BAND_HEIGHT + 1.0) for v in shown)
        names = ", ".join(f"W{v}" for v in shown)
        again = ", then again" if newest >= len(VERSION_BANDS) else ""
        yield bands, f"below: weight version {names}{again}"
    if Kind.UPDATE in kinds:
        yield ((INK, 2.0, 14.0),), "update, making weights W1, W2, ..."
    yield ((IDLE, 24.0, _SWATCH_HEIGHT),), "idle"
