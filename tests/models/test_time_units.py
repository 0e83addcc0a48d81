"""Times can be brought to seconds, and units that cannot belong together are noticed."""

from dataclasses import replace

import pytest

from diaulos.errors import InputError
from diaulos.models.graph import LayerGraph
from diaulos.models.time_units import scale_times, time_unit_warning
from tests.models.profiles import PROFILES, needs_profiles, profile
from tests.planning.problems import chain, option
from tests.planning.reference import needs_reference, piper_file

BANDWIDTH = 25 * 2.0**30


def graph() -> LayerGraph:
    full = replace(
        option(seconds=3.0, activations=6.0),
        forward_seconds=1.0,
        weight_backward_seconds=0.7,
        update_seconds=0.1,
    )
    return chain([full, option("other", seconds=5.0)], [option(seconds=2.0)])


def test_all_times_are_scaled_and_nothing_else() -> None:
    """Every time of every option is multiplied, and the provenance says so."""
    scaled = scale_times(graph(), 1e-3)
    first = scaled.layers[0].options[0]
    assert (first.seconds, first.update_seconds) == (3.0 * 1e-3, 0.1 * 1e-3)
    assert (first.forward_seconds, first.weight_backward_seconds) == (1.0 * 1e-3, 0.7 * 1e-3)
    assert scaled.layers[0].options[1].seconds == 5.0 * 1e-3
    assert scaled.layers[1].options[0].forward_seconds is None
    assert scaled.provenance == {"times_multiplied_by": "0.001"}
    assert replace(scale_times(scaled, 1e3), provenance={}) == graph()


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf"), float("nan")])
def test_a_factor_is_a_number_above_0(factor: float) -> None:
    """Others are refused."""
    with pytest.raises(InputError, match=r"the factor of all times is .* above 0"):
        scale_times(graph(), factor)


def test_a_warning_says_what_does_not_fit() -> None:
    """Both figures and their ratio stand in it, whichever is too large."""
    assert time_unit_warning(graph(), 1.0) is None
    assert time_unit_warning(graph(), 1e3) == (
        "all layers compute for 5 s a microbatch, and a link could carry all that they keep of it "
        "in 6 ms, 833 times less: are the times milliseconds or microseconds?"
    )
    assert time_unit_warning(scale_times(graph(), 1e-3), 1e-2) == (
        "all layers compute for 5 ms a microbatch, and a link could carry all that they keep of it "
        "in 600 s, 1.2e+05 times more: are the times seconds already?"
    )


def test_nothing_is_said_where_nothing_can_be_told() -> None:
    """A graph without times, or without anything kept, fits every bandwidth."""
    assert time_unit_warning(chain([option(seconds=0.0, activations=1.0)]), 1.0) is None
    assert time_unit_warning(chain([option(seconds=1.0)]), 1.0) is None


@needs_reference
@pytest.mark.parametrize(
    ("name", "warns"), [("resnet.json", True), ("gnmt.json", True), ("bert32a100.json", False)]
)
def test_piper_s_files(name: str, *, warns: bool) -> None:
    """Two of Piper's files state milliseconds and bytes per second, as their times show."""
    graph = piper_file(name).graph
    assert (time_unit_warning(graph, BANDWIDTH) is not None) == warns
    if warns:
        assert time_unit_warning(scale_times(graph, 1e-3), BANDWIDTH) is None


@needs_profiles
@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("bandwidth", [1e8, 1e9, 3e11])
def test_right_units_are_not_doubted(name: str, bandwidth: float) -> None:
    """From slow Ethernet to NVLink, PipeDream's profiles in seconds raise no warning."""
    assert time_unit_warning(profile(name), bandwidth) is None
