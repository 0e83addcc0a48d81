"""List scheduling of forwards and halves of backwards: ranks take the best of what is there.

A batch goes through stages that take different times; a rank may hold a limited number of
microbatches between forward and weight half. Which computation a rank takes, and how long it waits
for a better one, are the rules of a policy.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from diaulos.schedules.actions import Kind
from diaulos.schedules.costs import Link, StageCosts, message_bytes
from diaulos.schedules.generation.assembly import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One replica of each stage, the messages between them, and the microbatches of a batch."""

    costs: Sequence[StageCosts]
    links: Sequence[Link]
    """Of each border between two stages."""
    limits: Sequence[int]
    """The most microbatches in flight, by stage."""
    microbatches: int

    def hop_seconds(self, border: int) -> float:
        """From the end of a computation on a stage to the next one's having what it gives."""
        link = self.links[border]
        return link.seconds(message_bytes(self.costs, border)) + link.latency_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a rank chooses."""

    warm_up: float
    """How far ranks go forward before the first gradient is back, as a multiple of the stages that
    are still to come."""
    patience: float
    """A weight half is put off where something else comes within this part of its seconds."""
    forwards_first: bool
    """Whether a forward goes before an input half where both are there."""


def list_schedule(chain: Chain, policy: Policy) -> tuple[float, list[list[Step]]] | None:
    """The seconds of a batch and the order of each rank; None where the limits stop everything.

    Messages of one link do not wait for each other here.
    """
    ranks = _Ranks(chain, policy)
    return ranks.run()


class _Ranks:
    """The ranks at work, one stage each."""

    def __init__(self, chain: Chain, policy: Policy) -> None:
        depth, batch = len(chain.costs), chain.microbatches
        self.chain, self.policy, self.last = chain, policy, depth - 1
        self.forwards, self.inputs, self.weights = [0] * depth, [0] * depth, [0] * depth
        self.activations = [[0.0] * batch, *([math.inf] * batch for _ in range(depth - 1))]
        """When the input of each forward is there, by stage and microbatch."""
        self.gradients = [[math.inf] * batch for _ in range(depth)]
        self.caps = [
            min(limit, math.ceil(policy.warm_up * (self.last - stage)) + 1)
            for stage, limit in enumerate(chain.limits)
        ]
        """The most between forward and input half."""
        self.free = [0.0] * depth
        self.orders: list[list[Step]] = [[] for _ in range(depth)]
        self.wakes = [(0.0, stage) for stage in range(depth)]
        """A heap of when a rank may have something to do."""

    def run(self) -> tuple[float, list[list[Step]]] | None:
        while self.wakes:
            now, stage = heapq.heappop(self.wakes)
            if self.free[stage] <= now:
                kind = self._choose(stage, now)
                if kind is not None:
                    self._do(stage, kind, now)
        is_done = min(self.weights) == self.chain.microbatches
        return (max(self.free), self.orders) if is_done else None

    def _choose(self, stage: int, now: float) -> Kind | None:
        forward, gradient = self._next_forward(stage), self._next_gradient(stage)
        if gradient <= now and not (self.policy.forwards_first and forward <= now):
            return Kind.INPUT_BACKWARD
        if forward <= now:
            return Kind.FORWARD
        if self.weights[stage] < self.inputs[stage]:
            wait = self.policy.patience * self.chain.costs[stage].weight_seconds
            if min(forward, gradient) - now >= wait:
                return Kind.WEIGHT_BACKWARD
        return None

    def _next_forward(self, stage: int) -> float:
        """When the next forward can start; infinity where that is not known or not allowed."""
        done = self.forwards[stage]
        if (
            done == self.chain.microbatches
            or done - self.weights[stage] >= self.chain.limits[stage]
            or done - self.inputs[stage] >= self.caps[stage]
        ):
            return math.inf
        return self.activations[stage][done]

    def _next_gradient(self, stage: int) -> float:
        """When the next input half can start; infinity where that is not known."""
        done = self.inputs[stage]
        return self.gradients[stage][done] if done < self.forwards[stage] else math.inf

    def _do(self, stage: int, kind: Kind, now: float) -> None:
        cost = self.chain.costs[stage]
        if kind is Kind.FORWARD:
            index, end = self.forwards[stage], now + cost.forward_seconds
            self.forwards[stage] += 1
            if stage == self.last:
                self.gradients[stage][index] = end
            else:
                arrival = end + self.chain.hop_seconds(stage)
                self.activations[stage + 1][index] = arrival
                heapq.heappush(self.wakes, (arrival, stage + 1))
        elif kind is Kind.INPUT_BACKWARD:
            index, end = self.inputs[stage], now + cost.input_seconds
            self.inputs[stage] += 1
            if stage > 0:
                arrival = end + self.chain.hop_seconds(stage - 1)
                self.gradients[stage - 1][index] = arrival
                heapq.heappush(self.wakes, (arrival, stage - 1))
        else:
            index, end = self.weights[stage], now + cost.weight_seconds
            self.weights[stage] += 1
        self.orders[stage].append((kind, stage, index))
        self.free[stage] = end
        heapq.heappush(self.wakes, (end, stage))
