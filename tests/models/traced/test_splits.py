"""Splits follow the plan of the model, and where it says nothing the kernels."""

from diaulos.models.operations import Region, Split
from diaulos.models.traced.splits import find_splits
from diaulos.models.traced.tape import Access, ProductShape, Step, Tape

NAMES = {100: "up", 101: "down", 102: "other"}


def product(made: int, entering: int, weight: int) -> Step:
    return Step(
        name="mm",
        reads=(Access(key=entering, bytes=8), Access(key=weight, bytes=8)),
        writes=(Access(key=made, bytes=8),),
        product=ProductShape(rows=4, inner=2, columns=2, weight=weight),
    )


def work(made: int, *entering: int, reduced_rows: float | None = None) -> Step:
    return Step(
        name="work",
        reads=tuple(Access(key=key, bytes=8) for key in entering),
        writes=(Access(key=made, bytes=8),),
        reduced_rows=reduced_rows,
    )


def tape(*forward: Step, backward: tuple[Step, ...] = ()) -> Tape:
    return Tape(
        forward=forward,
        backward=backward,
        saved=frozenset(),
        sizes={},
        parameters=NAMES,
        inputs=(0,),
        outputs=(),
        output_gradients=(),
    )


def test_two_products_are_split_by_columns_and_then_by_rows() -> None:
    """What is between them is split; what the second makes is whole."""
    found = find_splits(tape(product(1, 0, 100), work(2, 1), product(3, 2, 101), work(4, 3, 0)), {})
    assert found.products == {0: Split.COLUMNS, 2: Split.INNER}
    split = {key for key in range(5) if found.region(key) is Region.SPLIT}
    assert split == {1, 2}


def test_what_a_norm_wants_whole_is_not_split() -> None:
    """A norm over all columns before the next product, as between latents, bars the split."""
    norm = work(2, 1, reduced_rows=4)
    found = find_splits(tape(product(1, 0, 100), norm, work(3, 1, 2), product(4, 3, 101)), {})
    assert found.products[0] is Split.NONE


def test_a_norm_of_each_head_does_not_bar_the_split() -> None:
    """Norms of queries and keys go over more rows than there are tokens."""
    norm = work(2, 1, reduced_rows=8)
    found = find_splits(tape(product(1, 0, 100), norm, work(3, 1, 2), product(4, 3, 101)), {})
    assert found.products == {0: Split.COLUMNS, 3: Split.INNER}


def test_a_product_that_feeds_no_other_is_not_split() -> None:
    """A router, whose scores weigh what experts give, is computed everywhere."""
    found = find_splits(tape(product(1, 0, 102), work(2, 1)), {})
    assert found.products == {0: Split.NONE}


def test_the_plan_goes_first() -> None:
    """A head is split by columns since the model says so."""
    found = find_splits(tape(product(1, 0, 102), work(2, 1)), {"other": Split.COLUMNS})
    assert found.products == {0: Split.COLUMNS}
    assert found.region(2) is Region.SPLIT


def test_gradients_of_what_is_split_are_split() -> None:
    """Back through the second product the gradient is split, through the first one whole."""
    backward = (product(5, 4, 101), work(6, 5, 1), product(7, 6, 100), work(8, 7))
    found = find_splits(tape(product(1, 0, 100), product(3, 1, 101), backward=backward), {})
    split = {key for key in range(4, 9) if found.region(key) is Region.SPLIT}
    assert split == {5, 6}
