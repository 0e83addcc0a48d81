"""What ranks are called."""

from diaulos.reporting.labels import SCHEDULE_TITLES, rank_labels, ranks_by_stage, schedule_title
from diaulos.schedules.generators import GENERATORS
from tests.reporting.runs import simulated


def test_every_schedule_has_a_title() -> None:
    """Titles are those of the generators; other names stay as they are."""
    assert set(SCHEDULE_TITLES) == {*GENERATORS, "auto"}
    assert schedule_title("2bw").startswith("2BW")
    assert schedule_title("2bw measured") == "2bw measured"


def test_ranks_are_found_from_events() -> None:
    """A timeline alone tells which ranks hold which stage."""
    assert ranks_by_stage(simulated("1f1b", 2, 2, width=2)) == ((0, 1), (2, 3))
    assert rank_labels(simulated("1f1b", 2, 2)) == {0: "stage 0", 1: "stage 1"}
    assert rank_labels(simulated("1f1b", 1, 2, width=2))[1] == "stage 0, replica 1"
