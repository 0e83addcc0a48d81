"""Kernels that hand each other tensors are one where they are fused."""

from diaulos.models.operations import MemoryBound
from diaulos.models.traced.splits import find_splits
from diaulos.models.traced.tape import Step, Tape
from diaulos.models.traced.traffic import memory_bound_work
from tests.models.traced.test_splits import product, tape, work


def works(tape: Tape, kept: frozenset[int] = frozenset()) -> tuple[MemoryBound, ...]:
    return memory_bound_work(tape, find_splits(tape, {}), kept)


def forward_of(*steps: Step) -> list[tuple[float, float]]:
    """Bytes fused and not, of each kernel."""
    return [(w.fused.forward_bytes, w.unfused.forward_bytes) for w in works(tape(*steps))]


def test_a_chain_reads_once_and_writes_once() -> None:
    """Three kernels of eight bytes each way are one that moves sixteen."""
    assert forward_of(work(1, 0), work(2, 1), work(3, 2)) == [(16.0, 48.0)]


def test_a_product_between_parts_kernels() -> None:
    """What runs before a product and what reads its result cannot be one."""
    assert forward_of(work(1, 0), product(2, 1, 100), work(3, 2, 1)) == [(16.0, 16.0), (24.0, 24.0)]


def test_a_product_beside_does_not_part_kernels() -> None:
    """A gate is activated and multiplied in one kernel, though a product runs between."""
    steps = (product(1, 0, 100), work(2, 1), product(3, 0, 101), work(4, 2, 3))
    assert forward_of(*steps) == [(24.0, 40.0)]


def test_what_is_kept_is_written() -> None:
    """A tensor inside a fused kernel is written if the backward wants it."""
    (kernel,) = works(tape(work(1, 0), work(2, 1)), frozenset({1}))
    assert kernel.fused.forward_bytes == 24.0


def test_the_backward_reads_what_a_dropped_tensor_is_made_of() -> None:
    """Two inputs are read instead of their sum, unless the sum is kept."""
    steps = tape(work(1, 0, 5), work(2, 1), backward=(work(9, 8, 1),))
    assert works(steps)[-1].fused.backward_bytes == 32.0
    assert works(steps, frozenset({1}))[-1].fused.backward_bytes == 24.0
