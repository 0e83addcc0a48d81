"""Costs as arrays are those of the definition; settings cover all degrees and places."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.clusters.cluster import Cluster
from diaulos.errors import InputError
from diaulos.planning.evaluation.costs import DETAILED
from diaulos.planning.evaluation.evaluate import price_stage
from diaulos.planning.evaluation.pipelining import GPIPE
from diaulos.planning.evaluation.places import StagePlace
from diaulos.planning.plan import Stage
from diaulos.planning.problem import PlanningProblem
from diaulos.planning.search.stage_costs.costs import (
    Setting,
    layer_costs,
    refuse_what_options_couple,
    time_units,
)
from diaulos.planning.search.stage_costs.costs import settings as settings_of
from diaulos.planning.search.stage_costs.fixed_point import MOST_UNITS
from diaulos.planning.search.stage_costs.space import Space
from tests.planning.problems import chain, clusters, option, problem, problems
from tests.planning.search.spaces import all_choices, any_problems, rows_of, spaces


def place_in(setting: Setting, cluster: Cluster) -> StagePlace:
    """What a stage of a setting meets."""
    group = cluster.groups[setting.group]

    def link(between_nodes: bool):
        return cluster.link if between_nodes else group.link

    return StagePlace(
        group=group,
        link_before=link(setting.enters_node),
        link_behind=link(setting.leaves_node),
        link_inside=link(setting.spans_nodes),
    )


@settings(max_examples=200)
@given(spaces(), st.data())
def test_stages_cost_what_the_definition_says(space: Space, data: st.DataObject) -> None:
    """Time per sample and memory of any stage, options and degree are those of `evaluate`."""
    given_problem, graph = space.problem, space.problem.graph
    index = data.draw(st.integers(0, len(space.settings) - 1))
    pair = data.draw(st.integers(0, len(space.pairs) - 1))
    choices, layers = all_choices(space, index, pair), space.settings[index].layers
    if choices is None:
        return
    place = data.draw(st.integers(0, len(choices.options) - 1))
    rows = rows_of(space, pair)
    chosen = zip(rows, choices.options[place], strict=True)
    options = {graph.topological_order[row]: layers.options[row][o].name for row, o in chosen}
    position = data.draw(st.integers(0, len(layers.setting.data_degrees) - 1))
    d = layers.setting.data_degrees[position]
    total = data.draw(st.integers(d, max(d, given_problem.replicas_limit)))
    price = price_stage(
        graph,
        Stage(
            layers=tuple(options),
            data_parallel=d,
            tensor_parallel=layers.setting.tensor_parallel,
            options=options,
            sharded_optimizer=given_problem.shard_optimizer,
        ),
        place_in(layers.setting, given_problem.cluster),
        total=total,
        microbatches=given_problem.microbatches,
        costs=given_problem.costs,
        pipelining=given_problem.pipelining,
    )
    reduction = int(layers.reduction[rows].sum()) * int(layers.reduction_factors[position])
    time = choices.times[place] + reduction + int(layers.reduction_constants[position])
    assert time * space.unit.unit / d == pytest.approx(
        price.time_per_sample_seconds, rel=1e-11, abs=100 * space.unit.unit
    )
    in_flight = given_problem.pipelining.in_flight(total, d, given_problem.microbatches)
    held = choices.activation_bytes[place] * in_flight + choices.once_bytes[place]
    room = price.memory_limit_bytes - price.memory_bytes
    assert choices.limit_bytes - held == pytest.approx(room, rel=1e-9, abs=1e-6)


@given(any_problems())
def test_settings_cover_all_degrees(given_problem: PlanningProblem) -> None:
    """Each pair of degrees that fits a node has one setting for each group and place."""
    seen = [
        (s.tensor_parallel, d, s.group, s.spans_nodes, s.enters_node, s.leaves_node)
        for s in settings_of(given_problem)
        for d in s.data_degrees
    ]
    assert len(set(seen)) == len(seen)
    cluster = given_problem.cluster
    ways = 1 if cluster.is_flat else 5
    fitting = [
        (t, d, group)
        for t in given_problem.tensor_degrees
        for d in given_problem.data_degrees
        for group in range(len(cluster.groups))
        if t <= cluster.groups[group].devices_per_node
    ]
    assert {degrees[:3] for degrees in seen} == set(fitting)
    assert len(seen) == ways * len(fitting)


def test_degrees_are_apart_where_options_compare_otherwise() -> None:
    """Options that reduce unequal amounts, or share an optimizer, make a setting per degree."""
    layer = [option(parameters=1.0), option("other", parameters=2.0)]
    given_problem = problem(chain(layer), devices=4, microbatches=4)
    assert [s.data_degrees for s in settings_of(given_problem)] == [(1,), (2,), (4,)]
    alike = problem(chain([layer[0]]), devices=4, microbatches=4)
    assert [s.data_degrees for s in settings_of(alike)] == [(1, 2, 4)]
    sharded = replace(alike, shard_optimizer=True)
    assert [s.data_degrees for s in settings_of(sharded)] == [(1,), (2,), (4,)]


@given(any_problems())
def test_all_costs_fit_into_64_bits(given_problem: PlanningProblem) -> None:
    """The sum of everything that a stage with replicas can cost stays below the limit."""
    unit = time_units(given_problem)
    for setting in settings_of(given_problem):
        layers = layer_costs(given_problem, setting, unit)
        most = int(layers.times.max(axis=1).sum() + layers.reduction_constants.max())
        most += int(layers.edge_in.max(axis=1, initial=0).sum())
        most += int(layers.edge_out.max(axis=1, initial=0).sum())
        most += int(layers.reduction.sum()) * int(layers.reduction_factors.max())
        assert most <= 2 * MOST_UNITS


@given(problems(), clusters())
def test_layers_that_fit_nowhere(given_problem: PlanningProblem, cluster: Cluster) -> None:
    """A layer is unfit where no option fits a device even alone."""
    on_nodes = replace(given_problem, cluster=cluster)
    for setting in settings_of(on_nodes):
        layers = layer_costs(on_nodes, setting, time_units(on_nodes))
        wanted = [
            not any(o.memory_bytes(1) <= layers.memory_limit_bytes * (1 + 1e-12) for o in options)
            for options in layers.options
        ]
        assert layers.unfit.tolist() == wanted


@pytest.mark.parametrize(
    ("layer", "switches", "message"),
    [
        (
            [option(parameters=1.0), option("other", parameters=2.0)],
            {"pipelining": GPIPE},
            "differ in the parameters that they reduce.*plan without a flush",
        ),
        (
            [option(receives={0: 1.0}), option("other", receives={0: 2.0})],
            {"costs": DETAILED},
            "differ in the bytes that they synchronise.*use Piper's cost model",
        ),
    ],
)
def test_what_options_couple(layer, switches: dict[str, object], message: str) -> None:
    """Options that cannot be compared one by one are refused, and only where it matters."""
    plain = problem(chain([option()], layer))
    refuse_what_options_couple(plain)
    with pytest.raises(InputError, match=message):
        refuse_what_options_couple(replace(plain, **switches))
