"""Simulated plans in tables, sentences and documents."""

from dataclasses import replace

from rich.console import Console

from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B
from diaulos.reporting.judged import (
    judgement_document,
    judgement_sentence,
    schedule_documents,
    schedule_reasons,
    schedules_table,
)
from diaulos.schedules.judging.judged import fastest_by_simulation
from diaulos.schedules.judging.schedule_choice import compare_schedules
from tests.planning.problems import chain, option, problem

PAIR = replace(
    problem(
        chain([option(seconds=3.0)], [option(seconds=5.0)], bytes_between=1.0),
        devices=3,
        bandwidth=4.0,
        microbatches=8,
    ),
    pipelining=ONE_F_ONE_B,
)


def test_the_sentence() -> None:
    """Both figures of the plan, and those of the best by the closed form where that is another."""
    assert judgement_sentence(fastest_by_simulation(PAIR)) == (
        "simulated, a batch takes 29 s; the closed form says 33.5 s; the plan that is best by the "
        "closed form, with 32 s, takes 32 s"
    )
    alone = fastest_by_simulation(replace(PAIR, graph=chain([option(seconds=3.0)])))
    assert judgement_sentence(alone) == ("simulated, a batch takes 12 s; the closed form says 12 s")


def test_the_document() -> None:
    """The plans that were considered: that of the closed form first, then by depth."""
    document = judgement_document(fastest_by_simulation(PAIR))
    assert (
        document["simulated_batch_seconds"] == document["considered"][-1]["simulated_batch_seconds"]
    )
    assert [plan["stages"] for plan in document["considered"]] == [1, 1, 2]
    assert document["considered"][0] == {
        "stages": 1,
        "batch_seconds": 32.0,
        "simulated_batch_seconds": 32.0,
        "devices_used": 2,
        "fullest_device_bytes": 0.0,
    }


def test_schedules_side_by_side() -> None:
    """A row and an entry for each, also for those that have no plan, with the reason."""
    given = problem(
        chain([option(activations=1.0)]), memory=2.0, microbatches=4, data_parallel=False
    )
    standings = compare_schedules(given)
    console = Console(width=100)
    with console.capture() as capture:
        console.print(schedules_table(standings))
    lines = capture.get().splitlines()
    assert lines[0].split() == [
        *("schedule", "stages", "closed", "form", "simulated"),
        *("devices", "fullest", "device"),
    ]
    assert len(lines) == 5
    assert lines[-1].split() == ["gpipe", "no", "plan", "-", "-", "-", "-"]
    assert schedule_reasons(standings)[0].startswith("no plan for gpipe: no way to cut")
    documents = schedule_documents(standings)
    assert [entry["feasible"] for entry in documents] == [True, True, True, False]
    assert documents[-1].keys() == {"schedule", "feasible", "reason"}
