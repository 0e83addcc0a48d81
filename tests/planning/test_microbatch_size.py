"""The microbatch size is searched over those that were priced."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.errors import InputError
from diaulos.planning.baselines.exhaustive import exhaustive
from diaulos.planning.microbatch_size import fastest_microbatch_size
from tests.planning.problems import chain, option, problem


def graph_of(seconds: float, activations: float):
    return chain([option(seconds=seconds, activations=activations)], [option(seconds=seconds)])


def test_larger_microbatches_are_taken_where_they_are_more_efficient() -> None:
    """Two samples in 1.5 times the time of one are faster than one by one."""
    graphs = {1: graph_of(1.0, 1.0), 2: graph_of(1.5, 2.0)}
    given_problem = problem(graphs[1], devices=2, memory=10.0, microbatches=8)
    size, result = fastest_microbatch_size(given_problem, graphs, batch_size=8)
    assert size == 2
    assert result.plan is not None
    assert result.plan.microbatches == 4


def test_smaller_microbatches_are_taken_where_memory_is_short() -> None:
    """Where the activations of the larger ones do not fit, the smaller ones are taken."""
    graphs = {1: graph_of(1.0, 1.0), 2: graph_of(1.5, 20.0)}
    given_problem = problem(graphs[1], devices=2, memory=10.0, microbatches=8)
    assert fastest_microbatch_size(given_problem, graphs, batch_size=8)[0] == 1


def test_sizes_that_do_not_divide_the_batch_are_left_out() -> None:
    """A batch of four samples takes no microbatches of three; if none is left, that is said."""
    graphs = {1: graph_of(1.0, 1.0), 3: graph_of(0.1, 1.0)}
    given_problem = problem(graphs[1], devices=2, microbatches=4)
    assert fastest_microbatch_size(given_problem, graphs, batch_size=4)[0] == 1
    with pytest.raises(InputError, match=r"no microbatch size of \[3\] divides the batch of 4"):
        fastest_microbatch_size(given_problem, {3: graphs[3]}, batch_size=4)


@given(st.lists(st.tuples(st.floats(0.1, 4), st.floats(0.1, 6)), min_size=1, max_size=4))
def test_no_size_is_faster(prices: list[tuple[float, float]]) -> None:
    """The answer is the best of what the oracle finds for each size."""
    graphs = {2**i: graph_of(*price) for i, price in enumerate(prices)}
    given_problem = problem(graphs[1], devices=3, memory=12.0, microbatches=1)
    size, result = fastest_microbatch_size(given_problem, graphs, batch_size=8)
    for other, graph in graphs.items():
        _, answer = fastest_microbatch_size(
            given_problem, {other: graph}, batch_size=8, planner=exhaustive
        )
        if answer.evaluation is not None:
            assert result.evaluation is not None
            assert result.evaluation.batch_seconds <= answer.evaluation.batch_seconds * (1 + 1e-12)
    assert size in graphs
