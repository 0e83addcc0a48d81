"""`diaulos demo`: the whole way, from a model to a trained one, with the prediction beside it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from diaulos.cli.output import make_console
from diaulos.clusters.cluster import Cluster
from diaulos.clusters.files import write_cluster
from diaulos.documents import write_text
from diaulos.errors import InfeasibleError
from diaulos.models.data import demo_text, write_tokens
from diaulos.models.files import write_graph
from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.graph import LayerGraph
from diaulos.planning.exact import exact
from diaulos.planning.files import write_plan
from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem
from diaulos.pricing.averages import average_seconds
from diaulos.pricing.links import local_cluster
from diaulos.pricing.measure import profile
from diaulos.pricing.training_memory import with_training_state
from diaulos.reporting.svg import comparison_svg
from diaulos.reporting.tables import plan_table
from diaulos.reporting.trace import write_trace
from diaulos.schedules.plans import simulate_plan
from diaulos.schedules.timeline import Timeline, write_timeline
from diaulos.training.compare import compare_gradients
from diaulos.training.launch import launch
from diaulos.training.optimizers import AdamW
from diaulos.training.records import read_measured_timeline, read_steps
from diaulos.training.run_file import read_run
from diaulos.units import format_bytes, format_seconds

_CONFIG = GPTConfig(layers=6, width=192, heads=6, sequence_length=128)
_MICROBATCH_SIZE = 2
_MICROBATCHES = 4
_OPTIMIZER = AdamW(learning_rate=1e-3, fused=True)
_REPETITIONS = 3
_SCHEDULES = ("2bw", "1f1b")
_FIRST_DRAWN, _DRAWN_STEPS = 2, 4
"""Batches in the pictures: where the run has warmed up."""
_MEMORY_SHARE = 0.75
"""Of what the whole model takes in one process: so that it has to be split."""


def demo(*, folder: Path = Path("runs/demo"), processes: int = 2, batches: int = 40) -> None:
    """Profile, plan, check, simulate and train a small GPT on this machine, in about a minute.

    Parameters
    ----------
    folder
        Where everything is written.
    processes
        Ranks to plan for and to train with.
    batches
        Optimizer updates of each of the two runs.
    """
    console = make_console()
    folder.mkdir(parents=True, exist_ok=True)
    _prepare_data(console, folder)
    graph, cluster = _measure(console, folder, processes)
    plan = _plan(console, folder, graph, cluster)
    predicted, measured = {}, {}
    for name in _SCHEDULES:
        measured[name] = _train(console, folder, name, batches)
        again = _profile(processes)
        prices = average_seconds([graph, again])
        predicted[name] = simulate_plan(prices, plan, cluster, schedule=name, batches=batches)
        graph = again
    console.rule("prediction and measurement")
    console.print(_comparison(predicted, measured))
    console.print(
        "predicted: by the simulator, from profiles right before and right after each run, as the "
        "speed of a computer drifts"
    )
    console.print(_gain(plan, measured))
    _compare_gradients(console, folder)
    _write_pictures(console, folder, predicted, measured)


def _prepare_data(console: Console, folder: Path) -> None:
    text = demo_text()
    write_tokens(text.content, folder / "text.bin")
    console.print(f"text: {text.origin}, {format_bytes(len(text.content.encode()))}, byte by byte")


def _measure(console: Console, folder: Path, processes: int) -> tuple[LayerGraph, Cluster]:
    """The model's prices and this machine as a cluster, both measured."""
    console.rule(f"measuring the model, in {processes} processes at a time")
    graph = _profile(processes)
    whole = sum(layer.options[0].memory_bytes(1) for layer in graph.layers)
    boundary = max(edge.bytes for edge in graph.edges)
    cluster = local_cluster(
        processes=processes, memory_bytes=_MEMORY_SHARE * whole, message_bytes=int(boundary)
    )
    write_graph(folder / "graph.json", graph)
    write_cluster(folder / "cluster.toml", cluster)
    seconds = sum(layer.options[0].seconds for layer in graph.layers)
    console.print(
        f"a GPT of {len(graph.layers)} layers: {format_seconds(seconds)} and {format_bytes(whole)} "
        "for a microbatch in one process\n"
        f"the link: {format_bytes(cluster.slowest_link.bandwidth_bytes_per_second)}/s, "
        f"latency {format_seconds(cluster.slowest_link.latency_seconds)}\n"
        f"each process may hold {format_bytes(cluster.largest_memory_bytes)}, "
        f"{_MEMORY_SHARE:.0%} of that: the model has to be split"
    )
    return graph, cluster


def _profile(processes: int) -> LayerGraph:
    """The model measured in as many processes at a time as will train it."""
    measured = profile(
        gpt(_CONFIG),
        microbatch_size=_MICROBATCH_SIZE,
        processes=processes,
        optimizer=_OPTIMIZER.factory(),
        repetitions=_REPETITIONS,
    )
    return with_training_state(
        measured,
        optimizer_bytes_per_parameter_byte=_OPTIMIZER.state_bytes_per_parameter_byte,
    )


def _plan(console: Console, folder: Path, graph: LayerGraph, cluster: Cluster) -> Plan:
    console.rule(f"planning for {cluster.devices} processes")
    result = exact(PlanningProblem(graph=graph, cluster=cluster, microbatches=_MICROBATCHES))
    if result.plan is None or result.evaluation is None:
        raise InfeasibleError(f"no plan: {result.reason}")
    write_plan(
        folder / "plan.json",
        result.plan,
        result.evaluation,
        graph_path=folder / "graph.json",
        cluster=cluster,
        made_by={"planner": result.planner},
    )
    console.print(plan_table(graph, result.plan, result.evaluation, cluster))
    return result.plan


def _train(console: Console, folder: Path, schedule: str, batches: int) -> Timeline:
    """Train with a schedule through the launcher; the measured timeline."""
    console.rule(f"training with {schedule}")
    path = folder / f"{schedule}.toml"
    path.write_text(_run_file(schedule, batches), encoding="utf-8")
    run = read_run(path)
    launch(["train", str(path)], run.job.grid.ranks)
    timeline = read_measured_timeline(run.folder, f"{schedule} measured", _MICROBATCHES)
    write_timeline(run.folder / "timeline.json", timeline)
    by_rank = read_steps(run.folder)
    first, last = by_rank[-1][0], by_rank[-1][-1]
    versions = max(steps[-1].weight_versions for steps in by_rank)
    in_flight = ", ".join(str(steps[-1].in_flight) for steps in by_rank)
    console.print(
        f"loss {first.loss:.3f} -> {last.loss:.3f} in {batches} updates; counted on the ranks: at "
        f"most {versions} weight version{'s' * (versions > 1)} alive, {in_flight} microbatches in "
        "flight"
    )
    return timeline


def _run_file(schedule: str, batches: int) -> str:
    return f"""\
format = "diaulos.run/1"
plan = "plan.json"
folder = "{schedule}"
schedule = "{schedule}"
batches = {batches}
microbatch_size = {_MICROBATCH_SIZE}
clip_norm = 1.0

[model]
layers = {_CONFIG.layers}
width = {_CONFIG.width}
heads = {_CONFIG.heads}
sequence_length = {_CONFIG.sequence_length}

[data]
tokens = "text.bin"

[optimizer.adamw]
learning_rate = {_OPTIMIZER.learning_rate}
fused = {str(_OPTIMIZER.fused).lower()}
"""


def _comparison(predicted: Mapping[str, Timeline], measured: Mapping[str, Timeline]) -> Table:
    table = Table("schedule", title="step time and bubble, simulated and measured")
    for heading in ("predicted", "measured", "difference", "bubble predicted", "bubble measured"):
        table.add_column(heading, justify="right")
    for name, planned in predicted.items():
        ran = measured[name]
        table.add_row(
            name,
            format_seconds(planned.step_seconds),
            format_seconds(ran.step_seconds),
            f"{ran.step_seconds / planned.step_seconds - 1:+.1%}",
            f"{planned.step_bubble_fraction:.1%}",
            f"{ran.step_bubble_fraction:.1%}",
        )
    return table


def _gain(plan: Plan, measured: Mapping[str, Timeline]) -> str:
    gain = measured["1f1b"].step_seconds / measured["2bw"].step_seconds
    depth, microbatches = len(plan.stages), plan.microbatches // plan.stages[0].data_parallel
    formula = (microbatches + depth - 1) / microbatches
    return (
        f"2bw is {gain:.2f} times as fast as 1f1b with a flush; the bubble formula (m + d - 1) / m "
        f"with m = {microbatches} and d = {depth} says {formula:.2f}"
    )


def _compare_gradients(console: Console, folder: Path) -> None:
    for schedule in _SCHEDULES:
        job = replace(read_run(folder / f"{schedule}.toml").job, batches=3)
        console.print(
            f"{schedule}: largest difference between the pipeline's gradients and a one-process "
            f"run: {compare_gradients(job)}"
        )


def _write_pictures(
    console: Console,
    folder: Path,
    predicted: Mapping[str, Timeline],
    measured: Mapping[str, Timeline],
) -> None:
    timelines = [timeline for name in predicted for timeline in (predicted[name], measured[name])]
    titles = [f"{name} {kind}" for name in predicted for kind in ("predicted", "measured")]
    write_trace(folder / "trace.json", timelines, titles)
    console.print(f"trace, for ui.perfetto.dev: {folder / 'trace.json'}")
    for name, planned in predicted.items():
        until = _DRAWN_STEPS * measured[name].step_seconds
        picture = comparison_svg(
            planned, measured[name], first_batch=_FIRST_DRAWN, until_seconds=until
        )
        write_text(folder / f"{name}.svg", picture)
        console.print(f"picture, predicted over measured: {folder / f'{name}.svg'}")
