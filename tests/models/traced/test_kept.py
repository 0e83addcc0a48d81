"""What is kept is the cheapest set from which all that is wanted follows."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from diaulos.models.traced.kept import kept_tensors
from diaulos.models.traced.tape import Access, ProductShape, Step, Tape


def step(reads: list[int], made: int, *, product: bool = False, repeatable: bool = True) -> Step:
    return Step(
        name="step",
        reads=tuple(Access(key=key, bytes=1.0) for key in reads),
        writes=(Access(key=made, bytes=1.0),),
        product=ProductShape(rows=1, inner=1, columns=1) if product else None,
        repeatable=repeatable,
    )


@st.composite
def tapes(draw: st.DrawFn) -> Tape:
    """Tensor 0 comes in; each step makes the next one of one or two that are there."""
    count = draw(st.integers(1, 7))
    steps = [
        step(
            draw(st.lists(st.integers(0, made - 1), min_size=1, max_size=2, unique=True)),
            made,
            product=draw(st.booleans()),
            repeatable=draw(st.booleans()),
        )
        for made in range(1, count + 1)
    ]
    sizes = {key: float(draw(st.integers(1, 5))) for key in range(count + 1)}
    return Tape(
        forward=tuple(steps),
        backward=(),
        saved=draw(st.frozensets(st.integers(0, count))),
        sizes=sizes,
        parameters={},
        inputs=(0,),
        outputs=(count,),
        output_gradients=(),
    )


def follows(tape: Tape, kept: frozenset[int]) -> frozenset[int]:
    """All that memory-bound steps that can run again make of what is kept."""
    there = set(kept)
    for some in tape.forward:
        ready = {access.key for access in some.reads} <= there
        if some.moves_memory and some.repeatable and ready:
            there.update(access.key for access in some.writes)
    return frozenset(there)


@given(tape=tapes())
def test_no_cheaper_set_is_enough(tape: Tape) -> None:
    """Among all sets with the inputs of products, none from which all follows has fewer bytes."""
    needed = {a.key for s in tape.forward if s.product for a in s.reads} & tape.saved
    keys = sorted(tape.sizes)
    best = min(
        sum(tape.sizes[key] for key in chosen)
        for count in range(len(keys) + 1)
        for chosen in combinations(keys, count)
        if needed <= set(chosen) and tape.saved <= follows(tape, frozenset(chosen))
    )
    kept = kept_tensors(tape)
    assert needed <= kept
    assert tape.saved <= follows(tape, kept)
    assert sum(tape.sizes[key] for key in kept) == best


def test_what_is_random_is_kept() -> None:
    """A mask of dropout cannot be made again, so it is kept and not what it was made of."""
    tape = Tape(
        forward=(step([0], 1, repeatable=False), step([1], 2)),
        backward=(),
        saved=frozenset({2}),
        sizes={0: 1.0, 1: 4.0, 2: 8.0},
        parameters={},
        inputs=(0,),
        outputs=(2,),
        output_gradients=(),
    )
    assert kept_tensors(tape) == {1}
