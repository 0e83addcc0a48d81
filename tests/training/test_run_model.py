"""Models and data of run files: sizes, folders and factories, and what is refused."""

import json
from pathlib import Path

import pytest
import torch

from diaulos.errors import InputError
from diaulos.models.gpt import gpt
from diaulos.training.run_file import read_run
from tests.training.run_files import write_inputs
from tests.training.toy import CONFIG, RandomTokens

RUN = """\
format = "diaulos.run/1"
plan = "plan.json"
folder = "run"
schedule = "1f1b"
batches = 2
microbatch_size = 2
model = "{model}"

[data]
tokens = "text.bin"
sequence_length = 8

[optimizer.sgd]
learning_rate = 0.1
"""


def make_gpt():
    """A factory of what can be trained."""
    return gpt(CONFIG)


def make_number():
    """A factory of something else."""
    return 7


def make_tokens():
    """A factory of a source of data."""
    return RandomTokens()


def make_vectors():
    """A factory of data for other models."""
    return lambda _batch, _microbatch: (torch.ones(2, 3), torch.ones(2))


def _write(folder: Path, model, reference: str) -> Path:
    """A run of a model over two stages."""
    write_inputs(folder, model, shards=(1, 1))
    path = folder / "run.toml"
    path.write_text(RUN.format(model=reference))
    return path


def _factory(tmp_path, name="make_gpt"):
    return _write(tmp_path, gpt(CONFIG), f"{__name__}:{name}")


def test_a_factory_makes_the_model(tmp_path):
    """`module:factory` is called, and its layers may be frozen by name."""
    path = _factory(tmp_path)
    path.write_text('frozen = ["embedding"]\n' + path.read_text())
    model = read_run(path).job.model

    assert [spec.name for spec in model.layers if spec.frozen] == ["embedding"]
    assert model.parameter_shapes().keys() < gpt(CONFIG).parameter_shapes().keys()


def test_a_factory_makes_the_data(tmp_path):
    """`source` in the data's table is called for a function of batch and microbatch."""
    path = _factory(tmp_path)
    source = f'source = "{__name__}:make_tokens"'
    path.write_text(path.read_text().replace('tokens = "text.bin"', source))
    inputs, _ = read_run(path).job.data(3, 1)

    assert torch.equal(RandomTokens()(3, 1)[0], inputs)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (":make_gpt", ":make_number", "returned a int; a factory of what is trained returns a"),
        (":make_gpt", ":make_all", "has no function 'make_all'"),
        ('tokens = "text.bin"', "", "has neither tokens nor source"),
        ('tokens = "text.bin"', 'tokens = "text.bin"\nstored_as = "int4"', "it is uint8 or uint16"),
        (
            'tokens = "text.bin"',
            f'source = "{__name__}:make_vectors"',
            r"a microbatch of the data is float32\[2, 3\] .*; the model takes int64\[2, 8\]",
        ),
        (
            'folder = "run"',
            'folder = "run"\nfrozen = ["head", "tail"]',
            r"frozen: there is no layer 'tail'",
        ),
    ],
)
def test_what_is_refused(old, new, message, tmp_path):
    """The value is named, with what would do."""
    path = _factory(tmp_path)
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(InputError, match=message):
        read_run(path)


def _llama(folder, **changes):
    """A run of a tiny Llama with weights, whose config says otherwise than they in some keys."""
    pytest.importorskip("transformers", reason="transformers is not installed (extra hf)")
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    from diaulos.models.huggingface.model import pretrained  # noqa: PLC0415
    from tests.models.huggingface.toys import CONFIGS  # noqa: PLC0415

    LlamaForCausalLM(CONFIGS["llama"]).save_pretrained(folder / "llama")
    config = folder / "llama" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **changes}))
    changed = LlamaConfig.from_dict({**CONFIGS["llama"].to_dict(), **changes})
    model = pretrained(changed, sequence_length=8)
    return _write(folder, model, "llama")


def test_a_folder_of_hugging_face_is_read(tmp_path):
    """The layers are those of the config, and their weights those of the files."""
    run = read_run(_llama(tmp_path))
    names = [spec.name for spec in run.job.model.layers]
    head = run.job.model.layer("head").build()

    assert names == ["embedding", "block_0", "block_1", "final_norm", "head", "loss"]
    weights = run.job.model.layer("head").build.weights
    assert torch.equal(weights.tensor("lm_head.weight"), head.inner.weight)


def test_weights_of_another_shape_are_named_with_stage_and_both_shapes(tmp_path):
    """A config that does not fit its files is refused before any rank is started."""
    match = r"has model.layers.0.mlp.down_proj.weight as \[16, 24\], which is \[16, 20\] on stage 0"
    with pytest.raises(InputError, match=match):
        read_run(_llama(tmp_path, intermediate_size=20))


def test_missing_weights_are_named_ten_at_most(tmp_path):
    """A model with more blocks than its files lacks those of the last."""
    match = r"lacks model.layers.2.* \[16, 16\] on stage 0; .* on stage 1; and 8 more$"
    with pytest.raises(InputError, match=match):
        read_run(_llama(tmp_path, num_hidden_layers=4))


def test_an_unknown_type_of_model_is_named(tmp_path):
    """The types that there are are said, and another way."""
    path = _llama(tmp_path)
    (tmp_path / "llama" / "config.json").write_text(json.dumps({"model_type": "opt"}))
    with pytest.raises(InputError, match=r"model_type is 'opt'; .* of bert, gemma, .* t5 .*export"):
        read_run(path)


def test_a_model_of_hugging_face_needs_the_length_of_samples(tmp_path):
    """Its config says only how long they may be."""
    path = _llama(tmp_path)
    path.write_text(path.read_text().replace("sequence_length = 8", ""))
    with pytest.raises(InputError, match=r"\$\.model is a path; .*data.sequence_length"):
        read_run(path)


def test_a_model_is_not_written_over_what_is_there(tmp_path):
    """Nor a model of the user's own in a layout that it does not have."""
    path = _llama(tmp_path)
    text = path.read_text()
    path.write_text('pretrained_folder = "llama"\n' + text)
    with pytest.raises(InputError, match="a model is written into a new folder"):
        read_run(path)
    own = _factory(tmp_path)
    own.write_text('pretrained_folder = "new"\n' + own.read_text())
    with pytest.raises(InputError, match="the model is none of Hugging Face's"):
        read_run(own)
