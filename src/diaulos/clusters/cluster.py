"""The cluster: how many devices, how much memory each, how fast the link between them."""

import math
from dataclasses import dataclass
from pathlib import Path

from diaulos.documents import read_toml
from diaulos.errors import InputError
from diaulos.units import parse_bandwidth, parse_bytes

FORMAT = "diaulos.cluster/1"
_REQUIRED = ("format", "devices", "memory", "bandwidth")
_OPTIONAL = ("name", "latency_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal devices, any two joined by an equal link (Piper's flat model)."""

    devices: int
    memory_bytes: float
    """Of each device."""
    bandwidth_bytes_per_second: float
    """Of each link, one way."""
    latency_seconds: float = 0.0
    """Of one message; the simulator counts it, Piper's cost model does not."""
    name: str = "cluster"

    def __post_init__(self) -> None:
        if self.devices < 1:
            raise InputError(f"devices is {self.devices}", "a cluster has at least 1 device")
        if not (math.isfinite(self.memory_bytes) and self.memory_bytes >= 0):
            raise InputError(f"memory_bytes is {self.memory_bytes!r}", "it must be at least 0")
        if not (
            math.isfinite(self.bandwidth_bytes_per_second) and self.bandwidth_bytes_per_second > 0
        ):
            raise InputError(
                f"bandwidth_bytes_per_second is {self.bandwidth_bytes_per_second!r}",
                "it must be above 0",
            )
        if not (math.isfinite(self.latency_seconds) and self.latency_seconds >= 0):
            problem = f"latency_seconds is {self.latency_seconds!r}"
            raise InputError(problem, "it must be finite and at least 0")


def read_cluster(path: Path) -> Cluster:
    """A cluster from a TOML file."""
    document = read_toml(path)
    fields = document.fields(_REQUIRED, _OPTIONAL)
    if fields["format"].text() != FORMAT:
        raise fields["format"].error(f"is {fields['format'].raw!r}", f"it must be {FORMAT!r}")
    with document.context():
        return Cluster(
            devices=fields["devices"].integer(minimum=1),
            memory_bytes=fields["memory"].parsed(parse_bytes),
            bandwidth_bytes_per_second=fields["bandwidth"].parsed(parse_bandwidth),
            name=fields["name"].text() if "name" in fields else path.stem,
            **{key: fields[key].number() for key in ("latency_seconds",) if key in fields},
        )


def write_cluster(path: Path, cluster: Cluster) -> None:
    """Write a cluster as TOML; reading it back gives an equal one."""
    lines = [
        f'format = "{FORMAT}"',
        f"name = {_quote(cluster.name)}",
        f"devices = {cluster.devices}",
        f'memory = {cluster.memory_bytes!r}  # bytes; text such as "80GB" works too',
        f"bandwidth = {cluster.bandwidth_bytes_per_second!r}  # bytes per second",
        f"latency_seconds = {cluster.latency_seconds!r}",
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
