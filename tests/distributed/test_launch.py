"""`diaulos train` as a user starts it: alone, under torchrun, and when it fails."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diaulos.cli.simulate import simulate
from diaulos.cli.trace import diff
from diaulos.models.gpt import gpt
from diaulos.training.records import read_steps
from diaulos.training.run_file import read_run
from diaulos.training.serial import train_serially
from tests.training.run_files import write_inputs
from tests.training.toy import CONFIG

RUN = """\
format = "diaulos.run/1"
plan = "plan.json"
folder = "run"
schedule = "2bw"
batches = {batches}
microbatch_size = 2
clip_norm = 1.0

[model]
layers = 2
width = 16
heads = 2
sequence_length = 8

[data]
tokens = "text.bin"

[optimizer.adamw]
learning_rate = 0.01

[learning_rate]
warm_up_updates = 2
cosine_updates = 100
final_share = 0.1

[evaluation]
tokens = "text.bin"
microbatches = 2
every_batches = 1000
"""


TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node=2")


def _prepare(folder, batches, shards=(1, 1)):
    """A run of the toy GPT over two ranks, stages or shards; the path of its run file."""
    write_inputs(folder, gpt(CONFIG), shards=shards)
    path = folder / "run.toml"
    path.write_text(RUN.format(batches=batches))
    return path


def _run(*arguments, timeout=90):
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "shards"),
    [
        (("diaulos", "train"), (1, 1)),
        ((*TORCHRUN, "-m", "diaulos", "train"), (2,)),
    ],
)
def test_a_run_file_trains(command, shards, tmp_path):
    """Both ways of starting it give the losses of the serial run, a console line, records, and a
    timeline as it was planned.

    Of two stages, and of one that is split in two.
    """
    path = _prepare(tmp_path, batches=3, shards=shards)
    done = _run(*command, str(path))

    assert done.returncode == 0, done.stderr
    assert "2bw  step 3/3  loss" in done.stdout
    assert "2bw  after batch 3: held-out loss" in done.stdout
    expected = train_serially(read_run(path).job).losses
    for steps in read_steps(tmp_path / "run"):
        assert [step.loss for step in steps] == pytest.approx(expected, rel=1e-6)
    planned, folder = tmp_path / "planned.json", tmp_path / "run"
    simulate(depth=len(shards), microbatches=2, schedule=["2bw"], batches=3, trace=planned)
    for measured in (folder, folder / "timeline.json", folder / "trace.json"):
        diff(planned, measured, strict=True)


def _interrupt(path, send):
    """Start a long run, `send` something to its launcher and ranks; (status, errors, ranks)."""
    command = [sys.executable, "-m", "diaulos", "train", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        record = path.parent / "run" / "rank_1.jsonl"
        while not (record.exists() and record.stat().st_size):
            assert started.poll() is None
            time.sleep(0.1)
        ranks = _children(started.pid)
        send(started.pid, ranks)
        _, errors = started.communicate(timeout=60)
    return started.returncode, errors.decode(), ranks


def test_a_killed_rank_ends_the_run_and_is_named(tmp_path):
    """Status 1, the rank and the signal by name, and no rank is left behind."""
    path = _prepare(tmp_path, batches=1_000_000)
    status, errors, ranks = _interrupt(path, lambda _, ranks: os.kill(ranks[1], signal.SIGKILL))

    assert status == 1
    assert "ended first, by SIGKILL" in errors
    assert not any(_is_running(rank) for rank in ranks)


def test_an_interrupt_ends_the_run_without_a_word_too_many(tmp_path):
    """Ctrl-C gives status 130, one line, no traceback, and no rank is left behind."""
    path = _prepare(tmp_path, batches=1_000_000)
    status, errors, ranks = _interrupt(path, lambda pid, _: os.kill(pid, signal.SIGINT))

    assert status == 130
    assert errors.splitlines()[-1] == "diaulos: interrupted"
    assert "Traceback" not in errors
    assert not any(_is_running(rank) for rank in ranks)


def test_a_killed_run_is_resumed(tmp_path):
    """After a kill the run goes on from its newest checkpoint, and ends as if never killed."""
    path = _prepare(tmp_path, batches=30)
    path.write_text(path.read_text() + "\n[checkpoints]\nevery_batches = 1\n")

    def kill_after_a_checkpoint(_, ranks):
        while not any((tmp_path / "run" / "checkpoints").glob("update_????????")):
            time.sleep(0.02)
        os.kill(ranks[1], signal.SIGKILL)

    status, _, _ = _interrupt(path, kill_after_a_checkpoint)
    assert status == 1
    refused = _run("diaulos", "train", str(path))
    assert refused.returncode == 2
    assert "is there from an earlier run" in refused.stderr
    done = _run("diaulos", "train", str(path), "--resume")
    assert done.returncode == 0, done.stderr
    assert "resuming from" in done.stdout
    expected = train_serially(read_run(path).job).losses
    for steps in read_steps(tmp_path / "run"):
        assert [step.batch for step in steps] == list(range(30))
        assert [step.loss for step in steps] == expected


def _children(pid):
    """The ranks that a launcher has started, by rank."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        ranks = [entry[5:] for entry in environment if entry.startswith(b"RANK=")]
        found += [(int(ranks[0]), int(child))] if ranks else []
    return [child for _, child in sorted(found)]


def _is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('schedule = "2bw"', 'schedule = "3bw"', "there is no schedule '3bw'"),
        ("width = 16", "width = 15", "$.model: width 15 does not split into 2 heads"),
        ("layers = 2", "layers = 3", "the graph is not that of the model"),
        (
            "[optimizer.adamw]",
            "[optimizer.adamx]",
            "$.optimizer names adamx; it names one optimizer",
        ),
        ("clip_norm = 1.0", "clip = 1.0", "$ has the unknown key 'clip'"),
        ("clip_norm = 1.0", 'precision = "int8"', "$.precision is 'int8'; it must be one of"),
        ("= 100", "= 2", "cosine_updates is 2 and warm_up_updates is 2"),
        ("microbatches = 2", "microbatches = 0", "$.evaluation.microbatches is 0"),
        ('"text.bin"', '"absent.bin"', "absent.bin: cannot be read"),
        ("[data]", "[checkpoints]\nevery_batches = 0\n[data]", "every_batches is 0; it must be"),
    ],
)
def test_a_wrong_run_file_is_refused(old, new, message, tmp_path):
    """Status 2 and one sentence with the place, before any rank is started."""
    path = _prepare(tmp_path, batches=1)
    path.write_text(path.read_text().replace(old, new))
    done = _run("diaulos", "train", str(path))

    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
