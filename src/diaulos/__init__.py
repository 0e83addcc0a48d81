"""Plan the training of a deep network over many accelerators, explain it, and train it that way.

Nouns: `LayerGraph`, `Cluster`, `Plan`, `Schedule`, `Timeline`. Verbs: `profile`, `plan`,
`evaluate`, `explain`, `generate`, `check`, `simulate_plan`, `train_rank`. Each is imported when it
is first used, so that planning needs no torch.
"""

import importlib
from typing import TYPE_CHECKING

from diaulos._version import __version__ as __version__

if TYPE_CHECKING:
    from diaulos.clusters.cluster import Cluster as Cluster
    from diaulos.clusters.cluster import DeviceGroup as DeviceGroup
    from diaulos.clusters.cluster import Link as Link
    from diaulos.clusters.expression import find_cluster as find_cluster
    from diaulos.clusters.files import read_cluster as read_cluster
    from diaulos.models.files import read_graph as read_graph
    from diaulos.models.files import write_graph as write_graph
    from diaulos.models.graph import LayerGraph as LayerGraph
    from diaulos.models.piper import read_piper as read_piper
    from diaulos.models.piper import write_piper as write_piper
    from diaulos.planning.evaluation.evaluate import evaluate as evaluate
    from diaulos.planning.explanation.explain import explain as explain
    from diaulos.planning.plan import Plan as Plan
    from diaulos.planning.planners import plan as plan
    from diaulos.planning.problem import PlanningProblem as PlanningProblem
    from diaulos.pricing.measure import profile as profile
    from diaulos.schedules.check import check as check
    from diaulos.schedules.generators import generate as generate
    from diaulos.schedules.plans import simulate_plan as simulate_plan
    from diaulos.schedules.schedule import Schedule as Schedule
    from diaulos.schedules.schedule import format_actions as format_actions
    from diaulos.schedules.schedule import parse_actions as parse_actions
    from diaulos.schedules.shape import PipelineShape as PipelineShape
    from diaulos.schedules.timeline import Timeline as Timeline
    from diaulos.schedules.torch_csv import format_torch_csv as format_torch_csv
    from diaulos.schedules.torch_csv import parse_torch_csv as parse_torch_csv
    from diaulos.training.job import TrainingJob as TrainingJob
    from diaulos.training.rank import train_rank as train_rank
    from diaulos.units import parse_bandwidth as parse_bandwidth
    from diaulos.units import parse_bytes as parse_bytes

_HOMES = {
    "LayerGraph": "diaulos.models.graph",
    "read_graph": "diaulos.models.files",
    "read_piper": "diaulos.models.piper",
    "write_piper": "diaulos.models.piper",
    "write_graph": "diaulos.models.files",
    "find_cluster": "diaulos.clusters.expression",
    "read_cluster": "diaulos.clusters.files",
    "Cluster": "diaulos.clusters.cluster",
    "DeviceGroup": "diaulos.clusters.cluster",
    "Link": "diaulos.clusters.cluster",
    "parse_bytes": "diaulos.units",
    "parse_bandwidth": "diaulos.units",
    "Plan": "diaulos.planning.plan",
    "PlanningProblem": "diaulos.planning.problem",
    "plan": "diaulos.planning.planners",
    "evaluate": "diaulos.planning.evaluation.evaluate",
    "explain": "diaulos.planning.explanation.explain",
    "Schedule": "diaulos.schedules.schedule",
    "PipelineShape": "diaulos.schedules.shape",
    "Timeline": "diaulos.schedules.timeline",
    "generate": "diaulos.schedules.generators",
    "format_actions": "diaulos.schedules.schedule",
    "parse_actions": "diaulos.schedules.schedule",
    "format_torch_csv": "diaulos.schedules.torch_csv",
    "parse_torch_csv": "diaulos.schedules.torch_csv",
    "check": "diaulos.schedules.check",
    "simulate_plan": "diaulos.schedules.plans",
    "profile": "diaulos.pricing.measure",
    "TrainingJob": "diaulos.training.job",
    "train_rank": "diaulos.training.rank",
}
"""Where each public name lives."""

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'diaulos' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
