"""The process groups of a run, made in one place, and who the ranks are in them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import torch
import torch.distributed as dist

from diaulos.errors import InputError
from diaulos.schedules.shape import PipelineShape


class Store(Protocol):
    """Where ranks leave notes for each other: any `torch.distributed` store."""

    def set(self, key: str, value: str) -> None:
        """Write a note."""

    def get(self, key: str) -> bytes:
        """Read a note; waits until it is there."""

    def check(self, keys: list[str]) -> bool:
        """Whether notes are there."""

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Write a note where it still is as expected, and read it; "" expects none."""

    def add(self, key: str, amount: int) -> int:
        """Add to a number, and read it; all begin at 0."""

    def clone(self) -> "Store":
        """Another connection to the same notes."""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """One rank's view of the run: its place in the pipeline and its communicators.

    Forward and backward traffic, the sums over replicas and the sums over all ranks each have a
    communicator of their own, so that none waits behind another.
    """

    shape: PipelineShape
    rank: int
    device: torch.device
    store: Store
    forward: dist.ProcessGroup
    backward: dist.ProcessGroup
    replicas: dist.ProcessGroup | None
    """The ranks that hold the same stages; None where there is only one."""
    world: dist.ProcessGroup
    timeout: timedelta

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages of this rank, input end first."""
        return self.shape.stages_of(self.rank)

    @property
    def is_first_replica(self) -> bool:
        """Whether it speaks for its stages in sums over stages."""
        return self.shape.replica_of(self.rank) == 0

    @property
    def is_speaker(self) -> bool:
        """Whether it is the one rank that reports the run: it has the loss."""
        return self.rank == self.shape.ranks_of(self.shape.stages - 1)[0]

    def of_stages(self, stages: Iterable[int]) -> dist.ProcessGroup | None:
        """A group of the ranks that hold any of these stages; None where they stand together.

        Every rank calls it, and in the same order; those outside get a group that is not theirs.
        """
        positions = sorted({self.shape.homes[stage] for stage in stages})
        if len(positions) == 1:
            return None
        members = [rank for position in positions for rank in self.shape.ranks_of(position)]
        group: dist.ProcessGroup = dist.new_group(members, timeout=self.timeout)
        return group

    def named(self, rank: int) -> str:
        """How messages call a rank."""
        stages = self.shape.stages_of(rank)
        noun = "stage" if len(stages) == 1 else "stages"
        return f"rank {rank} ({noun} {', '.join(map(str, stages))})"


def make_groups(
    shape: PipelineShape, store: Store, device: torch.device, *, timeout_seconds: float = 60.0
) -> Groups:
    """The groups of this rank; every rank of the initialised default group calls it.

    A rank waits at most `timeout_seconds` for another.
    """
    timeout = timedelta(seconds=timeout_seconds)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    if world_size != shape.ranks:
        raise InputError(
            f"{world_size} ranks were started",
            f"the plan has {shape.ranks}: {' + '.join(map(str, shape.replicas))} replicas of "
            f"{shape.stages} stages",
            f"start {shape.ranks} ranks",
        )
    everyone = list(range(shape.ranks))
    forward, backward, world = (dist.new_group(everyone, timeout=timeout) for _ in range(3))
    replicas = None
    for position in range(shape.depth):
        members = list(shape.ranks_of(position))
        if len(members) > 1:  # every rank takes part in making every group, in the same order
            group = dist.new_group(members, timeout=timeout)
            replicas = group if rank in members else replicas
    return Groups(
        shape=shape,
        rank=rank,
        device=device,
        store=store,
        forward=forward,
        backward=backward,
        replicas=replicas,
        world=world,
        timeout=timeout,
    )
