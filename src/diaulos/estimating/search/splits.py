"""How many blocks each stage holds, where the ends of a model take time as well."""

from collections.abc import Sequence

from diaulos.estimating.stages import even_shares

_HALVINGS = 40
_CLOSE = 1e-6
_LEAST = 1e-30


def balanced_shares(
    blocks: Sequence[float], *, before: float, behind: float, stages: int
) -> tuple[int, ...]:
    """The shares of consecutive blocks with which the slowest stage is fastest.

    `blocks` are the seconds of each, `before` and `behind` those of the layers before the first and
    behind the last, which are of the first and of the last stage. The even shares are taken where
    none are faster; every stage has a block.
    """
    even = even_shares(len(blocks), stages)
    low, high = max(blocks), _slowest(blocks, even, before, behind)
    best = even
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        shares = _within(blocks, middle, before, behind, stages)
        if shares is None:
            low = middle
        else:
            best, high = shares, _slowest(blocks, shares, before, behind)
        if high <= low * (1 + _CLOSE):
            break
    gain = _slowest(blocks, even, before, behind) / max(high, _LEAST)
    return _evened(blocks, best, before, behind) if gain > 1 + _CLOSE else even


def _evened(
    blocks: Sequence[float], shares: Sequence[int], before: float, behind: float
) -> tuple[int, ...]:
    """Shares with stages as alike as can be, of which none is slower than the slowest was."""
    limit = _slowest(blocks, shares, before, behind) * (1 + _CLOSE)
    found: list[int] = []
    left, stages = len(blocks), len(shares)
    for stage in reversed(range(1, stages)):
        seconds = behind if stage == stages - 1 else 0.0
        wanted = (before + sum(blocks[:left]) + seconds) / (stage + 1)
        share = 0
        while left > stage:
            seconds += blocks[left - 1]
            is_enough = seconds - blocks[left - 1] / 2 > wanted and share > 0
            rest_fits = _within(blocks[:left], limit, before, 0.0, stage) is not None
            if seconds > limit or (is_enough and rest_fits):
                break
            left, share = left - 1, share + 1
        found.append(share)
    return (left, *reversed(found))


def _slowest(blocks: Sequence[float], shares: Sequence[int], before: float, behind: float) -> float:
    """Seconds of the slowest stage."""
    seconds, first = [], 0
    for share in shares:
        seconds.append(sum(blocks[first : first + share]))
        first += share
    seconds[0] += before
    seconds[-1] += behind
    return max(seconds)


def _within(
    blocks: Sequence[float], limit: float, before: float, behind: float, stages: int
) -> tuple[int, ...] | None:
    """Shares of which no stage takes longer than a limit; None where there are none.

    From the output end on, each stage takes as many blocks as it can, and leaves one to each other.
    """
    shares: list[int] = []
    left = len(blocks)
    for stage in reversed(range(stages)):
        seconds = (behind if stage == stages - 1 else 0.0) + (before if stage == 0 else 0.0)
        share = 0
        while left > stage and (share == 0 or seconds + blocks[left - 1] <= limit):
            left -= 1
            seconds += blocks[left]
            share += 1
        if seconds > limit:
            return None
        shares.append(share)
    return None if left else tuple(reversed(shares))
