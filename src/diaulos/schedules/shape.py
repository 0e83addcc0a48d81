"""The pipeline's shape: which rank holds which stages and runs which microbatches."""

import itertools
from dataclasses import dataclass
from functools import cached_property

from diaulos.errors import InputError
from diaulos.planning.plan import Plan


@dataclass(frozen=True, kw_only=True)
class PipelineShape:
    """Positions with their replicas, the stages of each, and the microbatches of a batch.

    A position is a place along the pipeline; its replicas are ranks that hold the same stages, one
    in most schedules, so that position and stage are then the same number. Ranks are numbered
    position by position, replicas within a position side by side. Microbatch j of a batch runs on
    replica j mod d of each stage.
    """

    replicas: tuple[int, ...]
    """The data-parallel degree of each position, input end first."""
    microbatches: int
    """Of one batch, over all replicas."""
    chunks: int = 1
    """Stages of each rank."""
    folded: bool = False
    """Whether every second chunk runs from the last position back to the first, which makes a V
    of two chunks; else each begins at the first again, as a loop."""

    def __post_init__(self) -> None:
        if not self.replicas or min(self.replicas) < 1:
            raise InputError(f"replicas is {self.replicas}", "each stage has at least one replica")
        for name in ("microbatches", "chunks"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")
        for position, degree in enumerate(self.replicas):
            if self.microbatches % degree:
                raise InputError(
                    f"microbatches is {self.microbatches} and stage {position} has {degree} "
                    "replicas",
                    "the replicas of each stage share the microbatches of a batch evenly",
                    f"{-(-self.microbatches // degree) * degree} microbatches would do",
                )

    @staticmethod
    def of(plan: Plan, *, chunks: int = 1, folded: bool = False) -> "PipelineShape":
        """The shape of a plan of which `chunks` stages share a rank."""
        degrees = tuple(stage.data_parallel for stage in plan.stages)
        if chunks < 1 or len(degrees) % chunks:
            raise InputError(
                f"chunks is {chunks} and the plan has {len(degrees)} stages",
                "each rank holds as many stages as any other",
                f"plan {max(chunks, 1)} stages for each rank, or take other chunks",
            )
        shape = PipelineShape(
            replicas=degrees[: len(degrees) // chunks],
            microbatches=plan.microbatches,
            chunks=chunks,
            folded=folded,
        )
        for stage, (degree, home) in enumerate(zip(degrees, shape.homes, strict=True)):
            if degree != shape.replicas[home]:
                raise InputError(
                    f"stage {stage} has {degree} replicas and stage {home} {shape.replicas[home]}",
                    "stages that share a rank have the same data-parallel degree",
                )
        return shape

    @property
    def depth(self) -> int:
        """How many positions there are."""
        return len(self.replicas)

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(self.replicas) * self.chunks

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        return sum(self.replicas)

    @cached_property
    def _places(self) -> tuple[tuple[int, int], ...]:
        return tuple((s, r) for s, degree in enumerate(self.replicas) for r in range(degree))

    @cached_property
    def _ranks_by_position(self) -> tuple[range, ...]:
        ends = itertools.accumulate(self.replicas)
        return tuple(range(end - d, end) for end, d in zip(ends, self.replicas, strict=True))

    @cached_property
    def homes(self) -> tuple[int, ...]:
        """The position of each stage."""
        there = range(self.depth)
        back = there[::-1] if self.folded else there
        turns = (there if chunk % 2 == 0 else back for chunk in range(self.chunks))
        return tuple(itertools.chain.from_iterable(turns))

    @cached_property
    def _stages_by_position(self) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(stage for stage, home in enumerate(self.homes) if home == position)
            for position in range(self.depth)
        )

    def position_of(self, rank: int) -> int:
        """The position of a rank."""
        return self._places[rank][0]

    def replica_of(self, rank: int) -> int:
        """Which replica of its position a rank is."""
        return self._places[rank][1]

    def stages_of(self, rank: int) -> tuple[int, ...]:
        """The stages that a rank holds, input end first."""
        return self._stages_by_position[self._places[rank][0]]

    def stage_of(self, rank: int) -> int:
        """The stage that a rank holds where it holds only one."""
        (stage,) = self.stages_of(rank)
        return stage

    def ranks_of(self, stage: int) -> range:
        """The ranks that hold a stage."""
        return self._ranks_by_position[self.homes[stage]]

    def rank_of(self, stage: int, microbatch: int) -> int:
        """The rank on which a stage runs a microbatch, counted through all batches."""
        ranks = self.ranks_of(stage)
        return ranks[microbatch % self.microbatches % len(ranks)]

    def microbatches_of(self, rank: int, batch: int) -> range:
        """The microbatches of a batch that a rank runs, counted through all batches."""
        position, replica = self._places[rank]
        first = batch * self.microbatches
        return range(first + replica, first + self.microbatches, self.replicas[position])

    def is_handed_over(self, stage: int) -> bool:
        """Whether what a stage passes to the next one goes to another rank."""
        return stage + 1 < self.stages and self.homes[stage] != self.homes[stage + 1]

    @cached_property
    def in_flight(self) -> tuple[int, ...]:
        """Microbatches in flight on a replica of each position when the pipeline is full.

        ceil(s / d), s being the sum of the degrees of the position and all later ones; with equal
        degrees that is the depth minus the position. For ranks that hold one stage.
        """
        later = [sum(self.replicas[position:]) for position in range(self.depth)]
        return tuple(-(-total // d) for total, d in zip(later, self.replicas, strict=True))
