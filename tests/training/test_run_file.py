"""What a run file says of data, optimizers, remedies and what is told of a run."""

import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from diaulos.clusters.catalogue import known_device
from diaulos.clusters.device import DType
from diaulos.errors import InputError
from diaulos.models.gpt import gpt
from diaulos.training.mitigation import DelayMitigation
from diaulos.training.muon import MuonWithAdamW
from diaulos.training.profiling import ProfilerWindow
from diaulos.training.run_file import read_run
from tests.training.run_files import write_inputs
from tests.training.toy import CONFIG

RUN = """\
format = "diaulos.run/1"
plan = "plan.json"
folder = "run"
schedule = "2bw"
batches = 4
microbatch_size = 2
{top}

[model]
layers = 2
width = 16
heads = 2
sequence_length = 8

[data]
{data}

{optimizer}

{rest}
"""
TOKENS = 'tokens = "text.bin"'
SGD = "[optimizer.sgd]\nlearning_rate = 0.1"
MUON = "[optimizer.muon]\nlearning_rate = 0.02\n[optimizer.muon.adamw]\nlearning_rate = 0.01\n"


def _write(folder, *, top="", data=TOKENS, optimizer=SGD, rest="", shards=(1, 1)):
    write_inputs(folder, gpt(CONFIG), shards=shards)
    path = folder / "run.toml"
    path.write_text(RUN.format(top=top, data=data, optimizer=optimizer, rest=rest))
    return path


@pytest.fixture
def write(tmp_path):
    """Writes a run file with a plan and a text beside it."""
    return partial(_write, tmp_path)


def _optimizer(path):
    names = ("embedding.tokens.weight", "block_0.network.0.weight", "block_0.network.0.bias")
    shapes = ((4, 4), (4, 4), (4,))
    pairs = zip(names, shapes, strict=True)
    weights = [(name, torch.nn.Parameter(torch.ones(shape))) for name, shape in pairs]
    return read_run(path).job.make_optimizer(weights), dict(weights)


def test_any_optimizer_of_torch_is_named_with_its_options(write):
    """What is given reaches torch; what is not is torch's own."""
    text = "[optimizer.nadam]\nlearning_rate = 0.1\nbetas = [0.8, 0.9]\nforeach = true"
    optimizer, _ = _optimizer(write(optimizer=text))

    assert type(optimizer) is torch.optim.NAdam
    (group,) = optimizer.param_groups
    assert (group["lr"], group["betas"], group["foreach"]) == (0.1, (0.8, 0.9), True)
    assert group["momentum_decay"] == torch.optim.NAdam([torch.ones(1)]).defaults["momentum_decay"]


@pytest.mark.parametrize(
    ("layers", "matrices"),
    [
        ("", ["block_0.network.0.weight"]),
        ("layers = []", ["embedding.tokens.weight", "block_0.network.0.weight"]),
    ],
)
def test_muon_has_the_matrices_of_inner_layers(layers, matrices, write):
    """The first and the last layer are AdamW's, unless others are named, and what is no matrix."""
    optimizer, weights = _optimizer(write(optimizer=MUON + layers))

    assert type(optimizer) is MuonWithAdamW
    muon, adamw = optimizer.param_groups
    assert [weights[name] for name in matrices] == muon["params"]
    assert (muon["lr"], adamw["lr"]) == (0.02, 0.01)
    assert muon["momentum"] == 0.95


def test_remedies_profiles_and_peaks_are_read(write):
    """Each key goes where it belongs."""
    path = write(
        top='profile_steps = [2, 3]\npeak_of = "H200"\nprecision = "bf16"',
        rest="[delay]\nflush_updates = 2\nextrapolated_weights = true\nlearning_rate_updates = 5",
    )
    run = read_run(path)

    assert run.profiled == ProfilerWindow(first=2, last=3)
    peak = known_device("H200").device.peak_flops_per_second(DType.BF16)
    assert run.job.peak_flops_per_second == peak
    assert run.job.mitigation == DelayMitigation(
        flush_updates=2, extrapolated_weights=True, learning_rate_updates=5
    )


def test_all_kinds_of_files_give_the_same_samples(write, tmp_path):
    """Flat tokens, Megatron's, and a text byte by byte are read alike."""
    text = "The quick brown fox jumps over the lazy dog. " * 20
    tokens = np.frombuffer(text.encode(), dtype=np.uint8)
    (tmp_path / "book.txt").write_text(text)
    (tmp_path / "flat.bin").write_bytes(tokens.astype("<u2").tobytes())
    (tmp_path / "corpus.bin").write_bytes(tokens.astype("<u2").tobytes())
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, 1, 2)
    (tmp_path / "corpus.idx").write_bytes(header + struct.pack("<i", len(tokens)))
    tables = (
        TOKENS,
        'tokens = "flat.bin"\nstored_as = "uint16"',
        'megatron = "corpus"',
        'text = "book.txt"',
        'text = "book.txt"\ntokenizer = "bytes"',
    )
    first, *others = (read_run(write(data=table)).job.data(3, 1) for table in tables)
    for inputs, targets in others:
        assert torch.equal(first[0], inputs)
        assert torch.equal(first[1], targets)


def test_a_share_is_held_out(write):
    """Training and evaluation read one file, each its own part."""
    evaluation = "[evaluation]\nmicrobatches = 1\nevery_batches = 1\nshare = [0.9, 1.0]\n" + TOKENS
    job = read_run(write(data=TOKENS + "\nshare = [0.0, 0.9]", rest=evaluation)).job

    assert job.data.data.share == (0.0, 0.9)
    assert job.evaluation.data.data.share == (0.9, 1.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": TOKENS + '\ntext = "a"'}, "has tokens and text; a run reads one of"),
        (
            {"data": TOKENS + '\ntokenizer = "bytes"'},
            "tokenizer is given; it says how text is read",
        ),
        (
            {"data": 'text = "text.bin"\nstored_as = "uint8"'},
            "stored_as is given; it says how tokens",
        ),
        ({"data": TOKENS + "\nshare = [0.1]"}, r"data.share has 1 numbers; it must have two"),
        ({"data": TOKENS + "\nshare = [0.5, 0.2]"}, r"\$\.data.*share is \[0.5, 0.2\]"),
        ({"data": TOKENS + '\nstored_as = "uint16"'}, "holds the token .*; tokens are below 256"),
        (
            {"optimizer": "[optimizer.adamx]\nlearning_rate = 1"},
            "names adamx; it names one .* muon",
        ),
        ({"optimizer": "[optimizer.sgd]"}, "optimizer.sgd lacks the key 'learning_rate'"),
        (
            {"optimizer": SGD + "\nbeta = 1"},
            r"optimizer.sgd.*SGD has no option 'beta'; its .* momen",
        ),
        ({"optimizer": SGD + "\nmomentum = 'x'"}, r"SGD refuses its options"),
        (
            {"optimizer": "[optimizer.adamw]\nlearning_rate = 1.0\nbetas = [1.0, 0.9]"},
            "AdamW refuses its options; Invalid beta parameter",
        ),
        ({"optimizer": MUON + 'layers = ["tail"]'}, r"layers\[0\].*there is no layer 'tail'"),
        (
            {"optimizer": "[optimizer.muon]\nlearning_rate = 1"},
            "lacks the key 'adamw'; Muon is for",
        ),
        ({"optimizer": MUON, "shards": (2,)}, "updates whole matrices, and stage 0 of the plan is"),
        ({"rest": "[delay]\nflush = 2"}, r"\$\.delay has the unknown key 'flush'"),
        ({"top": "profile_steps = [3]"}, "profile_steps has 1 numbers"),
        ({"top": "profile_steps = [3, 2]"}, r"\$\.profile_steps.*the profiled steps are 3 to 2"),
        ({"top": 'peak_of = "H2000"'}, r"\$\.peak_of.*there is no device 'H2000'.*H200"),
        (
            {"top": 'peak_of = "H200"\nprecision = "float64"'},
            "no device states its peak in float64",
        ),
        ({"top": 'tensorboard = "yes"'}, r"tensorboard is a string .*; it must be true or false"),
    ],
)
def test_what_is_refused(changes, message, write):
    """The place is named, with the rule."""
    with pytest.raises(InputError, match=message):
        read_run(write(**changes))


def test_a_calibrated_device_says_its_peak(write, tmp_path: Path):
    """A cluster file is read for the figures of its device; one without figures is refused."""
    cluster = '[[groups]]\nname = "a"\nnodes = 1\ndevices_per_node = 2\ndevice = "H100-80GB"\n'
    (tmp_path / "own.toml").write_text('format = "diaulos.cluster/1"\n' + cluster)
    job = read_run(write(top='peak_of = "own.toml"')).job
    assert job.peak_flops_per_second == known_device("H100-80GB").device.peak.fp32
    flat = 'format = "diaulos.cluster/1"\ndevices = 2\nmemory = "1GiB"\nbandwidth = "1GiB/s"\n'
    (tmp_path / "own.toml").write_text(flat)
    with pytest.raises(InputError, match="is a cluster without figures of its devices"):
        read_run(write(top='peak_of = "own.toml"'))
