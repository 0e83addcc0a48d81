"""Of all labels those stay that none beats."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from diaulos.planning.search.covering.labels import Labels, Rows, unbeaten

Label = tuple[int, int, int, int]
"""Segment, sum of degrees, packed devices and stages, latency."""


def rows_of(labels: list[Label]) -> tuple[Rows, NDArray[np.int64]]:
    segment, total, packed, latency = np.array(labels, np.int64).reshape(-1, 4).T
    nothing = np.zeros(len(labels), np.int64)
    rows = Rows.of(
        downset=segment,
        total=total,
        packed=packed,
        latency=latency,
        parent=np.arange(len(labels)),
        pair=nothing,
        degree=nothing,
    )
    return rows, segment


def labels_of(rows: Rows) -> list[Label]:
    columns = rows.downset, rows.total, rows.packed, rows.latency
    return list(zip(*(column.tolist() for column in columns), strict=True))


def some_labels(*, most_latency: int) -> st.SearchStrategy[list[Label]]:
    small = st.integers(1, 6)
    label = st.tuples(st.integers(1, 3), small, small, st.integers(0, most_latency))
    return st.lists(label, min_size=1, max_size=40)


@settings(max_examples=200)
@given(st.one_of(some_labels(most_latency=0), some_labels(most_latency=4)))
def test_none_beats_what_stays(labels: list[Label]) -> None:
    """Each label stays once if no other one in its segment is as good in every respect."""

    def beats(one: Label, other: Label) -> bool:
        as_good = all(mine <= its for mine, its in zip(one[1:], other[1:], strict=True))
        return one[0] == other[0] and one != other and as_good

    wanted = {label for label in labels if not any(beats(other, label) for other in labels)}
    rows, segment = rows_of(labels)
    found = unbeaten(rows, segment, keep_ties=False)
    assert sorted(labels_of(found)) == sorted(wanted)
    assert found.downset.tolist() == sorted(found.downset.tolist())
    assert [labels[parent] for parent in found.parent] == labels_of(found)


@settings(max_examples=200)
@given(some_labels(most_latency=0))
def test_ties_stay_where_they_count(labels: list[Label]) -> None:
    """Then a label goes only where one with no larger sum takes fewer devices or stages."""

    def beats(one: Label, other: Label) -> bool:
        return one[0] == other[0] and one[1] <= other[1] and one[2] < other[2]

    wanted = {label for label in labels if not any(beats(other, label) for other in labels)}
    found = unbeaten(*rows_of(labels), keep_ties=True)
    assert sorted(labels_of(found)) == sorted(wanted)


def test_segments_apart_from_downsets() -> None:
    """Labels of one downset in different segments do not beat each other."""
    rows, _ = rows_of([(1, 5, 5, 0), (1, 4, 4, 0), (2, 3, 3, 0)])
    found = unbeaten(rows, np.array([10, 11, 20]), keep_ties=False)
    assert labels_of(found) == [(1, 5, 5, 0), (1, 4, 4, 0), (2, 3, 3, 0)]


@pytest.mark.parametrize("many", [1, 40, 700])
def test_labels_are_kept_by_downset(many: int) -> None:
    """What was added is found by downset, however much it is; the empty one has the first."""
    labels = Labels(np.array([0, 8]))
    assert labels.first == len(labels) == 2
    assert labels.of(0).tolist() == [0, 1]
    labels.add(rows_of([(1, 1, 7 + i, 0) for i in range(many)])[0])
    labels.add(rows_of([(2, 2, 5, 0), (2, 3, 4, 0), (4, 9, 9, 1)])[0])
    assert labels.rows.packed[labels.of(0)].tolist() == [0, 8]
    assert labels.rows.packed[labels.of(1)].tolist() == list(range(7, 7 + many))
    assert labels.rows.total[labels.of(2)].tolist() == [2, 3]
    assert labels.of(3).tolist() == []
    assert labels.rows.latency[labels.of(4)].tolist() == [1]
    place, label = labels.following(np.array([2, 3, 4, 2]))
    assert place.tolist() == [0, 0, 2, 3, 3]
    assert labels.rows.packed[label].tolist() == [5, 4, 9, 5, 4]
    totals = labels.totals(5, known=4)
    assert totals.least.tolist()[:3] == [0, 1, 2]
    assert totals.most.tolist()[:3] == [0, 1, 3]
    assert totals.most[3] < 0
    assert totals.least[4] == 0
    assert totals.most[4] > 10**9
    total, packed = labels.least(5)
    assert total[[0, 1, 2, 4]].tolist() == [0, 1, 2, 9]
    assert packed[[0, 1, 2, 4]].tolist() == [0, 7, 4, 9]
    assert total[3] == packed[3] > 10**9
