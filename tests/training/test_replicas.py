"""Which replica updates which weights."""

from hypothesis import given
from hypothesis import strategies as st

from diaulos.training.replicas import owners


@given(
    elements=st.lists(st.integers(1, 50), max_size=12),
    replicas=st.integers(1, 5),
    tied=st.integers(0, 3),
)
def test_weights_are_shared_out(elements, replicas, tied):
    """Each weight has one owner, tied ones the first, and no replica has much more than its share.

    The largest first, to whom has least: at most one weight above the mean.
    """
    together = list(range(min(tied, len(elements))))
    owner = owners(elements, together, replicas)
    load = [
        sum(size for size, who in zip(elements, owner, strict=True) if who == replica)
        for replica in range(replicas)
    ]

    assert all(owner[place] == 0 for place in together)
    assert sum(load) == sum(elements)
    others = [size for place, size in enumerate(elements) if place not in together]
    largest = max(others, default=0)
    assert max(load[1:], default=0) <= sum(elements) / replicas + largest


def test_one_replica_owns_all():
    """There is nothing to share."""
    assert owners([3, 1, 2], [], 1) == (0, 0, 0)
