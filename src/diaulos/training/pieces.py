"""What passes between the shards of two stages: each byte of a tensor once.

Every shard of a stage has the whole tensor that leaves it. Shard i of t is responsible for the
i-th of t equal runs of its elements: it sends of its run what each shard of the next stage is
responsible for there, and these put their runs together among themselves, over the links inside a
stage, which are the faster ones.
"""

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements, counted through the flat tensor, that pass to or from one shard of a peer."""

    peer_shard: int
    begin: int
    end: int


def run_of(elements: int, shards: int, shard: int) -> range:
    """The elements that a shard is responsible for; the last ones may have fewer than others."""
    each = -(-elements // shards)
    return range(min(shard * each, elements), min((shard + 1) * each, elements))


@lru_cache(maxsize=256)
def pieces(elements: int, *, shards: int, shard: int, peer_shards: int) -> tuple[Piece, ...]:
    """What a shard, of so many, exchanges with each shard of its peer, the same in both directions.

    Without the pieces that are empty, unless the whole tensor is.
    """
    own = run_of(elements, shards, shard)
    exchanged = []
    for peer in range(peer_shards):
        other = run_of(elements, peer_shards, peer)
        begin, end = max(own.start, other.start), min(own.stop, other.stop)
        if begin < end or (elements == 0 and shard == peer == 0):
            exchanged.append(Piece(peer, begin, end))
    return tuple(exchanged)
