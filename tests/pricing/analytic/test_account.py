"""What parameters take: bytes by kind, spread or not, tied or not."""

import pytest

from diaulos.models.operations import Workload
from diaulos.pricing.analytic.account import Sharding, state_bytes
from diaulos.pricing.analytic.groups import Degrees
from tests.estimating.models import published
from tests.pricing.analytic.layers import block_of, gpt_block, options


def test_mixed_precision_takes_18_bytes() -> None:
    """Of each parameter: 2 + 4 + 12."""
    found = state_bytes(gpt_block(), options(), Degrees(), sharding=Sharding.NOTHING)
    assert found.total == 18 * gpt_block().parameter_count
    assert found.count == gpt_block().parameter_count


@pytest.mark.parametrize(
    ("level", "each"), [(0, 2 + 4 + 12), (1, 2 + 4 + 12 / 8), (2, 2 + (4 + 12) / 8), (3, 16 / 8)]
)
def test_levels_of_sharding(level: int, each: float) -> None:
    """Level by level more is spread over 8 replicas; at the last fp32 weights are all there are."""
    found = state_bytes(gpt_block(), options(), Degrees(data=8), sharding=Sharding(level))
    assert found.total == pytest.approx(each * gpt_block().parameter_count)


def test_a_second_version_has_weights_and_gradients() -> None:
    """Of 2BW: two bytes of weights and four of gradients more."""
    found = state_bytes(gpt_block(), options(), Degrees(), sharding=Sharding.NOTHING, versions=2)
    assert found.versions == 6 * gpt_block().parameter_count


def test_a_tied_head_is_held_twice_only_apart() -> None:
    """Where the embedding is on the same stage, its head holds nothing of its own."""
    head = published("gpt2")(Workload(microbatch_size=1, sequence_length=16)).layers[-2].operations
    apart, together = (
        state_bytes(head, options(), Degrees(), sharding=Sharding.NOTHING, holds_owner=holds).count
        for holds in (False, True)
    )
    assert apart == 768 * 50257
    assert together == 0


def test_experts_have_replicas_of_their_own() -> None:
    """With 8 replicas and e = 4, experts are spread over 2 only, and a quarter of them is here."""
    block = block_of("mixtral-8x7b")
    experts = sum(some.count for some in block.parameters if some.name == "experts")
    rest = block.parameter_count - experts
    found = state_bytes(
        block,
        options(expert_parallel=4),
        Degrees(data=8, expert=4),
        sharding=Sharding.OPTIMIZER,
    )
    assert found.count == pytest.approx(rest + experts / 4)
    assert found.optimizer == pytest.approx(12 * (rest / 8 + experts / 4 / 2))
