"""The measured link; no test asserts how fast it is."""

import math

import pytest

from diaulos.errors import InputError
from diaulos.pricing.links import local_cluster, measure_link


def test_a_link_has_a_latency_and_a_bandwidth() -> None:
    """Both come out finite and above 0, however noisy the machine."""
    link = measure_link(message_bytes=2**16, repetitions=3)
    assert 0 < link.latency_seconds < math.inf
    assert 0 < link.bandwidth_bytes_per_second < math.inf


def test_a_local_cluster_shares_the_machine() -> None:
    """As many devices as processes; memory as given, or an equal share of the machine's."""
    given = local_cluster(processes=2, memory_bytes=5.0)
    assert (given.devices, given.largest_memory_bytes) == (2, 5.0)
    assert 0 < local_cluster(processes=2).largest_memory_bytes < math.inf


def test_wrong_settings_are_refused() -> None:
    """No message, no repetition and no process are refused before any process starts."""
    for wrong in ({"message_bytes": 4}, {"message_bytes": 64, "repetitions": 0}):
        with pytest.raises(InputError):
            measure_link(**wrong)
    with pytest.raises(InputError):
        local_cluster(processes=0)
