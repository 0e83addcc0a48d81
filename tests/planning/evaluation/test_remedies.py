"""What would do instead: the remedy that a sentence names is one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.planning.evaluation.remedies import (
    degrees_of_layers,
    dividing_degrees,
    stages_for_layer,
)
from diaulos.planning.evaluation.rules import violations
from tests.planning.plans import CLUSTER, graph, plan, stage
from tests.planning.problems import chain, option

FOUR = chain(*[[option()]] * 4)


@pytest.mark.parametrize(
    ("stages", "layer", "remedy"),
    [
        ((stage(0), stage(1), stage(3)), 2, "put it into one of the stages 1 to 2"),
        ((stage(0, 2), stage(3)), 1, "put it into stage 0"),
        ((stage(1, 2), stage(3)), 0, "put it into stage 0"),
        ((stage(0), stage(1, 2)), 3, "put it into stage 1"),
        ((stage(2), stage(0, 3)), 1, "its neighbours in stages 1 and 0 stand in the wrong order"),
    ],
)
def test_where_a_lost_layer_goes(stages, layer, remedy) -> None:
    """Between the last stage that feeds it and the first that it feeds."""
    assert stages_for_layer(FOUR, plan(*stages), layer) == remedy


@given(st.integers(1, 60), st.integers(1, 80))
def test_the_degrees_named_divide(microbatches: int, degree: int) -> None:
    """Each degree that is named divides the microbatches, and none between them does."""
    named = [int(word) for word in dividing_degrees(microbatches, degree).split() if word.isdigit()]
    assert all(microbatches % d == 0 for d in named)
    between = range(named[0] + 1, named[1] if len(named) > 1 else degree + 1)
    assert not [d for d in between if microbatches % d == 0 and d != degree]


def test_degrees_that_all_layers_have() -> None:
    """Those that no layer of the stage lacks, or that there is none."""
    assert degrees_of_layers(graph(), (2,)) == "all of its layers have 1 and 2"
    assert degrees_of_layers(graph(), (0, 2)) == "all of its layers have 1"
    apart = chain([option()], [option(tensor_parallel=2)])
    assert degrees_of_layers(apart, (0, 1)).startswith("no degree is one of all its layers")


@pytest.mark.parametrize(
    ("memory", "lean", "remedy"),
    [
        (12.0, False, "with the options of least memory it holds 11 B, which fits"),
        (10.0, False, "even with the options of least memory it holds 11 B: move layers"),
        (10.0, True, "its options are those of least memory: move layers"),
    ],
)
def test_what_brings_a_stage_within_its_memory(memory: float, lean: bool, remedy: str) -> None:
    """Leaner options where they suffice, else fewer layers; the leaner options do fit."""
    names = {"of_1": "lean"} if lean else {}
    full = plan(stage(0), stage(1, **names), stage(2))
    cluster = CLUSTER.with_flat(memory_bytes=memory)
    (sentence,) = violations(graph(), full, cluster)
    assert remedy in sentence

    if "which fits" in remedy:
        leaner = replace(full, stages=(stage(0), stage(1, of_1="lean"), stage(2)))
        assert violations(graph(), leaner, cluster) == ()
