"""Why devices stay idle."""

from dataclasses import replace

from diaulos.planning.baselines.equal import equal
from diaulos.planning.exact import exact
from diaulos.planning.problem import PlanningProblem
from diaulos.reporting.idle import idle_sentence
from tests.planning.problems import chain, option, problem


def sentence(given: PlanningProblem) -> str | None:
    """What is said of the exact planner's answer."""
    return idle_sentence(given, exact(given))


def test_nothing_is_said_where_all_work() -> None:
    """A plan on all devices needs no excuse; nor does no plan."""
    assert sentence(problem(chain([option()]), devices=2, microbatches=2)) is None
    assert sentence(problem(chain([option(fixed=2.0)]), memory=1.0)) is None


def test_degrees_that_do_not_divide() -> None:
    """One layer on three devices with four microbatches runs on two of them."""
    said = sentence(problem(chain([option()]), devices=3, microbatches=4))
    assert said is not None
    assert said.startswith("1 device stays idle: it is proven that no plan")
    assert "divide the 4 microbatches" in said


def test_no_more_replicas_than_microbatches() -> None:
    """With as many replicas as microbatches the rest has nothing to do."""
    said = sentence(problem(chain([option()]), devices=4, microbatches=2))
    assert said is not None
    assert said.startswith("2 devices stay idle")
    assert "sum up to the 2 microbatches" in said


def test_what_is_not_proven_is_not_claimed() -> None:
    """A planner without proof says only what it found."""
    given = replace(problem(chain([option()]), devices=3, microbatches=4))
    assert "found by the equal planner" in str(idle_sentence(given, equal(given)))
