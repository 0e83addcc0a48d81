"""The rows of a schedule's picture: boxes with microbatch numbers, version bands, update marks.

The boxes of one colour in one row are a single path, and a number is drawn only where its box is
wide enough, so that a picture stays small and never shows squeezed text.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from diaulos.reporting.colours import IDLE, INK, PAPER, Fill, fill, version_band
from diaulos.reporting.time_axis import TimeScale, ticks
from diaulos.schedules.actions import Kind
from diaulos.schedules.events import Event

ROW_GAP = 3.0
BAND_HEIGHT = 3.0
"""Of the band below the boxes that tells their weight version."""
_DIGIT_WIDTH = 0.6
"""Of the font size; no common sans-serif has wider digits by much."""
_SMALLEST_FONT, _LARGEST_FONT = 7.0, 11.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One rank's line in a picture; its events begin at 0 seconds."""

    label: str
    events: tuple[Event, ...]
    stages: tuple[int, ...]
    """Those that the rank holds, input end first."""
    end_seconds: float
    """Where the run ends; until then the rank is idle where it has no event."""
    height: float = 20.0
    """Of the boxes, without the band below."""
    gap: float = ROW_GAP
    """Free space below the band."""

    @property
    def pitch(self) -> float:
        """From the upper edge of a row to that of the next."""
        return self.height + BAND_HEIGHT + self.gap

    def fill_of(self, event: Event) -> Fill:
        """The colour of a computation."""
        return fill(
            event.action.kind, self.stages.index(event.action.stage), max(len(self.stages), 1)
        )


def font_size(rows: Sequence[Row], scale: TimeScale) -> float:
    """The largest size of numbers for which the longest fits into the narrowest usual box."""
    computations = [
        e
        for row in rows
        for e in row.events
        if e.action.kind.is_compute and e.start_seconds < scale.end_seconds
    ]
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
    yield f'<g transform="translate(0 {middle:g})" stroke-width="{row.height:g}">'
    whole = scale.left, scale.x(row.end_seconds) - scale.left
    yield f'<path stroke="{IDLE}" d="{_bars([whole])}"/>'
    yield from _grid(row, scale)
    shown = [event for event in row.events if event.start_seconds < scale.end_seconds]
    computations = [event for event in shown if event.action.kind.is_compute]
    yield from _boxes(row, computations, scale)
    yield "</g>"
    yield from _numbers(row, computations, middle + 0.36 * font, scale, font)
    yield from _bands(computations, top + row.height + BAND_HEIGHT / 2, scale)
    yield from _updates((e for e in shown if e.action.kind is Kind.UPDATE), row, top, scale)


def _grid(row: Row, scale: TimeScale) -> Iterator[str]:
    """The ticks of the axis, seen through the idle time."""
    moments = [moment for moment, _ in ticks(scale.end_seconds) if 0 < moment < row.end_seconds]
    bars = _bars((scale.x(moment) - 0.5, 1.0) for moment in moments)
    if bars:
        yield f'<path stroke="{PAPER}" d="{bars}"/>'


def _boxes(row: Row, events: Iterable[Event], scale: TimeScale) -> Iterator[str]:
    by_colour: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        left, right = scale.x(event.start_seconds), scale.x(event.end_seconds)
        width = right - left
        # A sliver of background parts neighbours, but never eats up a narrow box.
        span = left, width - min(0.8, 0.15 * width)
        by_colour.setdefault(row.fill_of(event).box, []).append(span)
    for colour, spans in by_colour.items():
        yield f'<path stroke="{colour}" d="{_bars(spans)}"/>'


def _numbers(
    row: Row, events: Iterable[Event], baseline: float, scale: TimeScale, font: float
) -> Iterator[str]:
    by_colour: dict[str, list[tuple[str, str]]] = {}
    for event in events:
        left, right = scale.x(event.start_seconds), scale.x(event.end_seconds)
        text = str(event.action.number)
        if len(text) * _DIGIT_WIDTH * font + 1.5 <= right - left:
            place = _tenths((left + right - 0.8) / 2)
            by_colour.setdefault(row.fill_of(event).text, []).append((place, text))
    for colour, placed in by_colour.items():
        texts = "".join(_texts(placed))
        yield f'<g fill="{colour}" transform="translate(0 {baseline:.1f})">{texts}</g>'


def _texts(placed: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Numbers at their places; those of one digit are one text, with a place for each."""
    digits = [(place, text) for place, text in placed if len(text) == 1]
    if digits:
        places = " ".join(place for place, _ in digits)
        yield f'<text x="{places}">{"".join(text for _, text in digits)}</text>'
    for place, text in placed:
        if len(text) > 1:
            yield f'<text x="{place}">{text}</text>'


def _bands(events: Iterable[Event], middle: float, scale: TimeScale) -> Iterator[str]:
    """Below computations the colour of their weight version; neighbours of one share a band."""
    spans: list[tuple[str, float, float]] = []
    for event in events:
        colour = version_band(event.action.version or 0)
        left, right = scale.x(event.start_seconds), scale.x(event.end_seconds)
        if spans and spans[-1][0] == colour and left - spans[-1][2] < 0.05:
            left = spans.pop()[1]
        spans.append((colour, left, right))
    by_colour: dict[str, list[tuple[float, float]]] = {}
    for colour, left, right in spans:
        by_colour.setdefault(colour, []).append((left, right - left))
    bands = "".join(f'<path stroke="{c}" d="{_bars(some)}"/>' for c, some in by_colour.items())
    if bands:
        yield f'<g transform="translate(0 {middle:g})" stroke-width="{BAND_HEIGHT:g}">{bands}</g>'


def _updates(events: Iterable[Event], row: Row, top: float, scale: TimeScale) -> Iterator[str]:
    marks = []
    for event in events:
        left = scale.x(event.start_seconds)
        width = max(scale.x(event.end_seconds) - left, 2.0)
        if left < scale.left + scale.width:
            size = f"{width:.1f}v{row.height + BAND_HEIGHT + 2:g}h-{width:.1f}z"
            marks.append(f"M{left - 1:.1f} {top - 1:g}h{size}")
    if marks:
        yield f'<path fill="{INK}" d="{"".join(marks)}"/>'


def draw_versions(row: Row, top: float, scale: TimeScale) -> Iterator[str]:
    """The versions that a row's updates make, written above it once, where there is room."""
    free_from, written = scale.left, -1
    for event in row.events:
        if event.action.kind is not Kind.UPDATE or event.action.number <= written:
            continue
        left, text = scale.x(event.start_seconds), f"W{event.action.number + 1}"
        width = 6.0 * len(text)
        if left >= free_from and left + width <= scale.left + scale.width:
            yield f'<text class="version" x="{left - 1:.1f}" y="{top - 4:g}">{text}</text>'
            free_from, written = left + width, event.action.number


def _bars(spans: Iterable[tuple[float, float]]) -> str:
    """Strokes as high as their row, from left to right, each told from the end of the last.

    Places are rounded and not steps, so that nothing adds up.
    """
    parts, end = [], 0
    for left, width in spans:
        start, length = round(10 * left), round(10 * width)
        parts.append(f"m{_short(start - end)} 0h{_short(length)}")
        end = start + length
    return "".join(parts)


def _short(tenths: int) -> str:
    """Tenths of a pixel, without a leading zero."""
    text = f"{tenths / 10:g}"
    return text.replace("0.", ".", 1) if abs(tenths) < 10 else text


def _tenths(place: float) -> str:
    """As few digits as a tenth of a pixel needs."""
    return f"{round(place, 1):g}"
