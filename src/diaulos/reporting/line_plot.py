"""Lines on two logarithmic axes, each with its name at its end, as SVG without scripts or fonts."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from diaulos.errors import InputError
from diaulos.reporting.colours import IDLE, INK, MUTED, PAPER

_COLOURS = ("#0b4f8a", "#c2500d", "#2b7a3d", "#7a3d9c", "#a8801a", "#4a8fc2", "#59636e")
"""Dark enough for text, and told apart by all common kinds of colour vision beside the names."""
_DASHES = ("", "7 3", "2 3", "9 3 2 3")
_WIDTH, _HEIGHT = 760.0, 440.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 86.0, 168.0, 44.0, 56.0
_LINE_HEIGHT = 15.0
_FEWEST_TICKS, _MOST_TICKS = 4, 12
_MARGIN = 1.06
"""By what the time axis goes beyond the points, so that no line lies on its edge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis shows, and how its ticks read."""

    title: str
    text: Callable[[float], str]
    base: int = 10
    """Ticks stand at powers of 2, or at round multiples of powers of 10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """A logarithmic axis between two places of the picture."""

    first: float
    last: float
    start: float
    end: float

    def at(self, value: float) -> float:
        span = math.log(self.last / self.first) or 1.0
        return self.start + (self.end - self.start) * math.log(value / self.first) / span


Points = Sequence[tuple[float, float]]


def line_plot(
    lines: Mapping[str, Points], *, title: str, x: Axis, y: Axis, made_by: str = ""
) -> str:
    """A picture with a line for each name; amounts are above 0, points ascend in x.

    An `InputError` where there is no point at all.
    """
    points = [point for some in lines.values() for point in some]
    if not points:
        raise InputError("there is nothing to draw", "a plot needs at least one point")
    across = _scale([a for a, _ in points], _LEFT, _WIDTH - _RIGHT)
    heights = [b for _, b in points]
    heights += [min(heights) / _MARGIN, max(heights) * _MARGIN]
    up = _scale(heights, _HEIGHT - _BOTTOM, _TOP)
    return "\n".join(
        (
            *_head(title, made_by),
            *_across(across, x),
            *_up(up, y),
            *_lines(lines, across, up),
            "</svg>\n",
        )
    )


def log_ticks(first: float, last: float, base: int) -> list[float]:
    """Round values between two, few enough to be read; the two where none is between."""
    powers = range(math.floor(math.log(first, base)), math.ceil(math.log(last, base)) + 1)
    inside: list[float] = []
    for factors in ((1,),) if base == 2 else ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        ticks = (factor * float(base) ** power for power in powers for factor in factors)
        inside = [tick for tick in ticks if first * (1 - 1e-9) <= tick <= last * (1 + 1e-9)]
        if len(inside) >= _FEWEST_TICKS:
            break
    return inside[:: -(-len(inside) // _MOST_TICKS)] if inside else [first, last]


def _scale(values: Sequence[float], start: float, end: float) -> _Scale:
    first, last = min(values), max(values)
    if first == last:
        first, last = first / 1.5, last * 1.5
    return _Scale(first=first, last=last, start=start, end=end)


def _head(title: str, made_by: str) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" '
        f'width="{_WIDTH:g}" height="{_HEIGHT:g}" role="img" font-size="12" fill="{INK}" '
        "font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\">"
    )
    yield f"<title>{escape(title)}</title>"
    if made_by:
        yield f"<desc>Made by: {escape(made_by)}</desc>"
    yield f'<rect width="{_WIDTH:g}" height="{_HEIGHT:g}" rx="8" fill="{PAPER}"/>'
    yield f'<text x="{_LEFT:g}" y="24" font-size="14" font-weight="bold">{escape(title)}</text>'


def _across(scale: _Scale, axis: Axis) -> Iterator[str]:
    bottom = _HEIGHT - _BOTTOM
    for value in log_ticks(scale.first, scale.last, axis.base):
        place = scale.at(value)
        yield f'<path stroke="{IDLE}" d="M{place:.1f} {_TOP:g}V{bottom:g}"/>'
        yield _text(place, bottom + 16, axis.text(value), "middle", MUTED)
    yield f'<path stroke="{MUTED}" d="M{scale.start:g} {bottom:g}H{scale.end:g}"/>'
    yield _text((scale.start + scale.end) / 2, bottom + 38, axis.title, "middle", INK)


def _up(scale: _Scale, axis: Axis) -> Iterator[str]:
    for value in log_ticks(scale.first, scale.last, axis.base):
        place = scale.at(value)
        yield f'<path stroke="{IDLE}" d="M{_LEFT:g} {place:.1f}H{_WIDTH - _RIGHT:g}"/>'
        yield _text(_LEFT - 8, place + 4, axis.text(value), "end", MUTED)
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    yield (
        f'<text transform="translate(18 {middle:g}) rotate(-90)" text-anchor="middle">'
        f"{escape(axis.title)}</text>"
    )


def _lines(lines: Mapping[str, Points], across: _Scale, up: _Scale) -> Iterator[str]:
    drawn = {
        name: [(across.at(a), up.at(b)) for a, b in points]
        for name, points in lines.items()
        if points
    }
    heights = _apart({name: places[-1][1] for name, places in drawn.items()})
    for number, (name, places) in enumerate(drawn.items()):
        colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number % len(_DASHES)]
        path = "L".join(f"{a:.1f} {b:.1f}" for a, b in places)
        style = f' stroke-dasharray="{dash}"' if dash else ""
        yield f'<path fill="none" stroke="{colour}" stroke-width="1.8"{style} d="M{path}"/>'
        if len(places) == 1:
            yield f'<circle cx="{places[0][0]:.1f}" cy="{places[0][1]:.1f}" r="3" fill="{colour}"/>'
        end = places[-1]
        yield (
            f'<path fill="none" stroke="{colour}" stroke-width="0.6" '
            f'd="M{end[0]:.1f} {end[1]:.1f}L{_WIDTH - _RIGHT + 14:g} {heights[name]:.1f}"/>'
        )
        yield _text(_WIDTH - _RIGHT + 18, heights[name] + 4, name, "start", colour)


def _apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """Heights near the wanted ones, at least a line of text apart, inside the picture."""
    placed: dict[str, float] = {}
    least = _TOP
    for name, height in sorted(wanted.items(), key=lambda item: item[1]):
        placed[name] = max(height, least)
        least = placed[name] + _LINE_HEIGHT
    most = _HEIGHT - _BOTTOM
    for name, height in sorted(placed.items(), key=lambda item: -item[1]):
        placed[name] = min(height, most)
        most = placed[name] - _LINE_HEIGHT
    return placed


def _text(x: float, y: float, text: str, anchor: str, colour: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}'
        "</text>"
    )
