"""The memory-bound work of a segment: kernel by kernel, and as a compiler would fuse it.

Kernels that hand each other tensors become one if no product or attention has to run between
them. A fused kernel reads what comes from outside and writes what is used outside.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from diaulos.models.operations import MemoryBound, Region, Traffic
from diaulos.models.traced.splits import Splits
from diaulos.models.traced.tape import Step, Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """Kernels that become one."""

    name: str
    fused_bytes: float
    unfused_bytes: float
    steps: int
    split: bool


def memory_bound_work(tape: Tape, splits: Splits, kept: frozenset[int]) -> tuple[MemoryBound, ...]:
    """The work of forward and backward; kernels of the backward read only what is `kept`."""
    lasting = kept | set(tape.outputs)
    forward = _Pass(tape.forward, splits, lasting, {}).kernels()
    again = _Anchors(tape, kept).of_dropped()
    backward = _Pass(tape.backward, splits, frozenset(tape.inputs), again).kernels()
    return (
        *(_work(f"forward_{i}_{some.name}", some, forward=True) for i, some in enumerate(forward)),
        *(
            _work(f"backward_{i}_{some.name}", some, forward=False)
            for i, some in enumerate(backward)
        ),
    )


def _work(name: str, kernel: _Kernel, *, forward: bool) -> MemoryBound:
    region = Region.SPLIT if kernel.split else Region.WHOLE
    fused, unfused = (
        Traffic(
            forward_bytes=size if forward else 0,
            backward_bytes=0 if forward else size,
            forward_kernels=count if forward else 0,
            backward_kernels=0 if forward else count,
        )
        for size, count in ((kernel.fused_bytes, 1), (kernel.unfused_bytes, kernel.steps))
    )
    return MemoryBound(name=name, region=region, fused=fused, unfused=unfused)


class _Pass:
    """A forward or a backward.

    What is `lasting` is wanted after it. Who reads a tensor of `replaced` reads what that is made
    from again.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        splits: Splits,
        lasting: frozenset[int],
        replaced: Mapping[int, Mapping[int, float]],
    ) -> None:
        self._steps = steps
        self._splits = splits
        self._lasting = lasting
        self._replaced = replaced
        self._users: dict[int, set[int]] = {}
        for position, step in enumerate(steps):
            for some in step.reads:
                self._users.setdefault(some.key, set()).add(position)

    def kernels(self) -> list[_Kernel]:
        """Each group of steps as one."""
        return [self._kernel(group) for group in _groups(self._steps)]

    def _kernel(self, group: Sequence[int]) -> _Kernel:
        members = [self._steps[position] for position in group]
        made: dict[int, float] = {}
        entering: dict[int, float] = {}
        for step in members:
            for some in step.reads:
                read = self._replaced.get(some.key, {some.key: some.bytes})
                for key, size in read.items():
                    if key not in made:
                        entering[key] = max(entering.get(key, 0.0), size)
            made.update((some.key, some.bytes) for some in step.writes)
        leaving = sum(size for key, size in made.items() if self._is_wanted(key, set(group)))
        moved = (some.bytes for step in members for some in (*step.reads, *step.writes))
        return _Kernel(
            name=members[-1].name,
            fused_bytes=sum(entering.values()) + leaving,
            unfused_bytes=sum(moved),
            steps=len(members),
            split=any(self._splits.region(key) is Region.SPLIT for key in (*entering, *made)),
        )

    def _is_wanted(self, key: int, group: set[int]) -> bool:
        """Whether anything else reads a tensor, or nothing at all, as it is with gradients."""
        users = self._users.get(key, set())
        return key in self._lasting or not users or not users <= group


def _groups(steps: Sequence[Step]) -> list[list[int]]:
    """Positions of memory-bound steps that hand each other tensors between two products."""
    levels = _levels(steps)
    maker: dict[int, int] = {}
    parent = {position: position for position, step in enumerate(steps) if step.moves_memory}

    def root(position: int) -> int:
        while parent[position] != position:
            position = parent[position]
        return position

    for position, step in enumerate(steps):
        for some in step.reads if step.moves_memory else ():
            before = maker.get(some.key)
            if before in parent and levels[before] == levels[position]:
                parent[root(position)] = root(before)
        maker.update((some.key, position) for some in step.writes)
    found: dict[int, list[int]] = {}
    for position in parent:
        found.setdefault(root(position), []).append(position)
    return sorted(found.values())


def _levels(steps: Sequence[Step]) -> list[int]:
    """How many products and attentions run before each step, which runs as late as it may."""
    depth: dict[int, int] = {}
    levels = []
    for step in steps:
        level = max((depth.get(some.key, 0) for some in step.reads), default=0)
        level += 0 if step.moves_memory else 1
        levels.append(level)
        depth.update((some.key, level) for some in step.writes)
    latest: dict[int, int] = {}
    for position in range(len(steps) - 1, -1, -1):
        step = steps[position]
        if step.moves_memory:
            users = [latest[some.key] for some in step.writes if some.key in latest]
            levels[position] = max(levels[position], min(users, default=0))
        bound = levels[position] - (0 if step.moves_memory else 1)
        for some in step.reads:
            latest[some.key] = min(latest.get(some.key, bound), bound)
    return levels


class _Anchors:
    """From which tensors those that are not kept are made again."""

    def __init__(self, tape: Tape, kept: frozenset[int]) -> None:
        self._tape = tape
        self._there = kept | tape.parameters.keys()
        self._makers = {
            some.key: step for step in tape.forward if step.moves_memory for some in step.writes
        }

    def of_dropped(self) -> dict[int, dict[int, float]]:
        """The tensors, with the bytes that are read, of each one that is made again."""
        dropped = sorted(self._makers.keys() - self._there)
        return {key: dict(self._anchors(key)) for key in dropped}

    def _anchors(self, key: int) -> Iterator[tuple[int, float]]:
        pending, seen = [key], {key}
        while pending:
            for some in self._makers[pending.pop()].reads:
                if some.key in seen:
                    continue
                seen.add(some.key)
                if some.key in self._makers and some.key not in self._there:
                    pending.append(some.key)
                else:
                    yield some.key, some.bytes
