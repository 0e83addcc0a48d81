"""A tape as the operations of a layer."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from diaulos.models.operations import (
    Border,
    Dispatch,
    Exchange,
    LayerOperations,
    MatrixProduct,
    Parameters,
    Region,
    SavedTensor,
    Split,
)
from diaulos.models.traced.kept import kept_tensors
from diaulos.models.traced.splits import Splits, find_splits
from diaulos.models.traced.tape import Access, Step, Tape
from diaulos.models.traced.traffic import memory_bound_work


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedParameter:
    """A parameter of a segment."""

    name: str
    count: int
    owner: str | None = None
    """The layer that has it too, and before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """What a model says of how it may be split."""

    products: Mapping[str, Split]
    """Of the products with these parameters."""
    tables: frozenset[str]
    """Parameters that are tables split by their rows, as the embedding of tokens is."""


def layer_operations(
    tape: Tape,
    parameters: tuple[OwnedParameter, ...],
    plan: SplitPlan,
    *,
    path: str,
) -> LayerOperations:
    """What the tape's segment computes, keeps and exchanges; `path` is that of a block."""
    splits = find_splits(tape, plan.products)
    kept = kept_tensors(tape)
    entering = _size(tape, tape.inputs)
    steps = [(splits.products[i], step) for i, step in enumerate(tape.forward) if step.product]
    return LayerOperations(
        products=tuple(_product(tape, split, step, path) for split, step in steps),
        attentions=tape.attentions,
        memory_bound=memory_bound_work(tape, splits, kept),
        saved=tuple(_saved(tape, splits, kept)),
        parameters=tuple(_parameters(tape, parameters, splits, plan)),
        exchanges=tuple(_exchanges(tape, steps, splits, plan, entering)),
        dispatches=tuple(_dispatches(tape, steps)),
        input_bytes=entering,
        output_bytes=_size(tape, tape.outputs),
        recomputable=bool(path),
    )


def _size(tape: Tape, keys: tuple[int, ...]) -> float:
    """Of the hidden state, which comes first."""
    return tape.sizes[keys[0]] if keys else 0.0


def _product(tape: Tape, split: Split, step: Step, path: str) -> MatrixProduct:
    shape = step.product
    assert shape is not None
    name = step.name
    if shape.weight is not None:
        parameter = tape.parameters[shape.weight].removeprefix(f"{path}.")
        name = parameter if shape.stacked else _module(parameter)
    return MatrixProduct(
        name=name,
        rows=shape.rows,
        inner=shape.inner,
        columns=shape.columns,
        count=shape.count,
        split=split,
        experts=shape.stacked,
    )


def _saved(tape: Tape, splits: Splits, kept: frozenset[int]) -> Iterator[SavedTensor]:
    makers = {some.key: step.name for step in tape.forward for some in step.writes}
    for key in sorted(kept):
        name = f"{makers.get(key, 'input')}_{key}"
        yield SavedTensor(name=name, bytes=tape.sizes[key], region=splits.region(key))
    for key in tape.outputs[1:]:
        if key not in kept:  # what blocks further on keep of it is one tensor, which is here
            yield SavedTensor(name=f"handed_on_{key}", bytes=tape.sizes[key], region=Region.WHOLE)


def _parameters(
    tape: Tape, parameters: tuple[OwnedParameter, ...], splits: Splits, plan: SplitPlan
) -> Iterator[Parameters]:
    """Of each region and owner together."""
    region_of = _regions(tape, splits, plan)
    totals: dict[tuple[Region, str | None], int] = {}
    for some in parameters:
        key = (region_of(some.name), some.owner)
        totals[key] = totals.get(key, 0) + some.count
    for (region, owner), count in totals.items():
        name = region.value if owner is None else f"{region.value} of {owner}"
        yield Parameters(name=name, count=count, region=region, tied_to=owner)


def _regions(tape: Tape, splits: Splits, plan: SplitPlan) -> Callable[[str], Region]:
    """Where parameters are, by name; a bias goes with the weights that it stands beside."""
    ways = {tape.parameters[key]: split for key, split in splits.weights.items()}
    products = [step.product for step in tape.forward if step.product is not None]
    stacks = [some.weight for some in products if some.stacked and some.weight is not None]
    experts = {_module(tape.parameters[key]) for key in stacks}
    columns = {_module(name) for name, way in ways.items() if way is Split.COLUMNS}

    def region(name: str) -> Region:
        if _module(name) in experts:
            return Region.EXPERTS
        summed = ways.get(name) is Split.INNER
        is_split = name in plan.tables or _module(name) in columns or summed
        return Region.SPLIT if is_split else Region.WHOLE

    return region


def _module(parameter: str) -> str:
    return parameter.rpartition(".")[0]


def _exchanges(
    tape: Tape,
    steps: list[tuple[Split, Step]],
    splits: Splits,
    plan: SplitPlan,
    entering: float,
) -> Iterator[Exchange]:
    """Where tensors enter split products, each once, and where they leave; and split tables.

    What experts take and give is as much as the tokens, whichever copies of them go where.
    """
    for step in tape.forward:
        names = {tape.parameters[some.key] for some in step.reads if some.key in tape.parameters}
        if step.moves_memory and step.name == "embedding" and names & plan.tables:
            yield Exchange(border=Border.LEAVING, bytes=_written(step))
    entered: set[int] = set()
    for split, step in steps:
        shape = step.product
        assert shape is not None
        if shape.weight is None or split is Split.NONE:
            continue
        leaves = split is Split.INNER
        entry = _input(tape, step)
        size = _written(step) if leaves else entry.bytes
        source = entry.key
        if not leaves and (source in entered or splits.region(source) is Region.SPLIT):
            continue
        entered.add(source)
        border = Border.LEAVING if leaves else Border.ENTERING
        yield Exchange(border=border, bytes=min(size, entering) if shape.stacked else size)


def _dispatches(tape: Tape, steps: list[tuple[Split, Step]]) -> Iterator[Dispatch]:
    """What the first products of experts take."""
    for split, step in steps:
        if step.product is not None and step.product.stacked and split is Split.COLUMNS:
            yield Dispatch(bytes=_input(tape, step).bytes)


def _input(tape: Tape, step: Step) -> Access:
    """The factor of a product that is no parameter."""
    return max(
        (some for some in step.reads if some.key not in tape.parameters),
        key=lambda some: some.bytes,
        default=step.reads[0],  # a product of parameters
    )


def _written(step: Step) -> float:
    return sum(some.bytes for some in step.writes)
