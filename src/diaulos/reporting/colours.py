"""The colours of schedules, in pictures and pages: one meaning per visual channel.

The hue tells the kind of a computation, its shade which stage of its rank it belongs to, and a grey
band below it the weight version. The hues are told apart by people with any common kind of colour
vision (the tests simulate those), and differ in lightness too, so that a grey print can be read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from diaulos.schedules.actions import Kind

INK = "#1f2328"
MUTED = "#59636e"
IDLE = "#e9ecef"
PAPER = "#ffffff"


@dataclass(frozen=True, slots=True)
class Fill:
    """The colour of a box and of the number in it."""

    box: str
    text: str


SHADES: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        Kind.FORWARD: ("#b3daf7", "#5aaee6"),
        Kind.BACKWARD: ("#ffdb94", "#f7b441"),
        Kind.INPUT_BACKWARD: ("#d9663c", "#a83c0b"),
        Kind.WEIGHT_BACKWARD: ("#80509c", "#451c63"),
    }
)
"""The colours of a rank's first and last stage."""

KIND_NAMES: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.FORWARD: "forward",
        Kind.BACKWARD: "backward",
        Kind.INPUT_BACKWARD: "input backward",
        Kind.WEIGHT_BACKWARD: "weight backward",
        Kind.UPDATE: "update",
    }
)
"""How pictures, pages and traces call what a rank does."""

VERSION_BANDS = ("#c8d0d9", INK, "#9aa4ae", "#4b535c")
"""Of weight version v, the colour v modulo their number: neighbours are light and dark."""


def fill(kind: Kind, chunk: int, chunks: int) -> Fill:
    """The colour of a computation on the `chunk`-th of the `chunks` stages of a rank."""
    first, last = SHADES[kind]
    box = _mixed(first, last, chunk / (chunks - 1) if chunks > 1 else 0.0)
    return Fill(box, max((INK, PAPER), key=lambda text: contrast(box, text)))


def version_band(version: int) -> str:
    """The colour of the band below a computation with this weight version."""
    return VERSION_BANDS[version % len(VERSION_BANDS)]


def contrast(colour: str, other: str) -> float:
    """The contrast ratio of two colours, between 1 and 21 (WCAG 2.2)."""
    low, high = sorted((_luminance(colour), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in (channel / 255 for channel in _channels(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _channels(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[start : start + 2], 16) for start in (1, 3, 5))


def _mixed(first: str, last: str, share: float) -> str:
    """The colour that goes so far from the first to the last."""
    pairs = zip(_channels(first), _channels(last), strict=True)
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in pairs)
