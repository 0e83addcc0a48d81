"""Pictures of schedules."""

import itertools
import re
from xml.etree import ElementTree as ET

import pytest

from diaulos.errors import InputError
from diaulos.reporting.svg import comparison_svg, schedule_svg
from diaulos.reporting.svg_rows import FILLS, INK
from diaulos.schedules.actions import Kind
from tests.reporting.runs import jittery, simulated

NAMESPACE = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return ["".join(element.itertext()) for element in root.iter(f"{NAMESPACE}text")]


def boxes(svg: str, fill: str) -> list[tuple[float, float, float]]:
    """Left, top and width of all boxes of a colour that are rows, not the legend."""
    root = ET.fromstring(svg)
    paths = [p.get("d", "") for p in root.iter(f"{NAMESPACE}path") if p.get("fill") == fill]
    found = re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v", "".join(paths))
    return [(float(left), float(top), float(width)) for left, top, width in found]


def test_every_computation_has_its_box_and_number() -> None:
    """With room for it, each forward and backward is drawn and numbered through all batches."""
    svg = schedule_svg([simulated("2bw", 4, 4, batches=2)])
    counts = {key: len(boxes(svg, fill.box)) for key, fill in FILLS.items()}
    assert counts == {
        (Kind.FORWARD, 0): 32, (Kind.FORWARD, 1): 0, (Kind.BACKWARD, 0): 32, (Kind.BACKWARD, 1): 0,
        (Kind.WEIGHT_BACKWARD, 0): 0, (Kind.WEIGHT_BACKWARD, 1): 0,
    }  # fmt: skip
    numbers = [text for text in texts(svg) if text.isdigit() and text != "0"]
    assert sorted(numbers, key=int) == sorted([str(k) for k in range(1, 8)] * 8, key=int)
    assert {f"stage {stage}" for stage in range(4)} <= set(texts(svg))


def test_weight_versions_are_seen() -> None:
    """Batches on odd versions are dark, on even ones light: under 2BW batches 0 and 1 are equal."""
    svg = schedule_svg([simulated("2bw", 2, 2, batches=4)])
    assert len(boxes(svg, FILLS[Kind.FORWARD, 0].box)) == 2 * 2 * 3
    assert len(boxes(svg, FILLS[Kind.FORWARD, 1].box)) == 2 * 2 * 1
    assert {"W1", "W2"} <= set(texts(svg))
    flushed = schedule_svg([simulated("1f1b", 2, 2, batches=4)])
    assert len(boxes(flushed, FILLS[Kind.FORWARD, 1].box)) == 2 * 2 * 2


def test_updates_are_marked() -> None:
    """Each update within the window is a thin mark, those at the very end included."""
    svg = schedule_svg([simulated("1f1b", 2, 2, batches=3)])
    marks = boxes(svg, INK)
    assert len(marks) == 2 * 3
    assert all(width == 2.0 for _, _, width in marks)


def test_panels_share_one_scale() -> None:
    """Boxes of the same duration are equally wide in all panels, and rows do not overlap."""
    both = [simulated("1f1b", 4, 4), simulated("2bw", 4, 4)]
    svg = schedule_svg(both)
    widths = {width for _, _, width in boxes(svg, FILLS[Kind.FORWARD, 0].box)}
    assert max(widths) - min(widths) <= 0.1
    tops = sorted({top for key in FILLS for _, top, _ in boxes(svg, FILLS[key].box)})
    assert len(tops) == 8
    assert all(below - above >= 20 for above, below in itertools.pairwise(tops))
    titles = " ".join(texts(svg))
    assert titles.index("1F1B") < titles.index("2BW")


def test_the_caption_states_the_times() -> None:
    """Times per microbatch, step, idle share, in flight and the command are written."""
    svg = schedule_svg([simulated("1f1b", 4, 4)], made_by="diaulos simulate --depth 4 <&>")
    told = " ".join(texts(svg)).replace("\N{NO-BREAK SPACE}", " ")
    assert "Time per microbatch: forward 1 s, backward 2 s." in told
    assert "step 21 s, idle 43% of it; at most 4, 3, 2, 1 in flight" in told
    assert "4 microbatches a batch" in told
    assert "diaulos simulate --depth 4 <&>" in told


def test_uneven_stages_are_told_one_by_one() -> None:
    """Where stages differ, the caption lists each one's time."""
    timeline = jittery(simulated("1f1b", 2, 2))
    told = " ".join(texts(schedule_svg([timeline])))
    assert re.search(r"forward 1\.\d+\ss, 1\.\d+\ss, backward 2\.\d+\ss, 2\.\d+\ss", told)


def test_a_window_cuts_and_says_so() -> None:
    """Nothing is drawn beyond `until_seconds`, and the caption tells what is left out."""
    timeline = simulated("2bw", 4, 4, batches=6)
    svg = schedule_svg([timeline], until_seconds=30)
    right = max(left + width for key in FILLS for left, _, width in boxes(svg, FILLS[key].box))
    assert right <= 980
    told = " ".join(texts(svg)).replace("\N{NO-BREAK SPACE}", " ")
    assert "Shown: the first 30 s of 81 s." in told
    with pytest.raises(InputError, match="until_seconds is 0; it must be above 0"):
        schedule_svg([timeline], until_seconds=0)


def test_numbers_that_do_not_fit_are_left_out() -> None:
    """A narrow box has no text; the picture of a long run is cut to what can be read."""
    timeline = simulated("1f1b", 4, 64, batches=8)
    squeezed = schedule_svg([timeline], until_seconds=timeline.makespan_seconds)
    assert not [text for text in texts(squeezed) if text.isdigit() and text != "0"]
    cut = schedule_svg([timeline])
    assert min(width for _, _, width in boxes(cut, FILLS[Kind.FORWARD, 0].box)[:5]) >= 5.0
    assert "Shown: the first" in " ".join(texts(cut)).replace("\N{NO-BREAK SPACE}", " ")


def test_large_pictures_stay_small() -> None:
    """Three schedules of 8 stages and 32 microbatches take under 300 kB, whole and cut."""
    timelines = [simulated(name, 8, 32, batches=4) for name in ("gpipe", "1f1b", "2bw")]
    assert len(schedule_svg(timelines).encode()) < 300_000
    assert len(schedule_svg(timelines, until_seconds=1e3).encode()) < 300_000


def test_replicas_are_labelled() -> None:
    """A stage on several ranks has one row each; beyond 32 ranks the first ones are shown."""
    svg = schedule_svg([simulated("1f1b", 2, 2, width=2)])
    labels = [text for text in texts(svg) if text.startswith("stage")]
    assert labels == [f"stage {stage}, replica {r}" for stage in range(2) for r in range(2)]
    wide = schedule_svg([simulated("1f1b", 4, 2, width=16)])
    labels = [text for text in texts(wide) if text.startswith("stage")]
    assert labels == [f"stage {stage}, replica 0" for stage in range(4)]
    assert "Of each stage the first replica is shown." in " ".join(texts(wide))


def test_a_picture_needs_nothing_else() -> None:
    """No scripts, no links to fonts or styles, and an opaque background below everything."""
    svg = schedule_svg([simulated("1f1b", 2, 2)])
    assert "<script" not in svg
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "")
    root = ET.fromstring(svg)
    drawn = [element for element in root if element.tag in (f"{NAMESPACE}rect", f"{NAMESPACE}g")]
    assert (drawn[0].get("fill"), drawn[0].get("width")) == ("#ffffff", root.get("width"))


def test_colours_differ_in_lightness_too() -> None:
    """The fills have clearly different luminance, so that a grey print can be read."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    values = sorted(luminance(fill.box) for fill in FILLS.values())
    assert all((b + 0.05) / (a + 0.05) > 1.2 for a, b in itertools.pairwise(values))
    for fill in FILLS.values():
        low, high = sorted((luminance(fill.box), luminance(fill.text)))
        assert (high + 0.05) / (low + 0.05) > 4.5


def test_planned_stands_over_measured() -> None:
    """Each rank's planned row is right above its measured one, with both steps in the title."""
    planned = simulated("2bw", 2, 2, batches=5)
    svg = comparison_svg(planned, jittery(planned))
    labels = [text for text in texts(svg) if text.startswith("stage")]
    assert labels == [
        *("stage 0 planned", "stage 0 measured", "stage 1 planned", "stage 1 measured"),
    ]
    told = " ".join(texts(svg)).replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(r"step 6 s planned, 6\.\d+ s measured \(\+\d+\.\d%\)", told)
    assert "Planned per microbatch: forward 1 s" in told
    assert "Measured per microbatch: forward 1." in told


def test_a_comparison_can_leave_out_a_slow_beginning() -> None:
    """Both rows begin with the first computation of the batch that is asked for."""
    planned = simulated("1f1b", 2, 2, batches=4)
    svg = comparison_svg(planned, jittery(planned), first_batch=2)
    dark_and_light = [len(boxes(svg, FILLS[Kind.FORWARD, parity].box)) for parity in (0, 1)]
    assert dark_and_light == [2 * 2 * 2, 2 * 2 * 2]
    lefts = [left for left, _, _ in boxes(svg, FILLS[Kind.FORWARD, 0].box)]
    assert min(lefts) == sorted(lefts)[1]
    with pytest.raises(InputError, match="has no batch 9"):
        comparison_svg(planned, planned, first_batch=9)


def test_what_cannot_be_drawn_is_refused() -> None:
    """No timeline, or timelines of different pipelines over each other."""
    with pytest.raises(InputError, match="there is no timeline to draw"):
        schedule_svg([])
    with pytest.raises(InputError, match="must be of one run"):
        comparison_svg(simulated("1f1b", 2, 2), simulated("1f1b", 3, 2))
