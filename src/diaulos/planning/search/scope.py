"""The stages that can still matter: all at first, fewer each time that a better plan is found."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.fixed_point import Units
from diaulos.planning.search.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Pairs of downsets that a search looks at, and what plans take at least.

    All of it was found under some threshold, and holds under every lower one.
    """

    pairs: NDArray[np.int64]
    """Ascending."""
    starts: NDArray[np.int64]
    """Pairs of downset i stand from `starts[i]` to `starts[i + 1]` of `pairs`."""
    least_devices: Units
    """By downset, what its layers need."""
    least_total: Units
    """By downset, the sum of data-parallel degrees that its layers need."""
    devices_beyond: Units
    """By downset, what the layers outside it need."""

    @staticmethod
    def all_of(space: Space) -> "Scope":
        """Every pair that can be a stage in some setting."""
        possible = np.logical_or.reduce([costs.possible for costs in space.settings])
        has_layers = (np.arange(len(space.downsets)) > 0).astype(np.int64)
        return Scope.of(
            space,
            np.flatnonzero(possible),
            least_devices=has_layers,
            least_total=has_layers,
            devices_beyond=has_layers[::-1],
        )

    @staticmethod
    def of(
        space: Space,
        pairs: NDArray[np.int64],
        *,
        least_devices: Units,
        least_total: Units,
        devices_beyond: Units,
    ) -> "Scope":
        """The scope of some pairs, which ascend."""
        starts = np.searchsorted(space.pairs.outer[pairs], np.arange(len(space.downsets) + 1))
        return Scope(
            pairs=pairs,
            starts=starts,
            least_devices=least_devices,
            least_total=least_total,
            devices_beyond=devices_beyond,
        )

    def of_downsets(self, downsets: slice) -> NDArray[np.int64]:
        """The pairs whose outer downset is in a range."""
        return self.pairs[self.starts[downsets.start] : self.starts[downsets.stop]]
