"""`diaulos plan`: the fastest way to train a model on a cluster, or to cut a layer graph."""

import math
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from diaulos.cli.models import ModelFlags
from diaulos.cli.plan_graph import plan_graph
from diaulos.cli.plan_model import TrainingFlags, is_model, plan_model
from diaulos.cli.problem import ProblemFlags
from diaulos.errors import InputError


def plan(
    source: Path | None = None,
    /,
    *,
    flags: ProblemFlags | None = None,
    training: TrainingFlags | None = None,
    model: ModelFlags | None = None,
    also: tuple[Path, ...] = (),
    planner: Literal["exact", "equal", "pipedream", "exhaustive"] = "exact",
    time_limit: float = math.inf,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Find the plan with the least time per batch.

    For a model: all degrees, microbatch sizes, schedules, recomputation and ZeRO levels on a
    cluster of known devices; the best is shown with the next four that differ from it.
    For a layer graph: the cut into stages, with degrees and options of their own. What is not
    given is taken from the graph's file, where it is a Piper file.

    Parameters
    ----------
    source
        A model (a config.json of Hugging Face transformers, or its folder; or give sizes), or a
        layer graph (the project's JSON, Piper's, or PipeDream's text).
    flags
        What to plan for.
    training
        How a model is trained.
    model
        The sizes of a GPT, instead of a config.
    also
        The same layers as the graph's, priced for other microbatch sizes: all sizes that divide
        --batch-size are tried.
    planner
        Of layer graphs: exact (proven optimal; where batches are flushed, chosen by simulation),
        equal (equal stages, as PipeDream-2BW plans), pipedream (as PipeDream plans) or exhaustive
        (tries every plan; small graphs only).
    time_limit
        Seconds after which the exact planner stops with the best plan so far and a bound; so does
        Ctrl-C. Where schedules are compared, each has its part of them.
    output
        Where to write the plan, JSON; the priced layers of a model are written beside it.
    as_json
        Print one JSON object instead of the table.
    """
    given = flags or ProblemFlags()
    if not is_model(source):
        assert source is not None
        _refuse_flags_of_models(training, model)
        plan_graph(
            source,
            given,
            also=also,
            planner=planner,
            time_limit=time_limit,
            output=output,
            as_json=as_json,
        )
        return
    if planner != "exact" or time_limit != math.inf:
        raise InputError("--planner or --time-limit given for a model", "they are for layer graphs")
    plan_model(
        source,
        given,
        model or ModelFlags(),
        training or TrainingFlags(),
        output=output,
        as_json=as_json,
    )


def _refuse_flags_of_models(training: TrainingFlags | None, model: ModelFlags | None) -> None:
    if training is not None or model is not None:
        raise InputError(
            "flags of a model given for a layer graph",
            "its layers have their prices already",
            "leave out --sequence-length, --precision, --attention and the sizes of a model",
        )
