"""Pictures of schedules in the style of the papers' figures, as SVG without scripts or fonts.

A picture stacks panels on one time scale: a title with the numbers that matter, then one row per
rank. `schedule_svg` draws a panel per timeline, `comparison_svg` planned and measured rows of one
run over each other.
"""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from diaulos.errors import InputError
from diaulos.reporting.colours import INK, KIND_NAMES, MUTED, PAPER, SHADES
from diaulos.reporting.labels import rank_labels, ranks_by_stage, schedule_title
from diaulos.reporting.summary import join_some, median_seconds, numbers_sentence
from diaulos.reporting.svg_legend import draw_legend
from diaulos.reporting.svg_rows import ROW_GAP, Row, draw_row, draw_versions, font_size
from diaulos.reporting.time_axis import TimeScale, ticks
from diaulos.reporting.window import from_batch, shifted_events
from diaulos.schedules.timeline import Timeline
from diaulos.units import format_seconds

_MARGIN = 20.0
_TITLE_HEIGHT = 34.0
_PANEL_GAP = 16.0
_MOST_RANKS = 32
"""With more, only the first replica of each stage is drawn."""
_NARROWEST_BOX = 6.0
"""A window that is chosen for the reader makes usual boxes at least this wide."""
_NEARLY_WHOLE = 0.9
"""A window that would leave out less than the rest is not worth it."""


@dataclass(frozen=True, slots=True)
class _Panel:
    title: str
    numbers: str
    rows: tuple[Row, ...]

    @property
    def height(self) -> float:
        return _TITLE_HEIGHT + sum(row.pitch for row in self.rows)


def schedule_svg(
    timelines: Sequence[Timeline],
    *,
    titles: Sequence[str] | None = None,
    until_seconds: float | None = None,
    made_by: str = "",
    width: float = 1000.0,
) -> str:
    """A picture with one panel per timeline, all on one time scale.

    Without `until_seconds` it shows as much as stays readable. `made_by` is the command that
    makes the picture, stated in its caption.
    """
    if not timelines:
        raise InputError("there is no timeline to draw", "a picture needs at least one")
    titles = titles or [schedule_title(timeline.name) for timeline in timelines]
    panels = [
        _Panel(title, numbers_sentence(timeline), _rows(timeline))
        for title, timeline in zip(titles, timelines, strict=True)
    ]
    caption = [_times_of_all(timelines), _counting_sentence(timelines[0])]
    return _page(panels, caption, until_seconds=until_seconds, made_by=made_by, width=width)


def comparison_svg(
    planned: Timeline,
    measured: Timeline,
    *,
    title: str = "",
    first_batch: int = 0,
    until_seconds: float | None = None,
    made_by: str = "",
    width: float = 1000.0,
) -> str:
    """A picture of one run with each rank's planned row right above its measured one.

    Both begin with the first action of `first_batch`, so that a run's slow beginning can be left
    out.
    """
    if ranks_by_stage(planned) != ranks_by_stage(measured):
        raise InputError(
            "the planned and the measured timeline have other stages or ranks",
            "they must be of one run",
        )
    pairs = zip(
        _rows(from_batch(planned, first_batch), height=15.0, gap=1.0, suffix=" planned"),
        _rows(from_batch(measured, first_batch), height=15.0, gap=8.0, suffix=" measured"),
        strict=True,
    )
    rows = tuple(row for pair in pairs for row in pair)
    ratio = measured.step_seconds / planned.step_seconds - 1 if planned.step_seconds else 0.0
    numbers = (
        f"step {format_seconds(planned.step_seconds)} planned, "
        f"{format_seconds(measured.step_seconds)} measured ({ratio:+.1%})"
    )
    panel = _Panel(title or schedule_title(planned.name), numbers, rows)
    caption = [
        f"Planned time of a microbatch on a stage: {_times(planned)}.",
        f"Measured: {_times(measured)}.",
        _counting_sentence(planned),
    ]
    return _page([panel], caption, until_seconds=until_seconds, made_by=made_by, width=width)


def _rows(
    timeline: Timeline, height: float = 20.0, gap: float = ROW_GAP, suffix: str = ""
) -> tuple[Row, ...]:
    labels = rank_labels(timeline)
    by_stage = ranks_by_stage(timeline)
    if timeline.ranks > _MOST_RANKS:
        by_stage = tuple(ranks[:1] for ranks in by_stage)
    return tuple(
        Row(
            label=labels[rank] + suffix,
            events=shifted_events(timeline, rank),
            stages=timeline.stages_of(rank),
            end_seconds=timeline.makespan_seconds,
            height=height,
            gap=gap,
        )
        for ranks in by_stage
        for rank in ranks
    )


def _times_of_all(timelines: Sequence[Timeline]) -> str:
    """The usual seconds of all timelines, told once for those that have the same."""
    by_times: dict[str, list[str]] = {}
    for timeline in timelines:
        by_times.setdefault(_times(timeline), []).append(timeline.name)
    if len(by_times) == 1:
        return f"Time of a microbatch on a stage: {next(iter(by_times))}."
    parts = (f"{', '.join(names)}: {times}" for times, names in by_times.items())
    return f"Time of a microbatch on a stage: {'; '.join(parts)}."


def _times(timeline: Timeline) -> str:
    """The usual seconds of each stage's computations, of each kind that there is."""
    parts = []
    for kind in SHADES:
        seconds = [each for each in median_seconds(timeline, kind) if each > 0]
        if seconds:
            texts = [_unbroken(format_seconds(each)) for each in seconds]
            parts.append(
                f"{KIND_NAMES[kind]} {join_some(texts if len(set(texts)) > 1 else texts[:1])}"
            )
    return ", ".join(parts)


def _unbroken(text: str) -> str:
    """The text with spaces at which no line is broken."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _counting_sentence(timeline: Timeline) -> str:
    counting = f"{timeline.microbatches} microbatches a batch, numbered through all batches."
    if timeline.ranks > _MOST_RANKS:
        counting += " Of each stage the first replica is shown."
    return counting


def _readable_seconds(panels: Sequence[_Panel], chart_width: float) -> float:
    """The whole run, or as much of it as keeps usual boxes wide enough to be read."""
    rows = [row for panel in panels for row in panel.rows]
    seconds = sorted(e.seconds for row in rows for e in row.events if e.action.kind.is_compute)
    usual = seconds[len(seconds) // 10] if seconds else 0.0
    whole = max(row.end_seconds for row in rows) * 1.005
    readable = usual * chart_width / _NARROWEST_BOX
    return readable if 0 < readable < _NEARLY_WHOLE * whole else whole


def _page(
    panels: Sequence[_Panel],
    caption: Sequence[str],
    *,
    until_seconds: float | None,
    made_by: str,
    width: float,
) -> str:
    rows = [row for panel in panels for row in panel.rows]
    left = _MARGIN + 10.0 + 5.4 * max(len(row.label) for row in rows)
    chart_width = width - left - _MARGIN
    if until_seconds is not None and until_seconds <= 0:
        raise InputError(f"until_seconds is {until_seconds!r}", "it must be above 0")
    until = until_seconds or _readable_seconds(panels, chart_width)
    scale = TimeScale(left, chart_width, until or 1.0)
    whole = max(row.end_seconds for row in rows)
    if until < whole:
        shown = f"Shown: the first {format_seconds(until)} of {format_seconds(whole)}."
        caption = [*caption, _unbroken(shown)]
    body, bottom = _body(panels, scale, _MARGIN)
    legend, bottom = draw_legend(rows, (left, bottom + 30.0), chart_width)
    lines, bottom = _caption(caption, made_by, (left, bottom + 4.0), chart_width)
    return "\n".join([*_head(panels, made_by, width, bottom), *body, *legend, *lines, "</svg>\n"])


def _head(panels: Sequence[_Panel], made_by: str, width: float, height: float) -> Iterator[str]:
    size = f"{width:g} {height:g}"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{width:g}" '
        f'height="{height:g}" role="img" font-size="12" fill="{INK}" '
        "font-family=\"Helvetica, Arial, 'Liberation Sans', sans-serif\">"
    )
    yield f"<title>{escape('; '.join(panel.title for panel in panels))}</title>"
    if made_by:
        yield f"<desc>Made by: {escape(made_by)}</desc>"
    yield (
        "<style>.label{text-anchor:end;font-size:11px}.title{font-weight:bold;font-size:14px}"
        f".version{{text-anchor:start;font-size:9px;fill:{MUTED}}}"
        f".quiet{{fill:{MUTED}}}.boxes{{text-anchor:middle}}.axis{{text-anchor:middle}}"
        ".code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:11px}</style>"
    )
    yield f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{PAPER}"/>'


def _body(panels: Sequence[_Panel], scale: TimeScale, top: float) -> tuple[list[str], float]:
    """The panels and the axis below them, and where the axis is."""
    elements = []
    for panel in panels:
        font = font_size(panel.rows, scale)
        elements.append(
            f'<text x="{scale.left:g}" y="{top + 12:g}"><tspan class="title">'
            f'{escape(panel.title)}</tspan> <tspan class="quiet" dx="8">{escape(panel.numbers)}'
            "</tspan></text>"
        )
        elements.append(f'<g class="boxes" font-size="{font:g}">')
        row_top = top + _TITLE_HEIGHT
        elements += draw_versions(panel.rows[0], row_top, scale)
        for row in panel.rows:
            elements += draw_row(row, row_top, scale, font)
            row_top += row.pitch
        elements.append("</g>")
        top += panel.height + _PANEL_GAP
    axis = top - _PANEL_GAP + 4.0
    return [*elements, *_axis(scale, axis)], axis


def _axis(scale: TimeScale, y: float) -> Iterator[str]:
    moments = ticks(scale.end_seconds)
    marks = "".join(f"M{scale.x(moment):.1f} {y:g}v5" for moment, _ in moments)
    yield f'<path stroke="{MUTED}" d="M{scale.left:g} {y:g}h{scale.width:g}{marks}"/>'
    texts = (f'<text x="{scale.x(at):.1f}" y="{y + 17:g}">{text}</text>' for at, text in moments)
    yield f'<g class="axis quiet" font-size="11">{"".join(texts)}</g>'


def _caption(
    sentences: Sequence[str], made_by: str, left_and_top: tuple[float, float], width: float
) -> tuple[list[str], float]:
    """The sentences and the command in lines that fit, and where they end."""
    left, y = left_and_top
    y += 12.0
    elements = []
    lines = [("quiet", line) for line in textwrap.wrap(" ".join(sentences), int(width / 5.6))]
    lines += [("quiet code", line) for line in textwrap.wrap(made_by, int(width / 6.8))]
    for style, line in lines:
        elements.append(f'<text class="{style}" x="{left:g}" y="{y:g}">{escape(line)}</text>')
        y += 17.0
    return elements, y
