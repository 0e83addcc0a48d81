"""A page of schedules to zoom into: one HTML file that needs nothing else, and no network."""

import json
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from diaulos.errors import InputError
from diaulos.reporting.labels import schedule_title
from diaulos.reporting.page_data import page_data
from diaulos.reporting.summary import numbers_sentence
from diaulos.schedules.timeline import Timeline

_SCRIPTS = ("state.js", "words.js", "draw.js", "page.js")


def schedule_page(
    timelines: Sequence[Timeline],
    *,
    titles: Sequence[str] | None = None,
    memory_limit_bytes: float = math.inf,
    made_by: str = "",
) -> str:
    """A page with one panel per timeline on one time axis.

    It zooms and pans, and tells the times and bytes of what the pointer is on; below each rank
    runs the curve of what it holds. `memory_limit_bytes` is drawn across the curves, and
    `made_by`, the command that makes the page, is stated on it.
    """
    if not timelines:
        raise InputError("there is no timeline to show", "a page needs at least one")
    titles = titles or [schedule_title(timeline.name) for timeline in timelines]
    sentences = [numbers_sentence(timeline) for timeline in timelines]
    data = page_data(timelines, titles, sentences, memory_limit_bytes=memory_limit_bytes)
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Template(_part("page.html")).substitute(
        title=escape("; ".join(titles)),
        made_by=escape(made_by),
        style=_part("page.css"),
        # A script element ends at the first "</", also within a string.
        data=text.replace("</", "<\\/"),
        script="\n".join(_part(name) for name in _SCRIPTS),
    )


def _part(name: str) -> str:
    return (files("diaulos.reporting") / "page_parts" / name).read_text(encoding="utf-8")
