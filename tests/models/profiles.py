"""PipeDream profiles for the tests: the published ones, and a writer of texts like them."""

from dataclasses import dataclass
from functools import cache

import pytest

from diaulos.models.graph import LayerGraph
from diaulos.models.pipedream import read_pipedream
from tests.planning.reference import FOLDER as PIPER_FOLDER

FOLDER = PIPER_FOLDER.parent / "pipedream"
PROFILES = ("alexnet", "vgg16", "resnet18", "resnet50", "squeezenet1_0", "gnmt")

needs_profiles = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"no reference inputs at {FOLDER} (set DIAULOS_REFERENCE)"
)


@cache
def profile(name: str) -> LayerGraph:
    """One of the published profiles."""
    return read_pipedream(FOLDER / f"{name}.txt")


@dataclass(frozen=True, kw_only=True)
class Row:
    """A node as a profile states it; times in milliseconds."""

    key: str
    description: str = "Conv2d(3, 64)"
    forward: float = 1.0
    backward: float = 2.0
    activations: tuple[float, ...] = (4.0,)
    parameters: float = 8.0

    def __str__(self) -> str:
        sizes = "; ".join(map(repr, self.activations))
        held = sizes if len(self.activations) == 1 else f"[{sizes}]"
        return (
            f"{self.key} -- {self.description} -- forward_compute_time={self.forward!r}, "
            f"backward_compute_time={self.backward!r}, activation_size={held}, "
            f"parameter_size={self.parameters!r}"
        )


def write(rows: list[Row], edges: list[tuple[str, str]]) -> str:
    """The text of a profile."""
    return "\n".join([*map(str, rows), *(f"\t{a} -- {b}" for a, b in edges)])
