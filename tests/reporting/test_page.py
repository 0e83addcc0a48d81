"""Pages of schedules."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from diaulos.errors import InputError
from diaulos.reporting.page import schedule_page
from diaulos.schedules.timeline import Timeline
from tests.reporting.browser import Page, needs_chromium, opened
from tests.reporting.runs import jittery, simulated

BYTES = {"activation_bytes": 2.0**30, "fixed_bytes": 2.0**31, "version_bytes": 2.0**29}


class Parts(HTMLParser):
    """The data and everything that a page refers to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.tags: list[str] = []
        self._is_data, self.data = False, ""
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [v or "" for k, v in attributes if k in ("src", "href")]
        self._is_data = ("id", "data") in attributes

    def handle_data(self, text: str) -> None:
        if self._is_data:
            self.data += text

    def handle_endtag(self, tag: str) -> None:
        self._is_data = self._is_data and tag != "script"


def data(page: str) -> dict[str, Any]:
    return json.loads(Parts(page).data)


def rows(timeline: Timeline, **options: Any) -> list[dict[str, Any]]:
    return data(schedule_page([timeline], **options))["panels"][0]["rows"]


def shown(page: Page) -> list[float]:
    """Where the window of a page begins and ends, in seconds."""
    return page.ask("[view.start, view.end]")


def hint(page: Page) -> list[str]:
    """What is told about the place of the pointer."""
    return page.ask("byId('hint').hidden ? '' : byId('hint').textContent").splitlines()


def chart(page: Page, number: int) -> tuple[float, float]:
    """The corner of a panel's boxes."""
    return page.ask(
        f"(() => {{ const b = data.panels[{number}].canvas.getBoundingClientRect();"
        " return [b.x + LEFT, b.y + TOP]; })()"
    )


PICTURE = "data.panels[0].canvas.toDataURL()"
TIMELINES = [simulated(name, 4, 4, batches=3, **BYTES) for name in ("2bw", "1f1b")]


@needs_chromium
def test_a_browser_zooms_and_hovers_without_an_error(tmp_path: Path) -> None:
    """Wheel, dragging, keys and double clicks move the window; the console stays empty."""
    with opened(schedule_page(TIMELINES, memory_limit_bytes=2.0**33), tmp_path) as page:
        left, top = chart(page, 0)
        assert shown(page) == [0, 63]
        assert page.ask("byId('shown').textContent") == "0 to 63 s"
        before = page.ask(PICTURE)
        page.mouse("mouseMoved", left + 3, top + 10)
        assert hint(page) == [
            "2BW, stage 0 (rank 0)",
            "forward of microbatch 0",
            "batch 0, weights W0",
            "0 to 1 s: 1 s",
            "holds 3.5 GiB: always held 2 GiB, further versions 512 MiB, activations 1 GiB",
        ]
        page.mouse("mouseMoved", left - 50, top + 10)
        assert hint(page) == []
        page.mouse("mouseWheel", left + 1, top + 10, deltaX=0, deltaY=-100)
        assert shown(page) == pytest.approx([0, 63 / 1.2], abs=0.1)
        assert page.ask(PICTURE) != before
        page.key("+")
        page.key("ArrowRight")
        moved = shown(page)
        assert moved[1] - moved[0] == pytest.approx(63 / 1.2 / 1.5, rel=0.01)
        page.mouse("mousePressed", left + 300, top + 10, button="left", clickCount=1)
        page.mouse("mouseMoved", left + 340, top + 10, button="left", buttons=1)
        page.mouse("mouseReleased", left + 340, top + 10, button="left", clickCount=1)
        assert shown(page)[0] < moved[0]
        for count in (1, 2):
            for kind in ("mousePressed", "mouseReleased"):
                page.mouse(kind, left + 300, top + 10, button="left", clickCount=count)
        assert shown(page) == [0, 63]
        page.mouse("mouseMoved", 1, 1)
        assert page.ask(PICTURE) == before
        assert page.console == []


@needs_chromium
def test_the_buttons_and_boxes_of_a_page_do_what_they_say(tmp_path: Path) -> None:
    """Zoom in, out and all; schedules side by side or left out; curves or none."""
    with opened(schedule_page(TIMELINES), tmp_path) as page:
        page.click("#zoom-in")
        assert shown(page) == pytest.approx([10.5, 52.5])
        page.click("#zoom-out")
        page.click("#zoom-in")
        page.click("#show-all")
        assert shown(page) == [0, 63]
        size = "[data.panels[0].canvas.clientWidth, data.panels[0].canvas.clientHeight]"
        width, height = page.ask(size)
        page.click("#curves")
        page.click("#side-by-side")
        narrow, low = page.ask(size)
        assert narrow < width / 1.9
        assert low < height
        page.click("#legend input")
        assert page.ask("data.panels.map((panel) => panel.section.hidden)") == [True, False]
        assert page.console == []


@needs_chromium
def test_a_browser_tells_idle_time_and_halves(tmp_path: Path) -> None:
    """Where bytes are not known, what is in flight is told; a planned and a measured run fit."""
    planned = simulated("zb-h1", 4, 4, batches=2)
    page = schedule_page([planned, jittery(planned)], titles=["planned", "measured"])
    with opened(page, tmp_path) as page:
        said = "describe(data.panels[0], data.panels[0].rows[3], {})"
        assert page.ask(said.format(1)).splitlines() == [
            "planned, stage 3 (rank 3)", "idle", "0 to 3 s: 3 s", "holds 0 in flight",
        ]  # fmt: skip
        assert page.ask(said.format(4.5)).splitlines()[1:] == [
            "input backward of microbatch 0", "batch 0, weights W0", "4 s to 5 s: 1 s",
            "holds 1 in flight",
        ]  # fmt: skip
        assert page.console == []


@needs_chromium
def test_an_error_on_a_page_would_be_noticed(tmp_path: Path) -> None:
    """What a page writes to its console, and errors that nobody catches, are collected."""
    broken = '<body><script>console.error("oh"); setTimeout(() => nothing, 0)</script></body>'
    with opened(broken, tmp_path) as page:
        page.drawn()
        found = {message["method"] for message in page.console}
        assert {"Runtime.consoleAPICalled", "Runtime.exceptionThrown"} <= found


def test_a_page_needs_nothing_else() -> None:
    """No address, no file, no style or script from elsewhere."""
    page = schedule_page([simulated("1f1b", 2, 2)], made_by="diaulos simulate <&>")
    parts = Parts(page)
    assert parts.references == []
    assert not {"link", "img", "iframe"} & set(parts.tags)
    assert "http" not in page
    assert "@import" not in page
    assert "diaulos simulate &lt;&amp;&gt;" in page


def test_a_page_is_small() -> None:
    """Three schedules of 8 stages and 32 microbatches for 4 batches take under 400 kB."""
    timelines = [simulated(name, 8, 32, batches=4) for name in ("gpipe", "1f1b", "2bw")]
    assert len(schedule_page(timelines).encode()) < 400_000


def test_every_event_is_in_the_data() -> None:
    """Each rank's actions stand in order with kind, number, version and times from 0 on."""
    timeline = simulated("2bw", 3, 3, batches=2)
    for rank, row in enumerate(rows(jittery(timeline))):
        expected = timeline.of_rank(rank)
        assert row["kinds"] == "".join(e.action.kind.value[0] for e in expected)
        assert row["numbers"] == [e.action.number for e in expected]
        assert row["versions"] == [e.action.version for e in expected]
    exact = rows(timeline)[1]
    assert exact["starts"] == [e.start_seconds for e in timeline.of_rank(1)]
    assert exact["ends"] == [e.end_seconds for e in timeline.of_rank(1)]


def test_short_times_keep_their_digits() -> None:
    """A run of microseconds is told as exactly as one of hours."""
    timeline = simulated("1f1b", 2, 2, forward_seconds=1.25e-6, backward_seconds=2.5e-6)
    row = rows(timeline)[0]
    assert row["ends"][0] == pytest.approx(1.25e-6, rel=1e-4)


def test_memory_is_told_by_kind() -> None:
    """The curve is that of the timeline, and what is always held is told in two parts."""
    timeline = simulated("2bw", 2, 2, **BYTES)
    row = rows(timeline)[0]
    assert row["always"] == [2.0**31, 2.0**29]
    assert max(row["amounts"]) == timeline.peak_memory_bytes(0)
    assert data(schedule_page([timeline]))["limit"] is None
    assert data(schedule_page([timeline], memory_limit_bytes=5.0))["limit"] == 5.0


def test_a_title_cannot_end_the_script() -> None:
    """Whatever a timeline is called, the page stays one page."""
    named = replace(simulated("1f1b", 2, 2), name="</script><b>")
    page = schedule_page([named])
    assert data(page)["panels"][0]["title"] == "</script><b>"
    assert page.count("</script>") == 2


def test_no_timeline_is_refused() -> None:
    """A page needs at least one."""
    with pytest.raises(InputError, match="there is no timeline to show"):
        schedule_page([])
