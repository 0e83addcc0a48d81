"""The exact planner against the exhaustive one, on random problems."""

from hypothesis import HealthCheck, given, settings

from diaulos.planning.exact import exact
from diaulos.planning.exhaustive import exhaustive
from diaulos.planning.problem import PlanningProblem
from tests.planning.problems import problems

_slow = settings(
    max_examples=300,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


@_slow
@given(problems())
def test_equals_the_exhaustive_planner(problem: PlanningProblem) -> None:
    found, wanted = exact(problem), exhaustive(problem)
    assert found.plan == wanted.plan
