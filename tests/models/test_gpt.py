"""The project's own GPT."""

import math
import pickle
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from diaulos.errors import InputError
from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.layers import LayeredModel, build_layer

CONFIG = GPTConfig(layers=2, width=16, heads=4, sequence_length=8, vocabulary=32)


def built(model: LayeredModel) -> list[nn.Module]:
    return [build_layer(layer, 0) for layer in model.layers]


def run(modules: list[nn.Module], hidden: Tensor) -> Tensor:
    for module in modules:
        hidden = module(hidden)
    return hidden


def test_its_layers_are_embedding_blocks_head() -> None:
    """The names that plans and checkpoints use, in order."""
    names = [layer.name for layer in gpt(CONFIG).layers]
    assert names == ["embedding", "block_0", "block_1", "head"]


def test_it_has_as_many_parameters_as_its_formula() -> None:
    """12 w^2 + 13 w per block, and the embedding, positions, last norm and untied head."""
    width, vocabulary = CONFIG.width, CONFIG.vocabulary
    count = sum(p.numel() for module in built(gpt(CONFIG)) for p in module.parameters())
    blocks = CONFIG.layers * (12 * width**2 + 13 * width)
    ends = 2 * vocabulary * width + CONFIG.sequence_length * width + 2 * width
    assert count == blocks + ends


def test_no_position_sees_later_tokens() -> None:
    """Changing the last token changes the scores of the last position only."""
    model = gpt(CONFIG)
    modules = built(model)
    inputs, _ = model.example(2)
    changed = inputs.clone()
    changed[:, -1] = (changed[:, -1] + 1) % CONFIG.vocabulary
    before, after = run(modules, inputs), run(modules, changed)
    torch.testing.assert_close(before[:, :-1], after[:, :-1])
    assert not torch.allclose(before[:, -1], after[:, -1])


def test_attention_equals_its_definition() -> None:
    """A block's attention is softmax(q k / sqrt(d)) v over what came before, head by head."""
    block = built(gpt(CONFIG))[1]
    attention = block.attention
    hidden = torch.randn(2, 8, 16)
    size = CONFIG.width // CONFIG.heads
    query, key, value = (
        project(hidden).view(2, 8, CONFIG.heads, size).transpose(1, 2)
        for project in (attention.query, attention.key, attention.value)
    )
    scores = query @ key.transpose(2, 3) / math.sqrt(size)
    scores = scores.masked_fill(torch.ones(8, 8).triu(1).bool(), -math.inf)
    mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(2, 8, 16)
    torch.testing.assert_close(attention(hidden), attention.out(mixed))


def test_the_loss_is_a_sum_over_tokens() -> None:
    """The loss of a microbatch is the sum of those of its samples, near log(vocabulary) each."""
    model = gpt(CONFIG)
    modules = built(model)
    inputs, targets = model.example(3)
    outputs = run(modules, inputs)
    loss = model.loss(outputs, targets)
    parts = [model.loss(outputs[i : i + 1], targets[i : i + 1]) for i in range(3)]
    torch.testing.assert_close(loss, torch.stack(parts).sum())
    tokens = 3 * model.tokens_per_sample
    assert loss.item() / tokens == pytest.approx(math.log(CONFIG.vocabulary), rel=0.05)
    scores = outputs.reshape(-1, CONFIG.vocabulary)
    torch.testing.assert_close(loss / tokens, functional.cross_entropy(scores, targets.flatten()))


def test_it_learns() -> None:
    """A few steps on one microbatch lower the loss on it."""
    model = gpt(CONFIG)
    modules = nn.ModuleList(built(model))
    optimizer = torch.optim.SGD(modules.parameters(), lr=0.5)
    inputs, targets = model.example(4)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = model.loss(run(list(modules), inputs), targets) / targets.numel()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1


def test_it_survives_pickling() -> None:
    """A GPT can be sent to a rank, and is the same there."""
    model = gpt(CONFIG)
    inputs, _ = model.example(1)
    copy = pickle.loads(pickle.dumps(model))
    assert torch.equal(run(built(copy), inputs), run(built(model), inputs))


def test_it_takes_sequences_shorter_than_its_longest() -> None:
    """Half a sequence gives the first half of the scores."""
    model = gpt(CONFIG)
    modules = built(model)
    inputs, _ = model.example(1)
    torch.testing.assert_close(run(modules, inputs[:, :4]), run(modules, inputs)[:, :4])


@pytest.mark.parametrize("name", ["layers", "width", "heads", "sequence_length", "vocabulary"])
def test_sizes_are_at_least_one(name: str) -> None:
    """Every size is checked and named."""
    sizes = {"layers": 1, "width": 1, "heads": 1, "sequence_length": 1, "vocabulary": 1}
    with pytest.raises(InputError, match=f"{name} is 0"):
        GPTConfig(**{**sizes, name: 0})


def test_heads_must_split_the_width() -> None:
    """A width that the heads do not divide is refused with the numbers that would work."""
    with pytest.raises(InputError, match="heads may be 1, 2, 5, 10"):
        GPTConfig(layers=1, width=10, heads=4, sequence_length=4)


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_an_impossible_dropout_is_refused(dropout: float) -> None:
    """What is left out is a share below the whole."""
    with pytest.raises(InputError, match=f"dropout is {dropout}"):
        GPTConfig(layers=1, width=8, heads=2, sequence_length=4, dropout=dropout)


def test_evaluation_leaves_nothing_out() -> None:
    """Dropout changes what is trained on, and not what is evaluated."""
    inputs, _ = gpt(CONFIG).example(2)
    plain, dropping = (
        nn.Sequential(*built(gpt(replace(CONFIG, dropout=dropout)))) for dropout in (0.0, 0.5)
    )
    assert not torch.equal(plain(inputs), dropping(inputs))
    assert torch.equal(plain(inputs), dropping.eval()(inputs))


def test_a_tied_head_is_named_with_its_owner() -> None:
    """The head's projection is kept with the embedding, all else where it is."""
    model = gpt(replace(CONFIG, tied=True))
    spec, name = model.home("head.scores.weight")
    assert ("embedding", "tokens.weight") == (spec.name, name)
    spec, name = model.home("block_1.network.0.bias")
    assert ("block_1", "network.0.bias") == (spec.name, name)
    assert model.parameter_shapes()["head.scores.weight"] == (CONFIG.vocabulary, CONFIG.width)
    with pytest.raises(InputError, match=r"there is no parameter 'tail\.weight'"):
        model.home("tail.weight")


def test_ties_have_one_owner() -> None:
    """A parameter that is tied cannot own another."""
    model = gpt(CONFIG)
    with pytest.raises(InputError, match=r"tie a\.x to c\.x"):
        replace(model, ties={"a.x": "b.x", "b.x": "c.x"})
