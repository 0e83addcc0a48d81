"""The device: what a data sheet says of an accelerator, and what share of that programs reach."""

from dataclasses import dataclass, fields
from enum import Enum

from diaulos.clusters.amounts import check_above_zero, check_amount
from diaulos.errors import InputError


class DType(Enum):
    """In which numbers a device computes; the value is how files and flags write it."""

    FP32 = "fp32"
    TF32 = "tf32"
    """Stored as fp32, multiplied with 10 bits of mantissa."""
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"

    @property
    def bytes(self) -> int:
        """Of one element in memory."""
        return {DType.FP32: 4, DType.TF32: 4, DType.FP8: 1}.get(self, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRates:
    """Dense floating point operations per second by dtype; None where the device has it not."""

    fp32: float | None = None
    tf32: float | None = None
    bf16: float | None = None
    fp16: float | None = None
    fp8: float | None = None

    def __post_init__(self) -> None:
        stated = [(each.name, getattr(self, each.name)) for each in fields(self)]
        for name, rate in stated:
            if rate is not None:
                check_above_zero(f"the peak rate of {name}", rate)
        if all(rate is None for _, rate in stated):
            raise InputError("no peak rate is given", "a device computes in one dtype at least")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A part of a product that one matrix unit computes at a time."""

    rows: int
    columns: int
    efficiency: float = 1.0
    """Its rate over that of the device's best tile; small ones load more for each operation."""

    def __post_init__(self) -> None:
        for name in ("rows", "columns"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} of a tile is {getattr(self, name)}", "it must be above 0")
        check_above_zero("the efficiency of a tile", self.efficiency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What programs reach of the data sheet, each figure with one meaning."""

    matrix_product: float
    """Share of the peak rate that a large matrix product reaches."""
    inner_ramp: float
    """What starting and ending a tile takes, in steps along the inner size."""
    memory: float
    """Share of the memory bandwidth that work of many megabytes reaches."""
    attention_forward: float
    """Share of the peak rate that fused attention with heads of 128 reaches."""
    attention_backward: float
    """The same of its backward, which computes 2.5 times as much."""
    attention_block: float
    """Keys of one block of fused attention: what is masked is left out by whole blocks."""
    optimizer: float
    """Share of the memory bandwidth that the optimizer's step reaches."""

    sustained: float = 1.0
    """What remains of the rate of matrix products over hours of training, at the power and heat of
    a full node, of what short measurements show."""

    def __post_init__(self) -> None:
        for each in fields(self):
            check_above_zero(each.name, getattr(self, each.name))
        for name in (
            "matrix_product",
            "memory",
            "attention_forward",
            "attention_backward",
            "sustained",
        ):
            value = getattr(self, name)
            if value > 1:
                raise InputError(f"{name} is {value!r}", "a share is at most 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What large tensors cost a CPU: the system gives and takes their memory page by page."""

    least_bytes: float
    """Of a tensor whose memory the allocator does not keep for the next one."""
    bytes_per_second: float
    """At which its pages come."""

    def __post_init__(self) -> None:
        check_amount("least_bytes", self.least_bytes)
        check_above_zero("bytes_per_second", self.bytes_per_second)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a figure comes from."""

    figure: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator, as one process uses it."""

    name: str
    peak: PeakRates
    memory_bytes: float
    """What a process can use, which is a little less than what is soldered on."""
    memory_bandwidth_bytes_per_second: float
    units: int
    """That work at one tile of a matrix product each: streaming multiprocessors, say."""
    tiles: tuple[Tile, ...]
    """Of which the library takes the best for a product."""
    launch_seconds: float
    """What every operation takes beside its work: to start, and until the last part is done."""
    efficiency: Efficiency
    allocation: Allocation | None = None
    """None where the allocator keeps all memory, as those of accelerators do."""
    sources: tuple[Source, ...] = ()

    def __post_init__(self) -> None:
        if not self.name:
            raise InputError("a device has an empty name", "messages name devices")
        check_above_zero("memory_bytes", self.memory_bytes)
        check_above_zero(
            "memory_bandwidth_bytes_per_second", self.memory_bandwidth_bytes_per_second
        )
        if self.units < 1:
            raise InputError(f"units is {self.units}", "it must be at least 1")
        if not self.tiles:
            raise InputError(f"the device {self.name!r} has no tiles", "it needs at least one")
        check_amount("launch_seconds", self.launch_seconds)

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """In which it computes."""
        return tuple(dtype for dtype in DType if getattr(self.peak, dtype.value) is not None)

    def peak_flops_per_second(self, dtype: DType) -> float:
        """Of dense products, from the data sheet; an `InputError` where it has not the dtype."""
        rate: float | None = getattr(self.peak, dtype.value)
        if rate is None:
            known = ", ".join(each.value for each in self.dtypes)
            raise InputError(
                f"{self.name} does not compute in {dtype.value}", f"its dtypes are {known}"
            )
        return rate
