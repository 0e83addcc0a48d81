"""Gathering parameters beside the computation."""

from dataclasses import replace

import pytest

from diaulos.clusters.cluster import Link
from diaulos.pricing.analytic.seconds import LayerSeconds, PassSeconds
from diaulos.pricing.analytic.sharded import ShardedLayer, sharded_stage_seconds
from diaulos.pricing.devices.collectives import RankGroup

FAST = RankGroup(
    members=2,
    members_per_node=2,
    inside=Link(bandwidth_bytes_per_second=1.0),
    between=Link(bandwidth_bytes_per_second=1.0),
)
LAYER = ShardedLayer(
    seconds=LayerSeconds(
        forward=PassSeconds(compute=1.0), backward=PassSeconds(compute=2.0), weight_backward=1.0
    ),
    parameter_bytes=2.0,
    gradient_bytes=2.0,
)
"""Gathered in a second, summed in a second."""


def test_only_the_ends_are_waited_for() -> None:
    """What takes no longer than the computation hides, but for the first gather and last sum."""
    found = sharded_stage_seconds([LAYER] * 5, FAST)
    assert found.forward.total == pytest.approx(1.0)
    assert found.backward.total == pytest.approx(2.0)


def test_what_takes_longer_shows() -> None:
    """With twice the bytes each layer's forward waits a second for the next one's parameters."""
    large = replace(LAYER, parameter_bytes=4.0)
    found = sharded_stage_seconds([large] * 5, FAST)
    assert found.forward.total == pytest.approx(2.0 + 4 * 1.0)


def test_one_replica_gathers_nothing() -> None:
    """A single replica has all of its parameters."""
    found = sharded_stage_seconds([LAYER] * 3, replace(FAST, members=1, members_per_node=1))
    assert found.total == 0
