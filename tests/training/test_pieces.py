"""What passes between the shards of two stages."""

from hypothesis import given
from hypothesis import strategies as st

from diaulos.training.pieces import pieces, run_of

SHARDS = st.integers(1, 6)


@given(elements=st.integers(0, 60), senders=SHARDS, receivers=SHARDS)
def test_each_element_passes_once(elements, senders, receivers):
    """Both ends see the same pieces, and together they are every element once."""
    sent = [
        (shard, piece.peer_shard, piece.begin, piece.end)
        for shard in range(senders)
        for piece in pieces(elements, shards=senders, shard=shard, peer_shards=receivers)
    ]
    received = [
        (piece.peer_shard, shard, piece.begin, piece.end)
        for shard in range(receivers)
        for piece in pieces(elements, shards=receivers, shard=shard, peer_shards=senders)
    ]

    assert sorted(sent) == sorted(received)
    passed = [element for *_, begin, end in sent for element in range(begin, end)]
    assert sorted(passed) == list(range(elements))


@given(elements=st.integers(0, 60), shards=SHARDS)
def test_runs_share_the_elements(elements, shards):
    """The runs follow one another, none longer than the first."""
    runs = [run_of(elements, shards, shard) for shard in range(shards)]

    assert [element for run in runs for element in run] == list(range(elements))
    assert max(map(len, runs)) == len(runs[0])


def test_equal_degrees_pass_straight():
    """Shard i gives its run to shard i alone."""
    for shard in range(3):
        (piece,) = pieces(12, shards=3, shard=shard, peer_shards=3)
        assert (piece.peer_shard, piece.begin, piece.end) == (shard, 4 * shard, 4 * shard + 4)
