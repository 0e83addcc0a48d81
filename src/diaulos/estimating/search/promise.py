"""What a configuration cannot be better than, known before its pipeline is simulated."""

from collections.abc import Sequence

from diaulos.estimating.configuration import Configuration
from diaulos.estimating.estimate import Draft
from diaulos.estimating.memory import memory_of
from diaulos.estimating.pipeline import PipelineRun
from diaulos.estimating.prices import StagePrice


def least_step_seconds(found: Draft) -> float:
    """A step takes at least as long as its slowest rank works, and waits before and after it.

    Where batches are flushed, a rank waits for the first microbatch to come through the first
    stages of the ranks before it, and these have its last one to finish behind it.
    """
    return found.parts(PipelineRun.lasting(_least_pipeline_seconds(found))).total


def least_memory_bytes(found: Draft) -> float:
    """Of the device that holds most, at least, with what driver and libraries take.

    The first rank of a pipeline has most microbatches in flight, the last one the output's layers.
    """
    chosen = found.configuration
    ends = {0, chosen.degrees.pipeline - 1}
    return max(_least_bytes(found, place) for place in sorted(ends)) + found.driver_bytes


def _least_bytes(found: Draft, place: int) -> float:
    held = found.place(place)
    activations = _least_in_flight(found.configuration, place) * _least_activation_bytes(held)
    return memory_of(held, activations).total


def _least_pipeline_seconds(found: Draft) -> float:
    chosen, depth = found.configuration, found.configuration.degrees.pipeline
    waited, longest = 0.0, 0.0
    for place in range(depth):
        held = found.stages[place::depth]
        totals = [stage.seconds + stage.gathering for stage in held]
        longest = max(longest, waited + chosen.microbatches * sum(some.total for some in totals))
        if chosen.schedule != "2bw":
            both_ways = chosen.schedule != "zero-bubble"  # whose drain the weights' halves fill
            waited += totals[0].total if both_ways else totals[0].forward.total
    return longest


def _least_in_flight(chosen: Configuration, place: int) -> int:
    """Microbatches that a rank has in flight at a time, at least."""
    if chosen.schedule == "gpipe":
        return chosen.microbatches
    return min(chosen.microbatches, chosen.degrees.pipeline - place)


def _least_activation_bytes(held: Sequence[StagePrice]) -> float:
    return len(held) * min(stage.activation_bytes for stage in held)
