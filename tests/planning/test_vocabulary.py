"""Vocabulary layers unbalance a pipeline: measured stage times in, the optimal split out.

The stage times of 32 layers on 8 stages (`vocab_stage_times_pp8.csv`, VocabularyParallelism's
artifact) give the seconds of a transformer layer and of the input and output layers at each
sequence length and vocabulary. Some stages were not recorded; where the first or the last stage of
a vocabulary is missing, its layer is a straight line through those of other vocabularies.
"""

import csv
from functools import cache
from statistics import mean, median

import numpy as np
import pytest

from diaulos.planning.evaluation.evaluate import Evaluation, evaluate
from diaulos.planning.evaluation.pipelining import ONE_F_ONE_B
from diaulos.planning.exact import exact
from diaulos.planning.plan import Plan
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import chain, option, problem
from tests.planning.reference import FOLDER, needs_reference
from tests.planning.test_issue_cases import by_hand

pytestmark = needs_reference
MEASURED = FOLDER.parent / "measured"
LAYERS, STAGES, MICROBATCHES = 32, 8, 128
VOCABULARIES = (32_000, 64_000, 128_000, 256_000)
PEAK_FLOPS = 8 * 312e12
"""Of the eight A100 whose utilisation was measured."""
CASES = [(sequence, words) for sequence in (2048, 4096) for words in VOCABULARIES]
cases = pytest.mark.parametrize(("sequence", "words"), CASES)
Row = dict[str, str]


@cache
def table(name: str) -> list[Row]:
    """The rows of a table of measurements."""
    with (MEASURED / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def stage_rows(sequence: int, *, layout: str = "") -> list[Row]:
    """The measured stages of a sequence length, of one layout or of both."""
    rows = table("vocab_stage_times_pp8.csv")
    return [r for r in rows if int(r["seq"]) == sequence and layout in r["layout"]]


def seconds(row: Row) -> float:
    """Forward and backward of a microbatch on a stage."""
    return (float(row["fwd_us"]) + float(row["bwd_us"])) / 1e6


def layer_seconds(sequence: int, words: int, *, layout: str = "") -> float:
    """Of one transformer layer, from the stages that hold nothing else."""
    return mean(
        seconds(row) / float(row["layers_on_stage_derived"])
        for row in stage_rows(sequence, layout=layout)
        if int(row["vocab"]) == words and 0 < int(row["stage"]) < STAGES - 1
    )


def end_seconds(sequence: int, words: int, stage: int) -> float:
    """Of the input or the output layer: what the first or last stage takes beside its layers."""
    found: dict[int, list[float]] = {}
    for row in stage_rows(sequence):
        if int(row["stage"]) == stage:
            size = int(row["vocab"])
            layers = float(row["layers_on_stage_derived"]) * layer_seconds(sequence, size)
            found.setdefault(size, []).append(seconds(row) - layers)
    if words in found:
        return mean(found[words])
    line = np.polyfit(list(found), [mean(some) for some in found.values()], 1)
    return float(np.polyval(line, words))


@cache
def problem_of(sequence: int, words: int) -> PlanningProblem:
    """Input layer, 32 layers and output layer, at their measured costs, on 8 devices."""
    ends = [end_seconds(sequence, words, stage) for stage in (0, STAGES - 1)]
    times = [ends[0], *[layer_seconds(sequence, words)] * LAYERS, ends[1]]
    graph = chain(*[[option(seconds=time)] for time in times])
    return problem(graph, devices=STAGES, microbatches=MICROBATCHES, data_parallel=False)


def planned(given: PlanningProblem) -> Plan:
    """The exact planner's split."""
    plan = exact(given).plan
    assert plan is not None
    return plan


def uniform() -> Plan:
    """Four layers on every stage, with the input layer before the first and the output behind."""
    return by_hand(5, 4, 4, 4, 4, 4, 4, 5, microbatches=MICROBATCHES)


def priced(given: PlanningProblem, plan: Plan) -> Evaluation:
    """A plan with fill and drain, as it was run."""
    return evaluate(given.graph, plan, given.cluster, pipelining=ONE_F_ONE_B)


def batch_flops(sequence: int, words: int) -> float:
    """Of a batch, forward and twice as much backward, in all layers."""
    rows = stage_rows(sequence)
    layer = min(float(row["fwd_flops_128_microbatches"]) for row in rows) / 4
    heads = [
        (float(r["fwd_flops_128_microbatches"]) - float(r["layers_on_stage_derived"]) * layer)
        / int(r["vocab"])
        for r in rows
        if int(r["stage"]) == STAGES - 1
    ]
    return 3 * (LAYERS * layer + words * mean(heads))


def utilisation(sequence: int, words: int, plan: Plan) -> float:
    """Predicted share of the peak, in percent."""
    batch = priced(problem_of(sequence, words), plan).batch_seconds
    return 100 * batch_flops(sequence, words) / batch / PEAK_FLOPS


def measured_utilisation(sequence: int, words: int, method: str) -> float | None:
    """In percent; None where it was not recorded."""
    for row in table("vocab_imbalance_pp8.csv"):
        if (int(row["seq"]), row["vocab"], row["method"]) == (
            sequence,
            f"{words // 1000}k",
            method,
        ):
            return float(row["MFU_pct"])
    return None


def least_bottleneck(sequence: int, words: int) -> float:
    """Of all splits: every number of layers on the first and last stage, the rest dealt evenly."""
    layer = layer_seconds(sequence, words)
    start, end = (end_seconds(sequence, words, stage) for stage in (0, STAGES - 1))
    return min(
        max(
            start + first * layer,
            end + last * layer,
            -(-(LAYERS - first - last) // (STAGES - 2)) * layer,
        )
        for first in range(LAYERS + 1)
        for last in range(LAYERS + 1 - first)
    )


@cases
def test_the_split_is_the_optimum(sequence: int, words: int) -> None:
    """No split of the measured costs over 8 stages has a faster bottleneck."""
    given = problem_of(sequence, words)
    found = priced(given, planned(given)).time_per_sample_seconds
    assert found == pytest.approx(least_bottleneck(sequence, words), rel=1e-12)


@cases
def test_stages_of_the_redistributed_layout_are_predicted(sequence: int, words: int) -> None:
    """Layers measured in the uniform layout predict those 24 stages of the other to 4 %.

    They hold 4 or 5 layers and neither end. The largest difference is 3.9 %, at 2k and 128k.
    """
    layer = layer_seconds(sequence, words, layout="base")
    for row in stage_rows(sequence, layout="redis"):
        if int(row["vocab"]) == words and 0 < int(row["stage"]) < STAGES - 1:
            predicted = float(row["layers_on_stage_derived"]) * layer
            assert predicted == pytest.approx(seconds(row), rel=0.04)


def test_the_gain_is_the_measured_one() -> None:
    """The gain over the uniform layout is predicted to 20 %, three of four cases to 10 %.

    No case has the utilisation of both layouts on record: the measured gain is that of the
    redistributed layout by what the stage times of the uniform one come to (fill and 127 times the
    slowest). At 2k and 64k: 1.17 predicted, 1.16 measured; at 2k and 128k 1.52 and 1.29; at
    4k and 64k 1.14 and 1.23; at 4k and 256k 1.62 and 1.49, the output layer being extrapolated.
    """
    differences = []
    for sequence, words in CASES:
        measured = measured_utilisation(sequence, words, "redis")
        if measured is not None:
            plain = utilisation(sequence, words, uniform())
            best = utilisation(sequence, words, planned(problem_of(sequence, words)))
            assert best > plain
            assert measured > plain
            differences.append(abs((best / plain) / (measured / plain) - 1))
    assert len(differences) == 4
    assert max(differences) < 0.20
    assert median(differences) < 0.10
    assert sorted(differences)[2] < 0.10


def test_the_uniform_layout_is_predicted() -> None:
    """Two of three recorded utilisations of the uniform layout are met to 10 %.

    4k and 32k: 48.4 % predicted, 52.8 % measured; 4k and 128k: 37.0 and 37.1. The third, 2k and
    256k, was measured at 17.3 % with 35.6 GB, where its own stage times come to 26.4 %.
    """
    ratios = [
        utilisation(sequence, words, uniform()) / measured
        for sequence, words in CASES
        if (measured := measured_utilisation(sequence, words, "baseline")) is not None
    ]
    assert len(ratios) == 3
    assert sum(abs(ratio - 1) < 0.10 for ratio in ratios) == 2
