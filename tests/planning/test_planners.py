"""Planning in one call."""

import pytest

from diaulos.errors import InfeasibleError
from diaulos.planning.baselines.equal import equal
from diaulos.planning.exact import exact
from diaulos.planning.planners import PLANNERS, plan
from tests.planning.problems import chain, option, problem


def test_the_verb_gives_the_plan_of_a_planner() -> None:
    """The exact planner's, unless another one is given."""
    given = problem(
        chain(*[[option(seconds=s)] for s in (1.0, 1.0, 4.0)]), devices=2, microbatches=2
    )
    exactly = plan(given.graph, given.cluster, microbatches=2)
    assert exactly == exact(given).plan
    assert plan(given.graph, given.cluster, microbatches=2, planner=equal) == equal(given).plan


def test_no_plan_is_an_error() -> None:
    """Where no plan fits, the verb says why in an error."""
    given = problem(chain([option(fixed=9.0)]), memory=8.0)
    with pytest.raises(InfeasibleError, match="no plan: layer 0 needs at least 9 B"):
        plan(given.graph, given.cluster, microbatches=1)


def test_results_carry_the_planners_name() -> None:
    """A planner is known by the same name to flags and in its results."""
    given = problem(chain([option()]))
    for name, planner in PLANNERS.items():
        assert planner(given).planner == name
