"""The rows of a schedule's picture: boxes with microbatch numbers, update marks, idle time.

The boxes of one colour in one row are a single path, and a number is drawn only where its box is
wide enough, so that a picture stays small and never shows squeezed text.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType

from diaulos.reporting.time_axis import TimeScale, ticks
from diaulos.schedules.actions import Kind
from diaulos.schedules.timeline import Event

INK = "#1f2328"
MUTED = "#59636e"
IDLE = "#e9ecef"
PAPER = "#ffffff"
ROW_GAP = 3.0
_DIGIT_WIDTH = 0.6
"""Of the font size; no common sans-serif has wider digits by much."""
_SMALLEST_FONT, _LARGEST_FONT = 7.0, 11.0


@dataclass(frozen=True, slots=True)
class Fill:
    """The colour of a box and of the number in it."""

    box: str
    text: str


FILLS: Mapping[tuple[Kind, int], Fill] = MappingProxyType(
    {
        (Kind.FORWARD, 0): Fill("#b8dcf5", INK),
        (Kind.FORWARD, 1): Fill("#0b4f8a", PAPER),
        (Kind.BACKWARD, 0): Fill("#f6b45c", INK),
        (Kind.BACKWARD, 1): Fill("#c2500d", PAPER),
        (Kind.WEIGHT_BACKWARD, 0): Fill("#b58ad6", INK),
        (Kind.WEIGHT_BACKWARD, 1): Fill("#3d1a63", PAPER),
    }
)
"""By kind and parity of the weight version; the input half of a backward looks like a whole one.

Blue against orange is told apart by all common kinds of colour vision, and light against dark by
everybody.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rank's line in a picture; its events begin at 0 seconds."""

    label: str
    events: tuple[Event, ...]
    end_seconds: float
    """Where the run ends; until then the rank is idle where it has no event."""
    height: float = 20.0
    gap: float = ROW_GAP
    """Free space below."""


def font_size(rows: Sequence[Row], scale: TimeScale) -> float:
    """The largest size of numbers for which the longest fits into the narrowest usual box."""
    computations = [e for row in rows for e in row.events if e.action.kind.is_compute]
    if not computations:
        return _LARGEST_FONT
    digits = max(len(str(event.action.number)) for event in computations)
    widths = sorted(scale.pixels(event.seconds) for event in computations)
    usual = widths[len(widths) // 10]
    lowest = min(row.height for row in rows)
    fitting = min((usual - 2.0) / (_DIGIT_WIDTH * digits), lowest * 0.6)
    return round(min(max(fitting, _SMALLEST_FONT), _LARGEST_FONT), 1)


def draw_row(row: Row, top: float, scale: TimeScale, font: float) -> Iterator[str]:
    """The elements of a row whose upper edge is at `top`."""
    middle = top + row.height / 2
    yield (
        f'<text class="label" x="{scale.left - 8:g}" y="{middle + 4:g}">{escape(row.label)}</text>'
    )
    idle = _box(scale.left, top, scale.x(row.end_seconds) - scale.left, row.height)
    yield f'<path fill="{IDLE}" d="{idle}"/>'
    yield from _grid(row, top, scale)
    shown = [event for event in row.events if event.start_seconds < scale.end_seconds]
    for (kind, parity), fill in FILLS.items():
        kinds = {kind, Kind.INPUT_BACKWARD} if kind is Kind.BACKWARD else {kind}
        events = [
            e for e in shown if e.action.kind in kinds and (e.action.version or 0) % 2 == parity
        ]
        yield from _draw_boxes(events, fill, (top, row.height), scale, font)
    yield from _draw_updates((e for e in shown if e.action.kind is Kind.UPDATE), row, top, scale)


def _grid(row: Row, top: float, scale: TimeScale) -> Iterator[str]:
    """The ticks of the axis, seen through the idle time."""
    moments = [moment for moment, _ in ticks(scale.end_seconds) if 0 < moment < row.end_seconds]
    lines = "".join(f"M{scale.x(moment):.1f} {top:g}v{row.height:g}" for moment in moments)
    if lines:
        yield f'<path stroke="{PAPER}" d="{lines}"/>'


def _draw_boxes(
    events: Sequence[Event],
    fill: Fill,
    top_and_height: tuple[float, float],
    scale: TimeScale,
    font: float,
) -> Iterator[str]:
    top, height = top_and_height
    boxes, numbers = [], []
    for event in events:
        left, right = scale.x(event.start_seconds), scale.x(event.end_seconds)
        width = right - left
        # A sliver of background parts neighbours, but never eats up a narrow box.
        boxes.append(_box(left, top, width - min(0.8, 0.15 * width), height))
        text = str(event.action.number)
        if len(text) * _DIGIT_WIDTH * font + 1.5 <= width:
            place = f'x="{(left + right - 0.8) / 2:.1f}" y="{top + height / 2 + 0.36 * font:.1f}"'
            numbers.append(f"<text {place}>{text}</text>")
    if boxes:
        yield f'<path fill="{fill.box}" d="{"".join(boxes)}"/>'
    if numbers:
        yield f'<g fill="{fill.text}">{"".join(numbers)}</g>'


def _draw_updates(events: Iterable[Event], row: Row, top: float, scale: TimeScale) -> Iterator[str]:
    marks = []
    for event in events:
        left = scale.x(event.start_seconds)
        width = max(scale.x(event.end_seconds) - left, 2.0)
        if left < scale.left + scale.width:
            marks.append(_box(left - 1.0, top - 1.0, width, row.height + 2.0))
    if marks:
        yield f'<path fill="{INK}" d="{"".join(marks)}"/>'


def draw_versions(row: Row, top: float, scale: TimeScale) -> Iterator[str]:
    """The versions that a row's updates make, written above it where there is room."""
    free_from = scale.left
    for event in row.events:
        left, text = scale.x(event.start_seconds), f"W{event.action.number + 1}"
        width = 6.0 * len(text)
        inside = left + width <= scale.left + scale.width
        if event.action.kind is Kind.UPDATE and left >= free_from and inside:
            yield f'<text class="version" x="{left - 1:.1f}" y="{top - 4:g}">{text}</text>'
            free_from = left + width


def _box(left: float, top: float, width: float, height: float) -> str:
    return f"M{left:.1f} {top:g}h{width:.1f}v{height:g}h-{width:.1f}z"
