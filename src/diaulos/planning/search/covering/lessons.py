"""What a search has learned about stages by choosing their options exactly."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diaulos.planning.search.stage_costs.fixed_point import Units

_IN_FLIGHT = 1 << 24


@dataclass(slots=True)
class Lessons:
    """Exact times of stages: relaxed ones are judged by them from then on."""

    by_setting: dict[int, dict[tuple[int, int], int]] = field(default_factory=dict)
    """By setting: by pair and number in flight, how much longer one microbatch takes than
    `StageCosts.least`; very long where no options fit."""
    refused: set[tuple[int, int, int]] = field(default_factory=set)
    """Pair, degree and number in flight of stages that no plan of use can have any more."""

    def refuse(self, pair: int, degree: int, in_flight: int) -> None:
        """Remember a stage that broke a threshold, where thresholds only fall."""
        self.refused.add((pair, degree, in_flight))

    def are_refused(
        self, pair: NDArray[np.int64], degree: NDArray[np.int64], in_flight: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        """Which of some stages were refused."""
        if not self.refused:
            return np.zeros(len(pair), np.bool_)
        known = np.array(sorted(self.refused))
        same = [np.isin(mine, known[:, i]) for i, mine in enumerate((pair, degree, in_flight))]
        result: NDArray[np.bool_] = np.logical_and.reduce(same)
        for place in np.flatnonzero(result).tolist():
            stage = (int(pair[place]), int(degree[place]), int(in_flight[place]))
            result[place] = stage in self.refused
        return result

    def add(self, setting: int, pair: int, in_flight: int, longer: int) -> None:
        """Remember what a stage takes."""
        self.by_setting.setdefault(setting, {})[pair, in_flight] = longer

    def lower(
        self,
        setting: int,
        pairs: NDArray[np.int64],
        slack: Units,
        within: NDArray[np.int64],
    ) -> None:
        """Take numbers in flight back, in place, with which stages are slower than their slack.

        `pairs` ascend.
        """
        known = self.by_setting.get(setting, {})
        taught = np.array([pair for pair, _ in known], np.int64)
        starts = pairs.searchsorted(taught).tolist()
        ends = pairs.searchsorted(taught, side="right").tolist()
        for ((_, in_flight), longer), start, end in zip(known.items(), starts, ends, strict=True):
            for row in range(start, end):
                if longer > slack[row] and within[row] >= in_flight:
                    within[row] = in_flight - 1

    def replace(
        self,
        setting: int,
        pairs: NDArray[np.int64],
        in_flight: NDArray[np.int64],
        longer: Units,
    ) -> None:
        """Put the known times, in place, where relaxed ones stand."""
        known = self.by_setting.get(setting)
        if known:
            keys = np.array([pair * _IN_FLIGHT + count for pair, count in known])
            order = np.argsort(keys)
            keys, times = keys[order], np.array(list(known.values()))[order]
            wanted = pairs * _IN_FLIGHT + in_flight
            place = np.minimum(keys.searchsorted(wanted), len(keys) - 1)
            longer[:] = np.where(keys[place] == wanted, times[place], longer)
