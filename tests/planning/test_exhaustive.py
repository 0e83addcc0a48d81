"""The exhaustive planner is checked by hand, since it judges the others."""

import pytest

from diaulos.errors import InputError
from diaulos.models.graph import Layer, LayerGraph
from diaulos.planning.exhaustive import exhaustive
from tests.planning.problems import chain, option, problem


def test_a_plan_by_hand() -> None:
    """Two layers, two devices: replicas beat a cut when the edge is dear, and not otherwise."""
    layers = [option(seconds=2.0, parameters=0.5)], [option(seconds=2.0, parameters=0.5)]
    cheap = exhaustive(problem(chain(*layers), devices=2, microbatches=2))
    assert cheap.plan is not None
    assert cheap.evaluation is not None
    # One of two replicas takes 4/2 s and 1 s more to reduce its share of 1 byte, 4/2/2.
    assert [stage.layers for stage in cheap.plan.stages] == [(0,), (1,)]
    assert cheap.evaluation.time_per_sample_seconds == 2.0
    dear = exhaustive(
        problem(chain(*layers, bytes_between=1.5), devices=2, microbatches=2, bandwidth=1.0)
    )
    assert dear.plan is not None
    assert dear.evaluation is not None
    assert [stage.data_parallel for stage in dear.plan.stages] == [2]
    assert dear.evaluation.time_per_sample_seconds == 3.0


def test_memory_forces_a_cut() -> None:
    """A stage that does not fit is no candidate, and lean options are taken where they must."""
    fat, lean = option(activations=6.0), option("lean", seconds=1.5, activations=2.0)
    result = exhaustive(problem(chain(*[[fat, lean]] * 3), devices=2, memory=10.0, microbatches=3))
    assert result.plan is not None
    assert [dict(stage.options) for stage in result.plan.stages] == [
        {0: "lean"},
        {1: "plain", 2: "lean"},
    ]


def test_no_plan() -> None:
    """Where nothing fits the answer is proven, and says which layer does not fit."""
    result = exhaustive(problem(chain([option(fixed=11.0)]), memory=10.0))
    assert result.plan is None
    assert result.evaluation is None
    assert result.proven_optimal
    assert result.reason is not None
    assert result.reason.startswith("layer 0 needs at least 11 B")


def test_large_graphs_are_refused() -> None:
    """More than ten layers are refused, and so are too many plans of fewer."""
    with pytest.raises(InputError, match=r"the graph has 11 layers.*use the exact planner"):
        exhaustive(problem(chain(*[[option()]] * 11)))
    free = LayerGraph(layers=tuple(Layer(id=i, options=(option(),)) for i in range(10)))
    with pytest.raises(InputError, match="too many plans"):
        exhaustive(problem(free, devices=10, microbatches=10))
