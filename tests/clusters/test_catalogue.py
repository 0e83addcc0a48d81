"""The devices and nodes of the package."""

import re
from importlib.resources import files

import pytest

from diaulos.clusters.catalogue import device_names, known_device
from diaulos.clusters.device import DType
from diaulos.clusters.device_files import FIGURES
from diaulos.errors import InputError

NAMES = device_names()


@pytest.mark.parametrize("name", NAMES)
def test_every_device_states_figures_and_sources(name: str) -> None:
    """Each data file parses, is named as its device, and says where every figure comes from."""
    known = known_device(name)
    assert known.device.name == name
    assert {source.figure for source in known.device.sources} == set(FIGURES)
    assert {source.figure for source in known.node.sources} == {"inside", "network"}
    assert all(len(source.text) > 10 for source in known.device.sources + known.node.sources)


def test_every_node_is_some_devices() -> None:
    """No data file of a node is left that no device stands in."""
    folder = files("diaulos.clusters") / "data" / "nodes"
    stated = {each.name for each in folder.iterdir()}
    assert stated == {f"{known_device(name).node.name}.toml" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_figures_are_of_this_decade(name: str) -> None:
    """Rates, sizes and links lie where accelerators of 2017 to 2025 do: units are not mixed up."""
    known = known_device(name)
    device, node = known.device, known.node
    for dtype in device.dtypes:
        assert 10e12 <= device.peak_flops_per_second(dtype) <= 6e15
    assert 15e9 <= device.memory_bytes <= 300e9
    assert 0.8e12 <= device.memory_bandwidth_bytes_per_second <= 9e12
    assert 8e9 <= node.inside.bandwidth_bytes_per_second <= 900e9
    assert 1e9 <= node.network.bandwidth_bytes_per_second <= 50e9
    assert 1e-6 <= node.inside.latency_seconds <= node.network.latency_seconds <= 30e-6


def test_narrower_dtypes_are_no_slower() -> None:
    """fp32 <= tf32 <= bf16 = fp16 <= fp8, where a device has them."""
    order = [DType.FP32, DType.TF32, DType.BF16, DType.FP8]
    for name in NAMES:
        device = known_device(name).device
        rates = [device.peak_flops_per_second(each) for each in order if each in device.dtypes]
        assert rates == sorted(rates)


def test_published_figures() -> None:
    """Peak rates, memory and links are those that the makers publish."""
    a100, h100 = known_device("A100-80GB"), known_device("H100-80GB")
    assert a100.device.peak.bf16 == 312e12
    assert a100.device.memory_bandwidth_bytes_per_second == 2039e9
    assert a100.device.memory_bytes == 80 * 2**30
    assert a100.node.devices == 8
    assert h100.device.peak.fp8 == pytest.approx(2 * 989.4e12, rel=1e-3)
    assert h100.node.inside.bandwidth_bytes_per_second == pytest.approx(370e9, rel=0.01)
    assert a100.node.inside.bandwidth_bytes_per_second == pytest.approx(232.5e9, rel=0.01)
    assert known_device("V100-32GB").device.peak.bf16 is None


@pytest.mark.parametrize("name", ["tpuv5p", "TPU-V5P", "tpu v5p"])
def test_names_are_found_whatever_their_case_and_hyphens(name: str) -> None:
    """Letters and digits alone tell devices apart."""
    assert known_device(name).device.name == "TPU-v5p"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("H100", "H100-80GB or H100-80GB-PCIe"), ("A10080", "A100-80GB"), ("B210", "B200")],
)
def test_unknown_devices_bring_those_alike(name: str, meant: str) -> None:
    """What was perhaps meant is named."""
    with pytest.raises(InputError, match=re.escape(f"there is no device {name!r}")) as caught:
        known_device(name)
    assert meant in str(caught.value)


def test_a_dtype_that_a_device_lacks_is_an_error() -> None:
    """The message names those that it has."""
    with pytest.raises(InputError, match=r"V100-16GB does not compute in bf16; .* fp32, fp16"):
        known_device("V100-16GB").device.peak_flops_per_second(DType.BF16)
