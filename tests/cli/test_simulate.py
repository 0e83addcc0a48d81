"""`diaulos simulate`."""

import json
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from diaulos.cli.main import main
from diaulos.cli.pipeline import Pipeline
from diaulos.cli.simulate import simulate
from diaulos.cli.simulations import usual_batches
from diaulos.clusters.cluster import Cluster
from diaulos.clusters.files import write_cluster
from diaulos.errors import CheckError, InputError
from diaulos.models.files import write_graph
from diaulos.models.graph import Edge, Layer, LayerGraph, Option
from diaulos.planning.evaluation.evaluate import evaluate
from diaulos.planning.files import write_plan
from diaulos.planning.plan import Plan, Stage
from diaulos.schedules.check import check
from diaulos.schedules.costs import Link
from diaulos.schedules.generators import GENERATORS, generate
from diaulos.schedules.schedule import format_actions, parse_actions
from diaulos.schedules.shape import PipelineShape
from diaulos.schedules.timeline import write_timeline
from tests.reporting.runs import jittery, simulated
from tests.schedules.shapes import line


def document(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_the_json_holds_the_closed_forms(capsys: pytest.CaptureFixture[str]) -> None:
    """Three schedules of 4 stages and 8 microbatches, a forward of 1 s and a backward of 2 s."""
    simulate(depth=4, microbatches=8, schedule=["gpipe", "1f1b", "2bw"], as_json=True)
    found = document(capsys)
    assert found["microbatches"] == 8
    assert found["batches"] == 4
    schedules = found["schedules"]
    assert list(schedules) == ["gpipe", "1f1b", "2bw"]
    assert [entry["step_seconds"] for entry in schedules.values()] == [33.0, 33.0, 24.0]
    assert [entry["makespan_seconds"] for entry in schedules.values()] == [132.0, 132.0, 105.0]
    assert [entry["makespan"] for entry in schedules.values()] == [132.0, 132.0, 105.0]
    versions = [entry["weight_versions"] for entry in schedules.values()]
    assert versions == [[1] * 4, [1] * 4, [2] * 4]
    assert schedules["2bw"]["update_slack"] == [5, 6, 7, 8]
    peaks = [entry["peak_in_flight"] for entry in schedules.values()]
    assert peaks == [[8, 8, 8, 8], [4, 3, 2, 1], [4, 3, 2, 1]]
    assert schedules["1f1b"]["bubble_fraction"] == pytest.approx(3 / 11)
    assert schedules["2bw"]["bubble_fraction"] == pytest.approx(9 / 105)
    assert schedules["2bw"]["step_bubble_fraction"] == pytest.approx(0.0)


def test_published_makespans_are_met(capsys: pytest.CaptureFixture[str]) -> None:
    """8 stages, 16 microbatches: what the zero-bubble paper's schedulers reach, as it counts."""
    for halves, expected in (
        ((1, 1, 1), {"1f1b": 69.0, "zb-h1": 55.0, "zb-h2": 55.0, "zb-v": 51.5, "auto": 51.5}),
        ((10, 12, 9), {"1f1b": 713.0, "zb-h1": 587.0, "zb-h2": 566.0, "zb-v": 538.0}),
    ):
        forward, of_input, of_weights = halves
        simulate(
            depth=8, microbatches=16, batches=1, forward=forward, backward_input=of_input,
            backward_weight=of_weights, schedule=list(expected), as_json=True,
        )  # fmt: skip
        found = document(capsys)["schedules"]
        assert {name: entry["makespan"] for name, entry in found.items()} == expected


def test_chunks_count_as_parts_of_a_microbatch(capsys: pytest.CaptureFixture[str]) -> None:
    """Interleaved with 2 chunks: the peak on rank r is (2(d-r-1) + (v-1)d + 1)/v microbatches."""
    simulate(depth=4, microbatches=8, chunks=3, schedule=["interleaved"], as_json=True)
    entry = document(capsys)["schedules"]["interleaved"]
    assert entry["peak_in_flight"] == [(2 * (3 - r) + 2 * 4 + 1) / 3 for r in range(4)]
    assert entry["stages_per_rank"] == 3
    assert entry["weight_versions"] == [1] * 12


def test_an_order_is_searched_within_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """No more in flight than asked for; more room is never slower; the bound is told."""
    makespans = []
    for limit in (2, 4, 8):
        simulate(
            depth=4, microbatches=8, chunks=1, in_flight_limit=limit, schedule=["auto"],
            as_json=True,
        )  # fmt: skip
        entry = document(capsys)["schedules"]["auto"]
        assert max(entry["peak_in_flight"]) <= limit
        assert entry["makespan"] >= entry["lower_bound_seconds"]
        makespans.append(entry["makespan"])
    assert makespans == sorted(makespans, reverse=True)


def test_bubbles_are_told_by_cause(capsys: pytest.CaptureFixture[str]) -> None:
    """The shares of all causes sum to the bubble."""
    simulate(depth=4, microbatches=8, as_json=True)
    for entry in document(capsys)["schedules"].values():
        assert sum(entry["bubble_by_cause"].values()) == pytest.approx(entry["bubble_fraction"])


def test_times_width_and_batches_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """Microbatches are those of each replica."""
    simulate(
        depth=2, microbatches=4, width=3, forward=5, backward=7, batches=2,
        schedule=["1f1b"], as_json=True,
    )  # fmt: skip
    found = document(capsys)
    assert found["replicas"] == [3, 3]
    assert found["microbatches"] == 12
    assert found["schedules"]["1f1b"]["makespan_seconds"] == 2 * 5 * 12


def test_the_table_has_the_schedules_in_the_order_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each one row, once."""
    simulate(depth=2, microbatches=2, schedule=["2bw", "1f1b", "2bw"])
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["schedule", "2bw", "1f1b"]


def test_an_order_is_proven_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    """The solver raises the bound to what the schedule takes."""
    pytest.importorskip("ortools", reason="the extra solver is not installed")
    flags = {"depth": 3, "microbatches": 4, "batches": 1, "chunks": 1, "schedule": ["auto"]}
    bounds = []
    for prove in (False, True):
        simulate(**flags, in_flight_limit=2, prove=prove, as_json=True)
        captured = capsys.readouterr()
        assert ("no order of whole stages takes less than" in captured.err) == prove
        entry = json.loads(captured.out)["schedules"]["auto"]
        bounds.append(entry["lower_bound_seconds"])
        assert entry["makespan"] >= bounds[-1]
    assert bounds[1] == entry["makespan"] >= bounds[0]


def test_proving_needs_whole_stages_and_the_solver(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages that may be cut are refused, and a missing package is named with its extra."""
    with pytest.raises(InputError, match=r"stages may be cut in 2; .* add --chunks 1"):
        simulate(depth=2, microbatches=2, schedule=["auto"], prove=True)
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    flags = "--depth 2 --microbatches 2 --chunks 1 --schedule auto --prove"
    with pytest.raises(SystemExit) as ended:
        main(["simulate", *flags.split()])
    assert ended.value.code == 2
    assert "needs ortools; install it with pip install 'diaulos[solver]'" in capsys.readouterr().err


def test_what_cannot_run_is_left_out_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    """Too few microbatches for 2BW: the others run, and a note says what would work."""
    simulate(depth=4, microbatches=2, as_json=True)
    captured = capsys.readouterr()
    assert list(json.loads(captured.out)["schedules"]) == [
        *(name for name in GENERATORS if name != "2bw"), "auto",
    ]  # fmt: skip
    assert "2bw left out: microbatches is 2" in captured.err
    assert "use at least 3, or 4" in captured.err
    with pytest.raises(InputError, match="use at least 3, or 4"):
        simulate(depth=4, microbatches=2, schedule=["2bw"])


def test_the_actions_are_printed_as_they_are_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    """The text of one schedule is what the checker reads; of several each has its name above."""
    simulate(depth=3, microbatches=4, batches=2, schedule=["2bw"], as_text=True)
    text = capsys.readouterr().out
    expected = generate("2bw", line(3, 4), 2)
    assert parse_actions(text) == expected.actions
    check(expected)
    simulate(depth=3, microbatches=4, batches=2, as_text=True)
    assert f"2bw\n{format_actions(expected)}" in capsys.readouterr().out


def test_pictures_and_traces_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture states the command that made it; stdout stays the document alone."""
    monkeypatch.setattr(sys, "argv", ["anything", "simulate", "--depth", "2", "--svg", "a b.svg"])
    svg, html, trace = tmp_path / "deep" / "s.svg", tmp_path / "s.html", tmp_path / "t.json"
    simulate(
        depth=2, microbatches=2, schedule=["gpipe", "1f1b", "2bw"], svg=svg, html=html, until=9,
        trace=trace, as_json=True,
    )  # fmt: skip
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert captured.err.splitlines() == [f"wrote {path}" for path in (svg, html, trace)]
    page = html.read_text(encoding="utf-8")
    assert "diaulos simulate --depth 2 --svg &#x27;a b.svg&#x27;" in page
    assert page.index("GPipe:") < page.index("1F1B:") < page.index("2BW:")
    texts = ["".join(element.itertext()) for element in ET.parse(svg).iter()]
    assert any("diaulos simulate --depth 2 --svg 'a b.svg'" in text for text in texts)
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert names == ["gpipe", "1f1b", "2bw"]


def test_a_measured_run_is_laid_beside_its_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many batches as were measured, both rows in picture, trace and document."""
    measured = tmp_path / "timeline.json"
    write_timeline(measured, jittery(simulated("2bw", 2, 2, batches=5)))
    svg, html, trace = tmp_path / "s.svg", tmp_path / "s.html", tmp_path / "t.json"
    simulate(
        depth=2, microbatches=2, schedule=["2bw"], measured=measured, svg=svg, html=html,
        trace=trace, as_json=True,
    )  # fmt: skip
    found = document(capsys)
    assert found["batches"] == 5
    assert list(found["schedules"]) == ["2bw", "measured"]
    assert found["schedules"]["measured"]["weight_versions"] == [2, 1]
    assert (
        found["schedules"]["measured"]["step_seconds"] > found["schedules"]["2bw"]["step_seconds"]
    )
    assert "stage 1 measured" in svg.read_text(encoding="utf-8")
    assert "<title>2bw planned; measured</title>" in html.read_text(encoding="utf-8")
    assert '"name":"measured"' in trace.read_text(encoding="utf-8")
    with pytest.raises(InputError, match="--measured is given beside several schedules"):
        simulate(depth=2, microbatches=2, measured=measured)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "neither a plan nor --depth with --microbatches"),
        ({"depth": 4}, "neither a plan nor --depth with --microbatches"),
        ({"depth": 0, "microbatches": 4}, "--depth is 0; it must be at least 1"),
        ({"depth": 2, "microbatches": 0}, "--microbatches is 0; it must be at least 1"),
        ({"depth": 2, "microbatches": 2, "width": 0}, "--width is 0; it must be at least 1"),
        ({"depth": 2, "microbatches": 2, "batches": 0}, "batches is 0; it must be at least 1"),
        ({"depth": 2, "microbatches": 2, "forward": -1.0}, "forward_seconds is -1.0; it must be"),
        ({"plan": Path("p.json"), "depth": 2}, "--depth is given beside a plan"),
        ({"plan": Path("p.json"), "backward_input": 2.0}, "--backward-input is given beside a"),
        ({"depth": 2, "microbatches": 2, "chunks": 0}, "--chunks is 0; it must be at least 1"),
        ({"depth": 2, "microbatches": 2, "backward_input": 1.0}, "the two halves of a backward"),
        (
            {"depth": 2, "microbatches": 2, "schedule": ["auto"], "in_flight_limit": 0},
            "--in-flight-limit is 0; it must be at least 1",
        ),
        (
            {"depth": 2, "microbatches": 2, "schedule": ["1f1b"], "in_flight_limit": 2},
            "--in-flight-limit is given with 1f1b; only the order of --schedule auto",
        ),
        (
            {"depth": 2, "microbatches": 2, "schedule": ["1f1b", "zb-v"], "prove": True},
            "--prove is given with 1f1b, zb-v; only the order of --schedule auto",
        ),
        (
            {"depth": 2, "microbatches": 2, "schedule": ["zb-v"], "chunks": 3},
            "--chunks is 3 with zb-v; how many stages a rank has is fixed",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict, message: str) -> None:
    """The flag, the rule and an example are named."""
    with pytest.raises(InputError, match=message):
        simulate(**arguments)


def stored_plan(folder: Path, *, memory_bytes: float = 1e3, microbatches: int = 4) -> Path:
    """A plan of two stages, the first with two replicas, written with its graph and cluster."""
    option = Option(
        name="plain", seconds=3.0, forward_seconds=1.0, parameter_bytes=8, activation_bytes=5
    )
    graph = LayerGraph(
        layers=tuple(Layer(id=number, options=(option,)) for number in range(3)),
        edges=(Edge(source=0, target=1, bytes=4), Edge(source=1, target=2, bytes=4)),
    )
    stages = (
        Stage(layers=(0, 1), data_parallel=2, tensor_parallel=1, options={0: "plain", 1: "plain"}),
        Stage(layers=(2,), data_parallel=1, tensor_parallel=1, options={2: "plain"}),
    )
    plan = Plan(stages=stages, microbatches=microbatches)
    cluster = Cluster.flat(devices=3, memory_bytes=memory_bytes, bandwidth_bytes_per_second=4.0)
    graph_path = folder / "graph.json"
    write_graph(graph_path, graph)
    write_plan(
        folder / "plan.json",
        plan,
        evaluate(graph, plan, cluster),
        graph_path=graph_path,
        cluster=cluster,
        made_by={"planner": "hand"},
    )
    return folder / "plan.json"


def test_a_plan_is_simulated_with_its_graph_and_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPipe, one batch by hand, the link taking 1 s: peaks and memory are told per stage."""
    simulate(stored_plan(tmp_path), schedule=["gpipe"], batches=1, as_json=True)
    found = document(capsys)
    assert found["replicas"] == [2, 1]
    entry = found["schedules"]["gpipe"]
    # Stage 0: F0 and F1 end at 2 s, F2 and F3 at 4 s; stage 1: forwards from 3 to 7 s, backwards
    # to 15 s; the last gradient is back at 16 s, B3 takes 4 s, and so does the ring of two that
    # carries 2 (2-1)/2 of 16 bytes at 4 bytes/s.
    assert entry["makespan_seconds"] == 16 + 4 + 4
    assert entry["peak_in_flight"] == [2, 4]
    assert entry["peak_memory_bytes"] == [20.0, 20.0]


def test_a_schedule_that_does_not_fit_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """GPipe holds all microbatches, which is more than the plan counts; 1F1B keeps to the plan."""
    plan = stored_plan(tmp_path, memory_bytes=20.0, microbatches=8)
    simulate(plan, schedule=["gpipe", "1f1b"])
    assert capsys.readouterr().err.splitlines() == [
        "gpipe does not fit into 20 B: stage 0 holds 40 B at its peak; too much on stages [0, 1]"
    ]


def test_another_cluster_changes_the_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A faster link takes the place of the plan's own; a changed graph is noted."""
    plan = stored_plan(tmp_path)
    fast = Cluster.flat(devices=3, memory_bytes=1e3, bandwidth_bytes_per_second=4e12)
    write_cluster(tmp_path / "fast.toml", fast)
    graph = tmp_path / "graph.json"
    graph.write_text(graph.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    simulate(
        plan, cluster=tmp_path / "fast.toml", schedule=["gpipe"], batches=1, as_json=True
    )  # fmt: skip
    captured = capsys.readouterr()
    entry = json.loads(captured.out)["schedules"]["gpipe"]
    assert entry["makespan_seconds"] == pytest.approx(2 + 4 + 8 + 4)
    assert "is not the graph that the plan was made from" in captured.err


def test_a_plan_that_breaks_rules_is_refused(tmp_path: Path) -> None:
    """A plan that does not fit is not simulated as if it did."""
    with pytest.raises(CheckError, match="the plan breaks"):
        simulate(stored_plan(tmp_path, memory_bytes=1.0))


def test_flags_of_a_plan_need_one(tmp_path: Path) -> None:
    """A graph or a cluster without a plan is not silently ignored."""
    with pytest.raises(InputError, match="--graph is given without a plan"):
        simulate(depth=2, microbatches=2, graph=tmp_path / "graph.json")


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("--depth 2 --microbatches 2 --schedule 1f1b --schedule 2bw", 0),
        ("--depth 4 --microbatches 2 --schedule 2bw", 2),
        ("--depth 4 --microbatches 4 --schedule unheard-of", 2),
        ("absent.json", 2),
        ("--depth 2", 2),
    ],
)
def test_the_exit_status_tells_what_happened(
    arguments: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """0 done, 2 bad input, with one message on stderr and nothing on stdout."""
    found = 0
    try:
        main(["simulate", *arguments.split()])
    except SystemExit as ended:
        found = ended.code
    captured = capsys.readouterr()
    assert found == status
    assert bool(captured.out) == (status == 0)
    assert captured.err.startswith("diaulos: ") == (status != 0)


def test_a_plan_that_breaks_rules_ends_with_1(tmp_path: Path) -> None:
    """A plan that does not hold what it promises is a failed check."""
    with pytest.raises(SystemExit) as ended:
        main(["simulate", str(stored_plan(tmp_path, memory_bytes=1.0))])
    assert ended.value.code == 1


@pytest.mark.parametrize(
    ("microbatches", "chunks", "names", "batches"),
    [
        (8, 4, ["interleaved"], 4),
        (1024, 4, ["interleaved", "1f1b"], 1),
        (1024, 4, ["interleaved", "2bw"], 4),
        (1024, 4, ["all"], 4),
    ],
)
def test_batches_of_large_pipelines(
    microbatches: int, chunks: int, names: list[str], batches: int
) -> None:
    """Of a large pipeline that flushes one batch tells everything; else it is four."""
    shape = PipelineShape(replicas=(1,) * 64, microbatches=microbatches)
    pipeline = Pipeline(shape=shape, costs=(), links=Link(), chunks=chunks)
    assert usual_batches(pipeline, names) == batches
