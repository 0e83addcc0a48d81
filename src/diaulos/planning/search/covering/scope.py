"""The stages that can still matter: all at first, fewer each time that a better plan is found."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.stage_costs.fixed_point import Units
from diaulos.planning.search.stage_costs.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Pairs of downsets that a search looks at in each setting, and what plans take at least.

    All of it was found under some threshold, and holds under every lower one.
    """

    pairs: tuple[NDArray[np.int64], ...]
    """By setting, ascending."""
    starts: tuple[NDArray[np.int64], ...]
    """By setting: pairs of downset i stand from `starts[i]` to `starts[i + 1]`."""
    least_devices: Units
    """By downset, what its layers need."""
    least_total: Units
    """By downset, the sum of data-parallel degrees that its layers need."""
    devices_beyond: Units
    """By downset, what the layers outside it need."""

    @staticmethod
    def all_of(space: Space) -> "Scope":
        """Every pair, in each setting in which it can be a stage."""
        has_layers = (np.arange(len(space.downsets)) > 0).astype(np.int64)
        return Scope.of(
            space,
            [np.flatnonzero(costs.possible) for costs in space.settings],
            least_devices=has_layers,
            least_total=has_layers,
            devices_beyond=has_layers[::-1],
        )

    @staticmethod
    def of(
        space: Space,
        pairs: Sequence[NDArray[np.int64]],
        *,
        least_devices: Units,
        least_total: Units,
        devices_beyond: Units,
    ) -> "Scope":
        """The scope of some pairs by setting, which ascend."""
        bounds = np.arange(len(space.downsets) + 1)
        return Scope(
            pairs=tuple(pairs),
            starts=tuple(np.searchsorted(space.pairs.outer[some], bounds) for some in pairs),
            least_devices=least_devices,
            least_total=least_total,
            devices_beyond=devices_beyond,
        )

    def of_downsets(self, setting: int, downsets: slice) -> NDArray[np.int64]:
        """The pairs of a setting whose outer downset is in a range."""
        starts = self.starts[setting]
        return self.pairs[setting][starts[downsets.start] : starts[downsets.stop]]

    def counts(self) -> NDArray[np.int64]:
        """How many pairs, of all settings, stand before those of each downset; with the end."""
        result: NDArray[np.int64] = np.sum(self.starts, axis=0)
        return result
