"""What is said where no plan fits."""

from dataclasses import replace

from diaulos.planning.explanation.infeasibility import explain_infeasibility
from diaulos.reporting.infeasibility import (
    describe_kinds,
    infeasibility_document,
    infeasibility_sentences,
)
from tests.planning.problems import chain, option, problem

TIGHT = problem(
    chain([option(fixed=4096.0)], [option(fixed=1024.0, activations=2048.0)]),
    memory=5120.0,
    microbatches=2,
)


def test_the_sentences() -> None:
    """The stage with its bytes and kinds, then the least memory, then the fewest devices."""
    found = explain_infeasibility(TIGHT)
    assert found is not None
    assert infeasibility_sentences(TIGHT, found) == [
        (
            "in the best attempt, of 1 stage, stage 0 (layers 0-1) lacks 2 KiB (2048 bytes): it "
            "holds 5 KiB unspecified, 2 KiB activations (1 in flight); its largest layer is 0 with "
            "4 KiB"
        ),
        "with 1 device, 7 KiB on each would do (7168 bytes), and nothing less",
        "with 5 KiB on each device, 2 devices would do, and no fewer",
    ]


def test_nothing_would_do() -> None:
    """A layer without an option at any allowed degree is no question of memory or devices."""
    split = replace(problem(chain([option(tensor_parallel=2)]), devices=2), tensor_parallel=False)
    found = explain_infeasibility(split)
    assert found is not None
    assert infeasibility_sentences(split, found) == [
        "with 2 devices no memory would do",
        "with 953.7 MiB on each device, no number of devices would do",
    ]
    assert infeasibility_document(found) == {
        "least_memory_bytes": None,
        "fewest_devices": None,
        "least_is_proven": True,
    }


def test_what_is_not_proven_is_not_claimed() -> None:
    """Without a proof it is told what would do, not that less would not."""
    found = explain_infeasibility(TIGHT)
    assert found is not None
    _, memory, devices = infeasibility_sentences(TIGHT, replace(found, proven=False))
    assert memory == "with 1 device, 7 KiB on each would do (7168 bytes)"
    assert devices == "with 5 KiB on each device, 2 devices would do"


def test_the_document_names_the_attempt() -> None:
    """Stage, layers, kinds and bytes of the best attempt."""
    found = explain_infeasibility(TIGHT)
    assert found is not None
    attempt = infeasibility_document(found)["best_attempt"]
    assert (attempt["stage"], attempt["stages"], attempt["layers"]) == (0, 1, [0, 1])
    assert attempt["missing_bytes"] == 2048.0
    assert sum(attempt["memory_by_kind"].values()) == attempt["memory_bytes"]


def test_kinds_are_told_largest_first() -> None:
    """What is nothing is left out; of many kinds the smallest are one sum."""
    held = {"parameters": 1.0, "gradients": 0.0, "activations": 5.0, "optimizer": 2.0}
    assert describe_kinds(held, 4) == "5 B activations (4 in flight), 2 B optimizer, 1 B parameters"
    assert describe_kinds(held, 4, most=1) == "5 B activations (4 in flight) and 3 B more"
    assert describe_kinds({}, 4) == ""
