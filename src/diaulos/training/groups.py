"""The process groups of a run, made in one place, and who the ranks are in them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Protocol

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from diaulos.errors import InputError
from diaulos.schedules.shape import PipelineShape
from diaulos.training.grid import RankGrid


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
class ShardGroups:
    """The communicators of the ranks that hold the shards of one replica."""

    mesh: DeviceMesh
    """For the computations of layers that are split."""
    beside: dist.ProcessGroup
    """For what is summed and gathered by other threads, beside the computations."""

    @property
    def computing(self) -> dist.ProcessGroup:
        """The communicator of the mesh."""
        return self.mesh.get_group()


@dataclass(frozen=True, kw_only=True)
class Groups:
    """One rank's view of the run: its place in the pipeline and its communicators.

    Forward and backward traffic, the computations of shards, the sums over replicas and the sums
    over all ranks each have a communicator of their own, so that none waits behind another.
    """

    shape: PipelineShape
    shards: tuple[int, ...]
    """The tensor-parallel degree of each position."""
    rank: int
    device: torch.device
    store: Store
    forward: dist.ProcessGroup
    backward: dist.ProcessGroup
    replicas: dist.ProcessGroup | None
    """The ranks that hold the same shard of the same stages; None where there is only one."""
    replicas_beside: dist.ProcessGroup | None
    """The same ranks, for what they tell each other while gradients of later batches are summed."""
    sharded: ShardGroups | None
    """None where stages are not split."""
    world: dist.ProcessGroup
    timeout: timedelta

    @cached_property
    def grid(self) -> RankGrid:
        """All ranks of the run."""
        return RankGrid(shape=self.shape, shards=self.shards)

    @property
    def row(self) -> int:
        """The row of a schedule's actions that this rank does."""
        return self.grid.row_of(self.rank)

    @property
    def shard(self) -> int:
        """Which shard of its replica it is."""
        return self.grid.shard_of(self.rank)

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages of this rank, input end first."""
        return self.shape.stages_of(self.row)

    @property
    def same_shards(self) -> tuple[int, ...]:
        """The ranks that hold what this one holds, itself included, replica by replica."""
        rows = self.shape.ranks_of(self.stages[0])
        return tuple(self.grid.rank_at(row, self.shard) for row in rows)

    @property
    def is_first_replica(self) -> bool:
        """Whether it speaks for its stages in sums over stages."""
        return self.shape.replica_of(self.row) == 0

    @property
    def is_first_shard(self) -> bool:
        """Whether it speaks for what all shards of its replica have alike."""
        return self.shard == 0

    @property
    def is_speaker(self) -> bool:
        """Whether it is the one rank that reports the run: it has the loss."""
        return self.rank == self.grid.ranks_of(self.shape.stages - 1)[0]

    def of_stages(self, stages: Iterable[int]) -> dist.ProcessGroup | None:
        """A group of the ranks that hold any of these stages; None where one rank holds all.

        Every rank calls it, and in the same order; those outside get a group that is not theirs.
        """
        positions = sorted({self.shape.homes[stage] for stage in stages})
        if len(positions) == 1:
            return None
        members = [rank for position in positions for rank in self.grid.ranks_of(position)]
        group: dist.ProcessGroup = dist.new_group(members, timeout=self.timeout)
        return group

    def named(self, rank: int) -> str:
        """How messages call a rank."""
        return self.grid.named(rank)


def make_groups(
    shape: PipelineShape,
    store: Store,
    device: torch.device,
    *,
    shards: Sequence[int] | None = None,
    timeout_seconds: float = 60.0,
) -> Groups:
    """The groups of this rank; every rank of the initialised default group calls it.

    `shards` are the tensor-parallel degrees by position, None for 1 everywhere. A rank waits at
    most `timeout_seconds` for another.
    """
    timeout = timedelta(seconds=timeout_seconds)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    grid = RankGrid.of(shape, shards)
    if world_size != grid.ranks:
        raise InputError(
            f"{world_size} ranks were started",
            f"the plan has {grid.ranks}: {_degrees(grid)} of {shape.stages} stages",
            f"start {grid.ranks} ranks",
        )
    everyone = list(range(grid.ranks))
    forward, backward, world = (dist.new_group(everyone, timeout=timeout) for _ in range(3))
    same_shards = [group for place in range(shape.depth) for group in grid.same_shards(place)]
    same_replica = [grid.ranks_of_row(row) for row in range(shape.ranks)]
    return Groups(
        shape=shape,
        shards=grid.shards,
        rank=rank,
        device=device,
        store=store,
        forward=forward,
        backward=backward,
        replicas=_own_group(same_shards, timeout),
        replicas_beside=_own_group(same_shards, timeout),
        sharded=_shard_groups(same_replica, device, timeout),
        world=world,
        timeout=timeout,
    )


def _degrees(grid: RankGrid) -> str:
    degrees = zip(grid.shape.replicas, grid.shards, strict=True)
    if max(grid.shards) == 1:
        return f"{' + '.join(map(str, grid.shape.replicas))} replicas"
    return " + ".join(f"{d} x {t}" for d, t in degrees) + " replicas x shards"


def _own_group(partition: Sequence[Sequence[int]], timeout: timedelta) -> dist.ProcessGroup | None:
    """The group of those ranks that this one is among; None where it is alone.

    Every rank takes part in making every group, in the same order.
    """
    own = None
    for members in partition:
        if len(members) > 1:
            group = dist.new_group(list(members), timeout=timeout)
            own = group if dist.get_rank() in members else own
    return own


def _shard_groups(
    partition: Sequence[Sequence[int]], device: torch.device, timeout: timedelta
) -> ShardGroups | None:
    computing, beside = _own_group(partition, timeout), _own_group(partition, timeout)
    if computing is None or beside is None:
        return None
    mesh = DeviceMesh.from_group(computing, device.type, mesh_dim_names=("shard",))
    return ShardGroups(mesh=mesh, beside=beside)
