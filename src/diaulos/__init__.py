"""Plan the training of a deep network over many accelerators, explain it, and train it that way.

Nouns: `LayerGraph`, `Cluster`, `Plan`, `Schedule`, `Timeline`. Verbs: `profile`, `plan`,
`evaluate`, `generate`, `check`, `simulate_plan`, `train`. Each is imported when it is first used,
so that planning needs no torch.
"""

import importlib
from typing import TYPE_CHECKING

from diaulos._version import __version__ as __version__

if TYPE_CHECKING:
    from diaulos.clusters.cluster import Cluster as Cluster
    from diaulos.models.graph import LayerGraph as LayerGraph
    from diaulos.planning.plan import Plan as Plan
    from diaulos.schedules.schedule import Schedule as Schedule
    from diaulos.schedules.timeline import Timeline as Timeline

_HOMES = {
    "LayerGraph": "diaulos.models.graph",
    "read_graph": "diaulos.models.files",
    "Cluster": "diaulos.clusters.cluster",
    "Plan": "diaulos.planning.plan",
    "Schedule": "diaulos.schedules.schedule",
    "PipelineShape": "diaulos.schedules.schedule",
    "Timeline": "diaulos.schedules.timeline",
    "generate": "diaulos.schedules.generators",
    "check": "diaulos.schedules.check",
    "simulate_plan": "diaulos.schedules.simulate",
}
"""Where each public name lives."""

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'diaulos' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
