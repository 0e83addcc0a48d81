"""Pictures of schedules."""

import itertools
import re
from xml.etree import ElementTree as ET

import pytest

from diaulos.errors import InputError
from diaulos.reporting.colours import INK, fill, version_band
from diaulos.reporting.svg import comparison_svg, schedule_svg
from diaulos.reporting.svg_rows import BAND_HEIGHT
from diaulos.schedules.actions import Kind
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import generate
from diaulos.schedules.simulate import simulate
from tests.reporting.drawn import NAMESPACE, placed_texts, spans
from tests.reporting.runs import jittery, simulated
from tests.schedules.shapes import shape_for


def texts(svg: str) -> list[str]:
    elements = ET.fromstring(svg).iter(f"{NAMESPACE}text")
    return [text for element in elements for _, text in placed_texts(element)]


COMPUTATIONS = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_BACKWARD, Kind.WEIGHT_BACKWARD)


def bars(svg: str, colour: str, *, bands: bool = False) -> list[tuple[float, float, float]]:
    """Left, middle and width of all boxes of a colour, or of all bands below boxes."""
    found = []
    for group in ET.fromstring(svg).iter(f"{NAMESPACE}g"):
        is_band = group.get("stroke-width") == f"{BAND_HEIGHT:g}"
        place = re.fullmatch(r"translate\(0 ([\d.]+)\)", group.get("transform", ""))
        for path in group.findall(f"{NAMESPACE}path"):
            if place and is_band == bands and path.get("stroke") == colour:
                found += [(left, float(place[1]), width) for left, width in spans(path)]
    return found


def boxes(svg: str, kind: Kind, chunk: int = 0, chunks: int = 1):
    return bars(svg, fill(kind, chunk, chunks).box)


def chunked(name: str, depth: int, microbatches: int, batches: int = 1):
    """Two stages a rank, each with a forward and halves of a backward of 1 s."""
    schedule = generate(name, shape_for(name, depth, microbatches), batches)
    cost = StageCosts(forward_seconds=1.0, backward_seconds=2.0)
    return simulate(schedule, [cost] * schedule.shape.stages, Link())


def test_every_computation_has_its_box_and_number() -> None:
    """With room for it, each forward and backward is drawn and numbered through all batches."""
    svg = schedule_svg([simulated("2bw", 4, 4, batches=2)])
    assert [len(boxes(svg, kind)) for kind in COMPUTATIONS] == [32, 32, 0, 0]
    numbers = [text for text in texts(svg) if text.isdigit() and text != "0"]
    assert sorted(numbers, key=int) == sorted([str(k) for k in range(1, 8)] * 8, key=int)
    assert {f"stage {stage}" for stage in range(4)} <= set(texts(svg))


def test_halves_of_backwards_have_their_own_colours() -> None:
    """Whole backwards, input halves and weight halves are drawn, named and timed apart."""
    svg = schedule_svg([chunked("dualpipe-v", 4, 8)])
    drawn = {
        kind: sum(len(boxes(svg, kind, chunk, 2)) for chunk in range(2)) for kind in COMPUTATIONS
    }
    assert drawn[Kind.FORWARD] == 8 * 8
    assert drawn[Kind.INPUT_BACKWARD] == drawn[Kind.WEIGHT_BACKWARD] > 0
    assert drawn[Kind.BACKWARD] + drawn[Kind.INPUT_BACKWARD] == 8 * 8
    assert {"forward", "backward", "input backward", "weight backward"} <= set(texts(svg))
    told = " ".join(texts(svg)).replace("\N{NO-BREAK SPACE}", " ")
    assert "forward 1 s, backward 2 s, input backward 1 s, weight backward 1 s." in told


def test_stages_of_a_rank_differ_in_shade() -> None:
    """The first of two stages is light and the second dark, and the legend says so."""
    svg = schedule_svg([chunked("interleaved", 4, 8)])
    assert [len(boxes(svg, Kind.FORWARD, chunk, 2)) for chunk in range(2)] == [4 * 8, 4 * 8]
    assert "(light to dark: first to last stage of a rank)" in texts(svg)


def test_weight_versions_are_marked() -> None:
    """A band below each box tells its version: under 2BW batches 0 and 1 are on the first one."""
    svg = schedule_svg([simulated("2bw", 2, 2, batches=4)])
    widths = [sum(w for _, _, w in bars(svg, version_band(v), bands=True)) for v in range(4)]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert widths[1] == pytest.approx(widths[2], rel=0.01)
    assert widths[3] == 0
    assert {"W1", "W2", "below: weight version W0, W1, W2"} <= set(texts(svg))
    once = schedule_svg([simulated("1f1b", 2, 2, batches=1)])
    assert "weight version" not in " ".join(texts(once))


def test_updates_are_marked() -> None:
    """Each update within the window is a thin mark, those at the very end included."""
    svg = schedule_svg([simulated("1f1b", 2, 2, batches=3)])
    root = ET.fromstring(svg)
    paths = [p.get("d", "") for p in root.iter(f"{NAMESPACE}path") if p.get("fill") == INK]
    marks = re.findall(r"M[\d.]+ [\d.]+h([\d.]+)v", "".join(paths))
    assert marks == ["2.0"] * 2 * 3


def test_panels_share_one_scale() -> None:
    """Boxes of the same duration are equally wide in all panels, and rows do not overlap."""
    both = [simulated("1f1b", 4, 4), simulated("2bw", 4, 4)]
    svg = schedule_svg(both)
    widths = {width for _, _, width in boxes(svg, Kind.FORWARD)}
    assert max(widths) - min(widths) <= 0.1
    tops = sorted({top for kind in COMPUTATIONS for _, top, _ in boxes(svg, kind)})
    assert len(tops) == 8
    assert all(below - above >= 20 for above, below in itertools.pairwise(tops))
    titles = " ".join(texts(svg))
    assert titles.index("1F1B") < titles.index("2BW")


def test_the_caption_states_the_times() -> None:
    """Times per microbatch, step, idle share, in flight and the command are written."""
    svg = schedule_svg([simulated("1f1b", 4, 4)], made_by="diaulos simulate --depth 4 <&>")
    told = " ".join(texts(svg)).replace("\N{NO-BREAK SPACE}", " ")
    assert "Time of a microbatch on a stage: forward 1 s, backward 2 s." in told
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
    right = max(left + width for kind in COMPUTATIONS for left, _, width in boxes(svg, kind))
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
    assert min(width for _, _, width in boxes(cut, Kind.FORWARD)[:5]) >= 5.0
    assert "Shown: the first" in " ".join(texts(cut)).replace("\N{NO-BREAK SPACE}", " ")


def test_large_pictures_stay_small() -> None:
    """Five schedules of 8 stages and 32 microbatches take under 200 kB, whole and cut."""
    timelines = [simulated(name, 8, 32, batches=4) for name in ("gpipe", "1f1b", "2bw", "zb-h1")]
    timelines.append(chunked("zb-v", 8, 32, batches=4))
    assert len(schedule_svg(timelines).encode()) < 200_000
    assert len(schedule_svg(timelines, until_seconds=1e3).encode()) < 200_000


def test_times_are_told_once_for_schedules_that_share_them() -> None:
    """Where schedules cut backwards in halves or ranks into stages, each has its times."""
    told = " ".join(
        texts(schedule_svg([simulated(name, 4, 4) for name in ("gpipe", "1f1b", "zb-h1")]))
    ).replace("\N{NO-BREAK SPACE}", " ")
    assert "gpipe, 1f1b: forward 1 s, backward 2 s; zb-h1: forward 1 s, input backward 1 s" in told


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
    assert "Planned time of a microbatch on a stage: forward 1 s" in told
    assert "Measured: forward 1." in told


def test_a_comparison_can_leave_out_a_slow_beginning() -> None:
    """Both rows begin with the first computation of the batch that is asked for."""
    planned = simulated("1f1b", 2, 2, batches=4)
    svg = comparison_svg(planned, jittery(planned), first_batch=2)
    assert len(boxes(svg, Kind.FORWARD)) == 2 * 2 * 2 * 2
    lefts = sorted({left for left, _, _ in boxes(svg, Kind.FORWARD)})
    first = [left for left, _, _ in boxes(svg, Kind.FORWARD)[:5:4]]
    assert first == [lefts[0]] * 2
    with pytest.raises(InputError, match="has no batch 9"):
        comparison_svg(planned, planned, first_batch=9)


def test_what_cannot_be_drawn_is_refused() -> None:
    """No timeline, or timelines of different pipelines over each other."""
    with pytest.raises(InputError, match="there is no timeline to draw"):
        schedule_svg([])
    with pytest.raises(InputError, match="must be of one run"):
        comparison_svg(simulated("1f1b", 2, 2), simulated("1f1b", 3, 2))
