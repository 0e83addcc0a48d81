"""A model that a function of the user's own makes: `module:factory`."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from diaulos.errors import InputError
from diaulos.models.exported.export import exported
from diaulos.models.exported.sequence import layers_of
from diaulos.models.layers import LayeredModel, Stream

_RULE = (
    "a factory takes no arguments and returns a LayeredModel, or a module and a tuple of example "
    "inputs"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeModel:
    """A model as layers."""

    model: LayeredModel
    samples: int | None = None
    """In a microbatch, where the factory's example inputs say so."""


def load_model(reference: str) -> MadeModel:
    """What `module:factory` makes, looked for in the working folder as well.

    Of a module with example inputs the loss is the sum of what it gives. An `nn.Sequential` or
    `nn.ModuleList` is a chain of its members; any other module is cut by `torch.export`.
    """
    made = find_factory(reference)()
    if isinstance(made, LayeredModel):
        return MadeModel(model=made)
    module, arguments = module_with_inputs(reference, made)
    tensors = input_tensors(arguments)
    samples = tensors[0].shape[0]
    targets = torch.zeros(samples)
    if isinstance(module, nn.Sequential | nn.ModuleList):
        members = {_name(name): child for name, child in module.named_children()}
        model = layers_of(members, loss=summed_outputs, example=_Example(tensors, targets))
    else:
        model = exported(module, arguments, targets, loss=summed_outputs)
    return MadeModel(model=replace(model, settings={"model": reference}), samples=samples)


def pretrained_model(path: Path, *, sequence_length: int) -> LayeredModel:
    """The Hugging Face model of a folder or a `config.json`; it needs transformers."""
    try:
        # Takes seconds to import, and only these models need it.
        from diaulos.models.huggingface.model import read_pretrained  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise InputError(
            f"{path} needs {error.name}",
            "Hugging Face models are built by transformers",
            "pip install 'diaulos[hf]'",
        ) from None
    return read_pretrained(path, sequence_length=sequence_length)


def find_factory(reference: str) -> Callable[[], Any]:
    """The function that `module:factory` names."""
    module, colon, name = reference.partition(":")
    if not (module and colon and name):
        raise InputError(f"{reference!r} names no factory", "it is module:factory")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        problem = f"the module {module!r} cannot be imported: {error}"
        raise InputError(problem, f"it is looked for in {folder} and where Python looks") from error
    factory = getattr(found, name, None)
    if not callable(factory):
        functions = [key for key, value in vars(found).items() if callable(value)]
        listed = ", ".join(key for key in functions if not key.startswith("_"))
        raise InputError(f"{module} has no function {name!r}", f"it has {listed or 'none'}")
    return factory  # type: ignore[no-any-return]


def module_with_inputs(reference: str, made: object) -> tuple[nn.Module, tuple[Any, ...]]:
    """What a factory made, where it is a module with its arguments, some of them tensors."""
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise InputError(f"{reference} returned a {type(made).__name__}", _RULE)
    module, inputs = made
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    tensors = input_tensors(arguments)
    if not tensors or not tensors[0].dim():
        raise InputError(f"{reference} gave no example inputs", _RULE)
    return module, arguments


def input_tensors(arguments: tuple[Any, ...]) -> Stream:
    """The tensors among arguments, of which the first has the samples."""
    return tuple(leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor))


def summed_outputs(*outputs_and_targets: Tensor) -> Tensor:
    """A loss for a module that has none: the sum of all it gives, whatever the targets."""
    outputs = [output for output in outputs_and_targets[:-1] if output.is_floating_point()]
    return torch.stack([output.float().sum() for output in outputs]).sum()


class _Example:
    """The inputs that the factory gave."""

    def __init__(self, inputs: Stream, targets: Tensor) -> None:
        self._inputs = inputs
        self._targets = targets

    def __call__(self, microbatch_size: int) -> tuple[Stream, Tensor]:
        """Inputs and targets; as many samples as there are."""
        if microbatch_size != self._targets.shape[0]:
            raise InputError(
                f"microbatch_size is {microbatch_size}",
                f"the factory gave example inputs of {self._targets.shape[0]}",
            )
        return self._inputs, self._targets


def _name(child: str) -> str:
    return f"layer_{child}" if child.isdecimal() else child
