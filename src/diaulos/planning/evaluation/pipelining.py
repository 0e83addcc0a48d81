"""How a pipeline runs a batch, as far as planning goes: microbatches in flight and fill and drain.

The time of a batch is a closed form over the stages. With replicas d, microbatches N, and m = N/d
of them on each replica, a stage has U, the seconds of one microbatch forward and backward with its
communication, and R, the seconds of its reduction once per batch. L is the part of U that every
other stage waits for while the pipeline fills and drains:

    batch = sum of L over all stages + max over stages (m*U - L + R)

This is fill, (m-1) times the bottleneck, and drain: for stages alike it is (m + stages - 1) U + R.

* Without a flush (2BW; Narayanan et al., ICML 2021, section 2) L is 0, and a batch takes N times
  the time per sample of the slowest stage.
* GPipe and 1F1B with a flush have L = U: the bubble of both is (stages - 1)(F + B).
* ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", 2023) fills the drain with the backward of
  weights: its bubble is (stages - 1)(F + B - W), B being the backward of inputs, and L = U - 2W.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

from diaulos.models.graph import Layer, Option


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """A schedule as planning sees it."""

    name: str
    flushes: bool
    """Whether nothing is in flight between batches."""
    weight_versions: int = 1
    holds_whole_batch: bool = False
    """Whether all forwards of a batch run before its backwards."""
    defers_weight_backward: bool = False
    """Whether the backward of weights fills the drain; activations are held until then."""

    def in_flight(self, total: int, data_parallel: int, microbatches: int) -> int:
        """Microbatches in flight on a replica of a stage.

        `total` is s, see `totals`. Without a flush it is ceil(s/d) (Piper, section 3); with one at
        most the N/d of a batch.
        """
        in_steady_state = -(-total // data_parallel)
        whole_batch = -(-microbatches // data_parallel)
        if self.holds_whole_batch:
            return whole_batch
        return min(in_steady_state, whole_batch) if self.flushes else in_steady_state

    def totals(self, degrees: Sequence[int]) -> tuple[int, ...]:
        """Of each stage s, where these are the data-parallel degrees of all from the input end.

        It is the sum of the degrees of the stage and all later ones. Where the backward of weights
        is deferred, it is that of all stages: later stages warm up with fewer microbatches, and so
        many more wait for the backward of their weights.
        """
        if self.defers_weight_backward:
            return (sum(degrees),) * len(degrees)
        return tuple(accumulate(reversed(degrees)))[::-1]

    def exposed_seconds(self, microbatch_seconds: float, weight_backward_seconds: float) -> float:
        """L: what all other stages wait for while the pipeline fills and drains."""
        if not self.flushes:
            return 0.0
        hidden = 2 * weight_backward_seconds if self.defers_weight_backward else 0.0
        return microbatch_seconds - hidden


STEADY = Pipelining(name="2bw", flushes=False, weight_versions=2)
GPIPE = Pipelining(name="gpipe", flushes=True, holds_whole_batch=True)
ONE_F_ONE_B = Pipelining(name="1f1b", flushes=True)
ZERO_BUBBLE = Pipelining(name="zb-h1", flushes=True, defers_weight_backward=True)

PIPELININGS: Mapping[str, Pipelining] = MappingProxyType(
    {some.name: some for some in (STEADY, GPIPE, ONE_F_ONE_B, ZERO_BUBBLE)}
)
"""By the names that flags and files use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLoad:
    """What one replica of a stage does for a batch."""

    microbatches: float
    """m = N/d."""
    microbatch_seconds: float
    """U: forward, backward and communication of one microbatch."""
    reduction_seconds: float
    """R: once per batch."""
    weight_backward_seconds: float
    """W: the part of a microbatch's backward that can wait, at least."""


def batch_seconds(pipelining: Pipelining, loads: Sequence[StageLoad]) -> float:
    """Seconds of one batch, by the closed form that stands above."""
    exposed = [
        pipelining.exposed_seconds(load.microbatch_seconds, load.weight_backward_seconds)
        for load in loads
    ]
    slowest = max(
        load.microbatches * load.microbatch_seconds - latency + load.reduction_seconds
        for load, latency in zip(loads, exposed, strict=True)
    )
    return math.fsum(exposed) + slowest


def least_weight_backward_seconds(layer: Layer, tensor_parallel: int) -> float:
    """The least weight backward of a layer's options at a degree: what any choice can defer.

    One figure for all options, so that deferring does not depend on which of them is chosen.
    """
    return min(map(_weight_backward_seconds, layer.options_at(tensor_parallel)))


def _weight_backward_seconds(option: Option) -> float:
    """As measured, or half of the backward without recomputation; at most half of all seconds.

    Where the forward was not measured, it is a third of the seconds, or a quarter with
    recomputation. More than half cannot be deferred: no stage makes the others wait less than 0.
    """
    if option.weight_backward_seconds is not None:
        return min(option.weight_backward_seconds, option.seconds / 2)
    forwards = 2 if option.recompute else 1
    forward = option.forward_seconds
    if forward is None:
        forward = option.seconds / (forwards + 2)
    return max((option.seconds - forwards * forward) / 2, 0.0)
