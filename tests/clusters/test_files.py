"""Clusters are read from TOML and written to it."""

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.clusters.catalogue import known_device
from diaulos.clusters.cluster import Cluster, DeviceGroup, Link
from diaulos.clusters.device import Allocation, PeakRates, Source
from diaulos.clusters.expression import parse_cluster
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


GROUPS = """
format = "diaulos.cluster/1"
name = "mixed"

[link]
bandwidth = "25GB/s"
latency_seconds = 5e-6

[[groups]]
name = "a100"
nodes = 2
devices_per_node = 8
memory = "80GB"
[groups.link]
bandwidth = "300GB/s"
duplex = true

[[groups]]
name = "h100"
nodes = 1
devices_per_node = 4
memory = "94GB"
speed = 2.5
[groups.link]
bandwidth = "450GB/s"
"""


def test_groups_of_nodes_have_tables(tmp_path: Path) -> None:
    """Each group has its nodes, its memory, its speed and its link; one link joins all nodes."""
    assert read_cluster(written(tmp_path, GROUPS)) == Cluster(
        name="mixed",
        link=Link(bandwidth_bytes_per_second=25e9, latency_seconds=5e-6),
        groups=(
            DeviceGroup(
                name="a100",
                nodes=2,
                devices_per_node=8,
                memory_bytes=80e9,
                link=Link(bandwidth_bytes_per_second=300e9, duplex=True),
            ),
            DeviceGroup(
                name="h100",
                nodes=1,
                devices_per_node=4,
                memory_bytes=94e9,
                speed=2.5,
                link=Link(bandwidth_bytes_per_second=450e9),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("nodes = 1\n", "nodes = 0\n", "$.groups[1].nodes is 0"),
        ("speed = 2.5", "speed = 0", "$.groups[1].speed is 0"),
        ("duplex = true", "duplex = 1", "$.groups[0].link.duplex is a number (1)"),
        ('"450GB/s"', '"fast"', "$.groups[1].link.bandwidth: 'fast' is not a bandwidth"),
        ('"h100"', '"a100"', "two groups have the name 'a100'"),
        ("[link]", "devices = 3\n[link]", "has the unknown key 'devices'"),
        ('memory = "94GB"', "", "$.groups[1] lacks the key 'memory'"),
    ],
)
def test_errors_in_groups_name_the_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    """What is wrong in a table is told with its path."""
    with pytest.raises(InputError) as caught:
        read_cluster(written(tmp_path, GROUPS.replace(old, new)))
    assert message in str(caught.value)


_POSITIVE = st.floats(1e-9, 1e15)
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
_LINKS = st.builds(
    Link,
    bandwidth_bytes_per_second=_POSITIVE,
    latency_seconds=st.floats(0, 1),
    duplex=st.booleans(),
)
_GROUPS = st.builds(
    DeviceGroup,
    name=_NAMES,
    nodes=st.integers(1, 99),
    devices_per_node=st.integers(1, 99),
    memory_bytes=st.floats(0, 1e15),
    link=_LINKS,
    speed=_POSITIVE,
)


@given(
    st.one_of(
        st.builds(
            Cluster,
            groups=st.lists(_GROUPS, min_size=1, max_size=3, unique_by=lambda g: g.name).map(tuple),
            link=_LINKS,
            name=st.text(st.characters(exclude_categories=["Cs"])),
        ),
        st.builds(
            Cluster.flat,
            devices=st.integers(1, 99),
            memory_bytes=st.floats(0, 1e15),
            bandwidth_bytes_per_second=_POSITIVE,
            latency_seconds=st.floats(0, 1),
            name=_NAMES,
        ),
    )
)
def test_any_cluster_is_read_back(cluster: Cluster) -> None:
    """Flat or not, every figure and every name comes back."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.toml"
        write_cluster(path, cluster)
        assert read_cluster(path) == cluster


KNOWN = """
format = "diaulos.cluster/1"

[[groups]]
name = "old"
nodes = 2
devices_per_node = 4
device = "A100-40GB"

[[groups]]
name = "new"
nodes = 1
devices_per_node = 8
device = "H100-80GB"
memory = "70GiB"
link = { bandwidth = "100GB/s" }
"""


def test_known_devices_bring_memory_and_links(tmp_path: Path) -> None:
    """What a group or the file does not state is the device's; what is stated counts."""
    cluster = read_cluster(written(tmp_path, KNOWN))
    old, new = cluster.groups
    a100 = known_device("A100-40GB")
    assert (old.device, old.link) == (a100.device, a100.node.inside)
    assert old.memory_bytes == a100.device.memory_bytes
    assert (new.memory_bytes, new.link.bandwidth_bytes_per_second) == (70 * 2.0**30, 100e9)
    assert cluster.link == a100.node.network  # the slower one


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"A100-40GB"', '"A100-40"', "$.groups[0]: there is no device 'A100-40'; did you mean"),
        ('device = "A100-40GB"\n', "", "$.groups[0] lacks the key 'memory'"),
        (
            'device = "A100-40GB"',
            "memory = 1\nlink = { bandwidth = 1 }",
            "$.groups do not all have a known device",
        ),
        ("nodes = 2", "nodes = 0", "$.groups[0].nodes is 0"),
        ('"A100-40GB"', "{ name = 'mine' }", "$.groups[0] lacks the key 'memory'"),
        ('"A100-40GB"', "7", "$.groups[0].device is a number"),
        ('[[groups]]\nname = "old"', "[link]\nbandwidth = 1\n[[groups]]\nname = 'old'", ""),
    ],
)
def test_errors_of_devices_name_the_place(old: str, new: str, message: str, tmp_path: Path) -> None:
    """Unknown devices and missing links are told with their place; a link of one's own is fine."""
    path = written(tmp_path, KNOWN.replace(old, new, 1))
    if not message:
        assert read_cluster(path).link.bandwidth_bytes_per_second == 1
        return
    with pytest.raises(InputError) as caught:
        read_cluster(path)
    assert message in str(caught.value)


def own_device_file(tmp_path: Path) -> Path:
    """A cluster file with a device in a table of its own."""
    path = tmp_path / "own.toml"
    write_cluster(path, parse_cluster("2x4xRTX4090"))
    return path


def test_a_device_of_ones_own(tmp_path: Path) -> None:
    """A group's device may be a table; every key of it is checked by name."""
    path = own_device_file(tmp_path)
    text = path.read_text()
    for old, new, message in (
        ("units = 128", "", "$.groups[0].device lacks the key 'units'"),
        ("bf16 =", "bf17 =", "$.groups[0].device.peak has the unknown key 'bf17'"),
        ("inner_ramp =", "ramp =", "$.groups[0].device.efficiency lacks the key 'inner_ramp'"),
        ("matrix_product = 0.95", "matrix_product = 1.5", "a share is at most 1"),
        ("[[256, 128, 1.0]", "[[256, 128]", "$.groups[0].device.tiles[0] is no tile"),
        ("memory = ", "memory_ = ", "lacks the key 'memory'"),
    ):
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(InputError) as caught:
            read_cluster(path)
        assert message in str(caught.value)


def test_a_device_of_ones_own_needs_every_figure(tmp_path: Path) -> None:
    """A table without memory is an error that names the key."""
    text = own_device_file(tmp_path).read_text()
    head, device = text.split("[groups.device]")
    path = written(tmp_path, head + "[groups.device]" + device.replace("memory = ", "m = ", 1))
    with pytest.raises(InputError, match=r"\$.groups\[0\].device lacks the key 'memory'"):
        read_cluster(path)


@given(
    st.floats(1, 1e15),
    st.floats(1e-9, 1.0),
    st.floats(0, 1e12),
    st.text(min_size=1, max_size=20),
    st.booleans(),
)
def test_any_device_is_read_back(
    rate: float, share: float, least: float, text: str, allocates: bool
) -> None:
    """A measured device comes back to the last bit, its sources and what allocation costs too."""
    (group,) = parse_cluster("2x4xRTX4090").groups
    assert group.device is not None
    device = replace(
        group.device,
        name=text,
        peak=PeakRates(fp32=rate),
        efficiency=replace(group.device.efficiency, memory=share, inner_ramp=share),
        allocation=Allocation(least_bytes=least, bytes_per_second=rate) if allocates else None,
        sources=(Source(figure="peak", text=text),),
    )
    cluster = Cluster(groups=(replace(group, device=device),), link=group.link)
    with TemporaryDirectory() as folder:
        write_cluster(Path(folder) / "c.toml", cluster)
        assert read_cluster(Path(folder) / "c.toml") == cluster
