"""The bubble by its causes."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diaulos.schedules.analysis.bubbles import Bubble, bubble_by_cause
from diaulos.schedules.costs import Link, StageCosts
from diaulos.schedules.generators import generate
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.simulate import Simulator
from tests.schedules.shapes import line, schedules


def bubble(schedule: Schedule, costs: list[StageCosts], link: Link) -> tuple[Bubble, float]:
    """By cause, and all of it."""
    simulator = Simulator(schedule)
    timeline = simulator.timeline(costs, link)
    return bubble_by_cause(simulator, costs, link, timeline), timeline.bubble_fraction


def total(causes: Bubble) -> float:
    return causes.fill + causes.drain + causes.imbalance + causes.link


@given(schedule=schedules(3, 2), data=st.data())
@settings(max_examples=40)
def test_the_causes_sum_to_the_bubble(schedule: Schedule, data: st.DataObject) -> None:
    """Of any schedule, uneven stages and any link, none below 0."""
    seconds = st.integers(1, 9)
    costs = [
        StageCosts(
            forward_seconds=data.draw(seconds),
            backward_seconds=data.draw(seconds),
            update_seconds=data.draw(seconds),
            reduce_seconds=data.draw(seconds),
            output_bytes=data.draw(seconds),
        )
        for _ in range(schedule.shape.stages)
    ]
    link = Link(bandwidth_bytes_per_second=data.draw(seconds), latency_seconds=data.draw(seconds))
    causes, whole = bubble(schedule, costs, link)
    assert total(causes) == pytest.approx(whole)
    assert min(causes.fill, causes.drain, causes.imbalance, causes.link) >= 0


def test_even_stages_fill_and_drain() -> None:
    """1F1B of d = 4, m = 8: 3 of 11 parts are idle, nothing of it by imbalance or link."""
    costs = [StageCosts(forward_seconds=1, backward_seconds=2)] * 4
    causes, whole = bubble(generate("1f1b", line(4, 8), 2), costs, Link())
    assert whole == pytest.approx(3 / 11)
    assert causes.fill + causes.drain == pytest.approx(3 / 11)
    assert (causes.imbalance, causes.link) == (0.0, 0.0)


def test_a_slow_stage_makes_the_others_wait() -> None:
    """Under 2BW with many batches what is idle is almost all due to the slow stage."""
    fast = StageCosts(forward_seconds=1, backward_seconds=2)
    slow = replace(fast, backward_seconds=3)
    causes, whole = bubble(generate("2bw", line(3, 6), 20), [fast, slow, fast], Link())
    assert causes.imbalance == pytest.approx(2 / 3 * 1 / 4, abs=0.02)
    assert causes.imbalance > 0.8 * whole


def test_a_slow_link_is_told_apart() -> None:
    """What is idle more than without it."""
    costs = [StageCosts(forward_seconds=1, backward_seconds=2, output_bytes=1)] * 2
    free, before = bubble(generate("1f1b", line(2, 4), 1), costs, Link())
    loaded, after = bubble(
        generate("1f1b", line(2, 4), 1), costs, Link(bandwidth_bytes_per_second=1)
    )
    assert free.link == 0.0
    assert loaded.link > 0.1
    assert after > before
