"""Gathering parameters beside the computation."""

from dataclasses import replace

import pytest

from diaulos.pricing.analytic.seconds import LayerSeconds, PassSeconds
from diaulos.pricing.analytic.sharded import ShardedLayer, sharded_stage_seconds

LAYER = ShardedLayer(
    seconds=LayerSeconds(
        forward=PassSeconds(compute=1.0), backward=PassSeconds(compute=2.0), weight_backward=1.0
    ),
    gather_seconds=1.0,
    sum_seconds=1.0,
)


def test_only_the_ends_are_waited_for() -> None:
    """What takes no longer than the computation hides, but for the first gather and last sum."""
    found = sharded_stage_seconds([LAYER] * 5)
    assert found.forward.total == pytest.approx(1.0)
    assert found.backward.total == pytest.approx(2.0)


def test_what_takes_longer_shows() -> None:
    """If gathering takes twice as long, each forward waits a second for the next one's weights."""
    large = replace(LAYER, gather_seconds=2.0)
    found = sharded_stage_seconds([large] * 5)
    assert found.forward.total == pytest.approx(2.0 + 4 * 1.0)
