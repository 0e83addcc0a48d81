"""A model that can be trained in stages: layers by name, built one at a time."""

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from diaulos.errors import InputError
from diaulos.models.tensor_split import TensorSplit

Stream = tuple[Tensor, ...]
"""What passes from layer to layer: one tensor, or a fixed number of them."""


def as_stream(tensors: Tensor | Stream) -> Stream:
    """What a layer or a source of data gives, of which one tensor may stand alone."""
    return (tensors,) if isinstance(tensors, Tensor) else tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSpec:
    """A layer before it exists: its name, how to build it, and how it may be split.

    The module takes the tensors that the layer before gives, each as an argument, and returns one
    tensor or a tuple of them. What a later layer needs is passed on by those in between.
    `build` must survive pickling, since ranks are processes of their own: a top-level class or
    function, or a `functools.partial` of one.
    """

    name: str
    build: Callable[[], nn.Module]
    tensor_split: TensorSplit | None = None
    """None for a layer that tensor-parallel stages cannot hold."""
    frozen: bool = False
    """Whether its weights stay as they are; so do those that do not require a gradient."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a layer has an empty name", "weights are initialised by layer name")


IGNORED = -100
"""The target of a token that is not to be predicted, as torch's cross entropy has it."""


class Reduction(Enum):
    """What the loss of a batch is, of the losses of its tokens."""

    MEAN = "mean over all tokens"
    MASKED_MEAN = "mean over the tokens whose target is not IGNORED"
    SUM = "sum"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredModel:
    """A chain of layers with its loss: all that training and measuring need to know of a model."""

    layers: tuple[LayerSpec, ...]
    """From the input end to the output end."""
    loss: Callable[..., Tensor]
    """(outputs of the last layer, targets) to the SUM of the token losses of a microbatch.

    Whoever trains divides once, by what `reduction` says of the global batch.
    """
    example: Callable[[int], tuple[Tensor | Stream, Tensor]]
    """(microbatch size) to inputs and targets of the shape and type that training will see."""
    tokens_per_sample: int
    """Terms that one sample adds to the loss."""
    reduction: Reduction = Reduction.MEAN
    ties: Mapping[str, str] = field(default_factory=dict)
    """Parameters that are one with another, both by full name: `head.scores.weight` to
    `embedding.tokens.weight`, which is the one that is initialised, counted and saved."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What the model is, for the provenance of its prices."""

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("the model has no layers", "it needs at least one")
        if self.tokens_per_sample < 1:
            raise InputError(
                f"tokens_per_sample is {self.tokens_per_sample}", "it must be at least 1"
            )
        names = [layer.name for layer in self.layers]
        for name in names:
            if names.count(name) > 1:
                raise InputError(
                    f"two layers are called {name!r}",
                    "names are unique, since weights are initialised and saved by layer name",
                )
        for tied, owner in self.ties.items():
            if owner in self.ties:
                raise InputError(
                    f"{tied} is tied to {owner}, which is itself tied to {self.ties[owner]}",
                    "a parameter is tied to one that is not",
                    f"tie {tied} to {self.ties[owner]}",
                )

    def layer(self, name: str) -> LayerSpec:
        """The layer of this name."""
        for layer in self.layers:
            if layer.name == name:
                return layer
        known = ", ".join(layer.name for layer in self.layers)
        raise InputError(f"there is no layer {name!r}", f"the model has {known}")

    def freeze(self, names: Collection[str]) -> "LayeredModel":
        """The model whose layers of these names are not trained, beside those that are not now.

        An `InputError` where one of two tied parameters would still be trained.
        """
        frozen = {self.layer(name).name for name in names}
        layers = [replace(spec, frozen=spec.frozen or spec.name in frozen) for spec in self.layers]
        model = replace(self, layers=tuple(layers))
        for tied, owner in self.ties.items():
            one, other = model.layer_of(tied), model.layer_of(owner)
            if one.frozen != other.frozen:
                raise InputError(
                    f"{tied} is tied to {owner}, and one of their layers is frozen",
                    f"freeze both {one.name} and {other.name}, or none",
                )
        return model

    def split(self, parameter: str) -> tuple[LayerSpec, str]:
        """The layer of a parameter and its name there: `block_0.norm.weight` is of `block_0`."""
        for spec in self.layers:
            if parameter.startswith(spec.name + "."):
                return spec, parameter.removeprefix(spec.name + ".")
        raise InputError(
            f"there is no parameter {parameter!r}", "its name begins with that of its layer"
        )

    def layer_of(self, parameter: str) -> LayerSpec:
        """The layer of a parameter."""
        return self.split(parameter)[0]

    def home(self, parameter: str) -> tuple[LayerSpec, str]:
        """The layer where a parameter is kept, which with ties may be another, and its name."""
        return self.split(self.ties.get(parameter, parameter))

    def ties_of(self, spec: LayerSpec) -> dict[str, tuple[LayerSpec, str]]:
        """The parameters of a layer that are kept elsewhere, with that layer and the name there."""
        own = ((tied, *self.split(tied)) for tied in self.ties)
        return {name: self.home(tied) for tied, home, name in own if home is spec}

    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all parameters that are trained, by full name, in the order of the layers.

        Ties included.
        """
        return {
            f"{spec.name}.{name}": tuple(parameter.shape)
            for spec in self.layers
            for name, parameter in meta_layer(spec).named_parameters()
            if parameter.requires_grad
        }


def build_layer(spec: LayerSpec, seed: int) -> nn.Module:
    """The layer on the CPU, its weights drawn from (seed, layer name) and nothing else.

    Any split of the model, in any order, on any rank thus starts from the same weights. The
    random state of the caller is left as it was.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(_key(f"{seed}:{spec.name}"))
        return _built(spec)


def meta_layer(spec: LayerSpec) -> nn.Module:
    """The layer without numbers: shapes and types only."""
    with torch.device("meta"):
        return _built(spec).to("meta")


def _built(spec: LayerSpec) -> nn.Module:
    module = spec.build()
    return module.requires_grad_(requires_grad=False) if spec.frozen else module


def run_layer(module: nn.Module, entering: Stream, *, recompute: bool) -> Stream:
    """The layer's output; with `recompute` only its input is kept, and the backward runs it again.

    Training and measuring both go through here, so that what is priced is what is run.
    """
    # The reentrant form would silently leave a stage fed with integers without gradients.
    output: Tensor | Stream = (
        checkpoint(module, *entering, use_reentrant=False) if recompute else module(*entering)
    )
    return as_stream(output)


@contextmanager
def keyed_randomness(
    seed: int, microbatch: int, layer: str, device: torch.device
) -> Iterator[None]:
    """Random numbers of this device that depend on the arguments alone.

    So dropout has the same masks whatever the schedule, the stages and the recomputation are, and
    after a run is resumed. The random state of the caller is left as it was.
    """
    generator = (
        torch.default_generator
        if device.type in ("cpu", "meta")
        else torch.cuda.default_generators[device.index]
    )
    state = generator.get_state()
    generator.manual_seed(_key(f"{seed}:microbatch {microbatch}:{layer}"))
    try:
        yield
    finally:
        generator.set_state(state)


def _key(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=False)
