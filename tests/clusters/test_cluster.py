"""Clusters are read from TOML and written to it."""

from pathlib import Path

import pytest

from diaulos.clusters.cluster import Cluster
from diaulos.clusters.files import read_cluster, write_cluster
from diaulos.errors import InputError

TEXT = """
format = "diaulos.cluster/1"
devices = 8
memory = "80GB"
bandwidth = "25GiB/s"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "machines.toml"
    path.write_text(text)
    return path


def test_sizes_are_written_as_people_do(tmp_path: Path) -> None:
    """Memory and bandwidth have units; the name is the file's unless it is stated."""
    cluster = read_cluster(written(tmp_path, TEXT))
    assert cluster == Cluster.flat(
        devices=8,
        memory_bytes=80e9,
        bandwidth_bytes_per_second=25 * 2.0**30,
        name="machines",
    )


def test_a_cluster_is_read_back(tmp_path: Path) -> None:
    """Every figure comes back to the last bit, and any name."""
    cluster = Cluster.flat(
        devices=3,
        memory_bytes=0.1 + 0.2,
        bandwidth_bytes_per_second=1 / 3,
        latency_seconds=1e-6,
        name='my "old" \\ cluster',
    )
    write_cluster(tmp_path / "c.toml", cluster)
    assert read_cluster(tmp_path / "c.toml") == cluster


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cluster/1", "cluster/7", "$.format is 'diaulos.cluster/7'"),
        ("devices = 8", "devices = 0", "$.devices is 0"),
        ("devices = 8", "", "lacks the key 'devices'"),
        ('"80GB"', '"80 bananas"', "$.memory: '80 bananas' is not a size"),
        ('"25GiB/s"', '"none"', "$.bandwidth: 'none' is not a bandwidth"),
        ('"25GiB/s"', "0", "bandwidth_bytes_per_second is 0"),
        ("devices = 8", "devices = 8\ncolour = 1", "has the unknown key 'colour'"),
    ],
)
def test_errors_name_the_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    """What is wrong is told with the file and its path in it."""
    path = written(tmp_path, TEXT.replace(old, new))
    with pytest.raises(InputError) as caught:
        read_cluster(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"devices": 0}, "devices is 0"),
        ({"memory_bytes": -1.0}, "memory_bytes is -1.0"),
        ({"memory_bytes": float("nan")}, "memory_bytes is nan"),
        ({"bandwidth_bytes_per_second": 0.0}, "bandwidth_bytes_per_second is 0.0"),
        ({"latency_seconds": -1.0}, "latency_seconds is -1.0"),
    ],
)
def test_what_is_no_cluster(changes: dict[str, float], message: str) -> None:
    """Figures that no machine has are refused."""
    figures = {"devices": 1, "memory_bytes": 1.0, "bandwidth_bytes_per_second": 1.0}
    with pytest.raises(InputError) as caught:
        Cluster.flat(**{**figures, **changes})
    assert message in str(caught.value)
