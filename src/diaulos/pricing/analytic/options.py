"""The ways to run a layer: how it is split, what is recomputed, in which numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from diaulos.clusters.device import DType
from diaulos.errors import InputError
from diaulos.pricing.devices.attention import AttentionKind

_MOMENTS_BYTES = 8
"""Of Adam's two in fp32; what the optimizer has beside is the weights in fp32."""


class Recompute(Enum):
    """What the backward computes again instead of keeping it; the value is how flags write it."""

    NONE = "none"
    SELECTIVE = "selective"
    """The inside of attention, between the projections (Korthikanti et al., MLSys 2023)."""
    OPERATIONS = "operations"
    """All but attention and every second product, as torch's selective checkpointing is used."""
    FULL = "full"
    """All of a block; its input is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """In which numbers products are computed, and what a parameter takes.

    With mixed precision the weights have a copy in fp32, which is of the optimizer.
    """

    name: str
    products: DType
    element_bytes: int
    """Of an activation."""
    parameter_bytes: int
    """Of the weights that layers compute with."""
    gradient_bytes: int
    """Of a gradient as it is summed over microbatches and replicas."""
    optimizer_bytes: int
    """Of the two moments of Adam, and the weights in fp32 where layers have others."""

    @property
    def activations(self) -> DType:
        """The dtype of what is not a product with weights."""
        return DType.BF16 if self.products is DType.FP8 else self.products

    @property
    def update_bytes(self) -> int:
        """Moved for a parameter by an update.

        Adam reads its state and the gradient, and writes its state and the weights; beside, the
        gradient is read for the norm, read and written to scale it, and set to 0.
        """
        weights = self.parameter_bytes * (1 if self.optimizer_bytes > _MOMENTS_BYTES else 2)
        return 5 * self.gradient_bytes + 2 * self.optimizer_bytes + weights

    @property
    def state_bytes(self) -> int:
        """Of all that a parameter takes."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def sharded_bytes(self) -> tuple[int, int]:
        """Of the parameter and of its optimizer where parameters are spread over replicas.

        The weights in fp32 are the parameters then, and those that layers compute with are made of
        them.
        """
        master = self.optimizer_bytes - _MOMENTS_BYTES
        return max(self.parameter_bytes, master), _MOMENTS_BYTES


def _mixed(dtype: DType) -> Precision:
    """Weights of two bytes, gradients summed in fp32, and 12 bytes of the optimizer: 18 in all."""
    return Precision(
        name=dtype.value,
        products=dtype,
        element_bytes=2,
        parameter_bytes=2,
        gradient_bytes=4,
        optimizer_bytes=12,
    )


def _full(dtype: DType) -> Precision:
    return Precision(
        name=dtype.value,
        products=dtype,
        element_bytes=4,
        parameter_bytes=4,
        gradient_bytes=4,
        optimizer_bytes=8,
    )


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "bf16": _mixed(DType.BF16),
        "fp16": _mixed(DType.FP16),
        "fp8": _mixed(DType.FP8),
        "fp32": _full(DType.FP32),
        "tf32": _full(DType.TF32),
    }
)
"""By the names that flags and files use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What the training framework does beside the arithmetic."""

    fused: bool = True
    """Whether norms, activation functions and sums run as one kernel each."""
    hides_tensor_parallel: bool = True
    """Whether exchanges of a tensor-parallel group run beside the products of the backward, as
    Megatron-LM's do since the end of 2021."""
    hides_data_parallel: bool = True
    """Whether gradients are summed over replicas beside the backward of the last microbatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOptions:
    """How a layer is run."""

    tensor_parallel: int = 1
    sequence_parallel: bool = False
    """Whether a tensor-parallel group shares what is not split by positions."""
    context_parallel: int = 1
    expert_parallel: int = 1
    recompute: Recompute = Recompute.NONE
    attention: AttentionKind = AttentionKind.FLASH
    precision: Precision = PRECISIONS["bf16"]
    runtime: Runtime = Runtime()

    def __post_init__(self) -> None:
        for name in ("tensor_parallel", "context_parallel", "expert_parallel"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}", "it must be at least 1")

    @property
    def whole_share(self) -> float:
        """The share that a device has of what is not split."""
        return 1 / self.tensor_parallel if self.sequence_parallel else 1.0
