"""The stages that can still matter: all at first, fewer each time that a better plan is found."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.space import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Pairs of downsets that a search looks at.

    Those of downset i stand from `starts[i]` to `starts[i + 1]` of `pairs`, which ascend.
    """

    pairs: NDArray[np.int64]
    starts: NDArray[np.int64]

    @staticmethod
    def all_of(space: Space) -> "Scope":
        """Every pair."""
        return Scope(pairs=np.arange(len(space.pairs)), starts=space.pairs.starts)

    def of_downsets(self, downsets: slice) -> NDArray[np.int64]:
        """The pairs whose outer downset is in a range."""
        return self.pairs[self.starts[downsets.start] : self.starts[downsets.stop]]

    def only(self, space: Space, pairs: NDArray[np.int64]) -> "Scope":
        """The scope of some of the pairs, which ascend."""
        starts = np.searchsorted(space.pairs.outer[pairs], np.arange(len(space.downsets) + 1))
        return Scope(pairs=pairs, starts=starts)
