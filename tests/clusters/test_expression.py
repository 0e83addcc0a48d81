"""Clusters in a few characters."""

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diaulos.clusters.catalogue import device_names, known_device
from diaulos.clusters.expression import find_cluster, parse_cluster
from diaulos.clusters.files import write_cluster
from diaulos.errors import InputError

PARTS = st.sampled_from(device_names()).flatmap(
    lambda name: st.tuples(
        st.integers(1, 1000), st.integers(1, known_device(name).node.devices), st.just(name)
    )
)


def test_nodes_devices_and_device() -> None:
    """4x8xH100-80GB is 4 nodes of 8, with the links of the node that it usually stands in."""
    cluster = parse_cluster("4x8xH100-80GB")
    (group,) = cluster.groups
    known = known_device("H100-80GB")
    assert (group.nodes, group.devices_per_node, cluster.devices) == (4, 8, 32)
    assert (group.device, group.link, cluster.link) == (
        known.device,
        known.node.inside,
        known.node.network,
    )
    assert group.memory_bytes == known.device.memory_bytes
    assert cluster.name == "4x8xH100-80GB"


def test_one_node_is_flat() -> None:
    """8xA100-80GB is one node, so that it does not matter where a stage stands."""
    assert parse_cluster("8xA100-80GB").is_flat


@given(st.lists(PARTS, min_size=1, max_size=3, unique_by=lambda part: part))
def test_parts_are_groups_in_order(parts: list[tuple[int, int, str]]) -> None:
    """Every part is a group; the slowest of their networks joins the nodes."""
    text = "+".join(f"{nodes}x{devices}x{name}" for nodes, devices, name in parts)
    cluster = parse_cluster(text)
    assert [(g.nodes, g.devices_per_node, g.device.name) for g in cluster.groups if g.device] == (
        parts
    )
    assert cluster.link.bandwidth_bytes_per_second == min(
        known_device(name).node.network.bandwidth_bytes_per_second for _, _, name in parts
    )


@given(st.text(max_size=30))
def test_any_text_is_a_cluster_or_one_clear_error(text: str) -> None:
    """No text makes another error than an `InputError`."""
    with suppress(InputError):
        assert parse_cluster(text).devices >= 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0x8xH100-80GB", "'0x8xH100-80GB' has 0 nodes"),
        ("4x0xH100-80GB", "'4x0xH100-80GB' has 0 devices"),
        ("H100-80GB", "'H100-80GB' is not a cluster"),
        ("4x8xH100", "there is no device 'H100'; did you mean H100-80GB"),
        ("16xA100-80GB", "DGX-A100, which has 8"),
        ("4x8xH100-80GB+", "is not a cluster"),
        ("2x8xL40S+2x8xL40S", "two groups have the name '2x8xL40S'"),
    ],
)
def test_errors_say_what_would_work(text: str, message: str) -> None:
    """What is wrong is named in one sentence."""
    with pytest.raises(InputError, match=re.escape(message)):
        parse_cluster(text)


def test_files_are_found_too(tmp_path: Path) -> None:
    """What an expression says comes back from a file, devices and their sources included."""
    cluster = parse_cluster("2x8xA100-80GB+4x8xH100-80GB")
    path = tmp_path / "mix.toml"
    write_cluster(path, cluster)
    assert find_cluster(str(path)) == cluster
    assert find_cluster("8xL40S") == parse_cluster("8xL40S")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A name that ends as a file's does is one."""
    with pytest.raises(InputError, match=r"mine\.toml: cannot be read"):
        find_cluster(str(tmp_path / "mine.toml"))
