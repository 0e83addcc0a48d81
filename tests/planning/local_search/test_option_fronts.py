"""Choices of options that no other beats: against all combinations."""

from itertools import product

from hypothesis import assume, given, settings

from diaulos.errors import InputError
from diaulos.models.graph import Option
from diaulos.planning.local_search.option_fronts import undominated_options
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.covering.placement import Judge, Placement, layers_of
from diaulos.planning.search.stage_costs.space import build_space
from tests.planning.problems import chain, option, problem, problems


def measures(some: Option) -> tuple[float, ...]:
    """Seconds and parameters stand for any two figures."""
    return some.seconds, some.parameter_bytes


@settings(max_examples=60, deadline=None)
@given(problems(most_layers=3))
def test_every_combination_is_beaten_by_one(given_problem: PlanningProblem) -> None:
    """Each that fits is no better in anything than one of those found, and these fit."""
    try:
        space = build_space(given_problem)
    except InputError:
        space = None
    assume(space is not None)
    judge = Judge(space=space)
    for pair, degree in product(range(len(space.pairs)), range(len(space.degrees))):
        costs = space.settings[space.degrees[degree].setting]
        if not costs.possible[pair]:
            continue
        found = undominated_options(
            judge, Placement(pair=pair, degree=degree, in_flight=2, end=0), measures
        )
        rows, layers = layers_of(space, pair), costs.layers
        sums = {}
        for chosen in product(*(range(len(layers.options[row])) for row in rows)):
            options = [layers.options[row][i] for row, i in zip(rows, chosen, strict=True)]
            held = sum(some.memory_bytes(2) for some in options)
            if held <= layers.memory_limit_bytes * (1 + 1e-12):
                columns = zip(*map(measures, options), strict=True)
                sums[chosen] = tuple(round(sum(column), 9) for column in columns)
        assert set(found) <= sums.keys()
        for mine in sums.values():
            assert any(all(a <= b for a, b in zip(sums[c], mine, strict=True)) for c in found)


def test_the_fastest_comes_first() -> None:
    """By the sum of all measures."""
    options = [option("slow", seconds=3.0), option("fast", seconds=1.0, parameters=1.0)]
    space = build_space(problem(chain(options)))
    found = undominated_options(
        Judge(space=space), Placement(pair=0, degree=0, in_flight=1, end=0), measures
    )
    assert found == [(1,), (0,)]


def test_too_many_are_not_looked_at() -> None:
    """Ten layers whose options trade one figure for another in different amounts."""
    layers = [
        [option("a", seconds=2.0**i), option("b", seconds=0.0, parameters=3.0**i)]
        for i in range(10)
    ]
    space = build_space(problem(chain(*layers)))
    whole = len(space.pairs) - len(layers)
    placement = Placement(pair=whole, degree=0, in_flight=1, end=0)
    assert len(layers_of(space, whole)) == 10
    assert undominated_options(Judge(space=space), placement, measures) is None
