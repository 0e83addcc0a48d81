"""What the delay of 2BW costs in loss, and how much of it each remedy brings back.

python -m benchmarks.remedies [UPDATES]

A small GPT over bytes is trained by the serial replay, which equals the pipeline bit for bit, on
English text with the same batches each time. Losses are those of held-out text at the end, the
mean of two seeds.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.table import Table

from diaulos.models.data import TokenData, demo_text, write_tokens
from diaulos.models.gpt import GPTConfig, gpt
from diaulos.training.evaluation import Evaluation
from diaulos.training.mitigation import DelayMitigation
from diaulos.training.optimizers import AdamW, Muon, TorchOptimizer
from diaulos.training.run_data import TokenBatches
from diaulos.training.serial import train_serially
from tests.training.toy import toy_job

CONFIG = GPTConfig(layers=2, width=64, heads=4, sequence_length=64)
SEEDS = (0, 1)
UPDATES = 150
OPTIMIZERS = {
    "AdamW 1e-3": AdamW(learning_rate=1e-3),
    "AdamW 3e-3": AdamW(learning_rate=3e-3),
    "AdamW 1e-2": AdamW(learning_rate=1e-2),
    "Muon 0.02": Muon(
        learning_rate=0.02,
        others=TorchOptimizer(name="adamw", learning_rate=3e-3),
        layers_of_others=("embedding", "head"),
    ),
}


def remedies(updates):
    """Schedules with their remedies, by name."""
    quarter = updates // 4
    return {
        "1f1b": ("1f1b", DelayMitigation()),
        "2bw": ("2bw", DelayMitigation()),
        f"flush {quarter}": ("2bw", DelayMitigation(flush_updates=quarter)),
        "extrapolated": ("2bw", DelayMitigation(extrapolated_weights=True)),
        f"rate {quarter}": ("2bw", DelayMitigation(learning_rate_updates=quarter)),
    }


def held_out_loss(path, optimizer, row, updates, seed):
    """The loss of the last tenth of the text after a run of a schedule with its remedy."""
    schedule, mitigation = row
    data = TokenData(path=path, sequence_length=CONFIG.sequence_length, share=(0.0, 0.9))
    batches = TokenBatches(data=data, seed=seed, microbatch_size=8)
    held_out = replace(batches, data=replace(data, share=(0.9, 1.0)))
    job = replace(
        toy_job(schedule, (1, 1), 2, batches=updates, clip_norm=1.0, config=CONFIG),
        make_optimizer=optimizer.factory(),
        model=gpt(CONFIG),
        data=batches,
        microbatch_size=8,
        seed=seed,
        mitigation=mitigation,
        evaluation=Evaluation(data=held_out, microbatches=16, every_batches=updates),
    )
    return train_serially(job).evaluations[updates]


def main():
    """Print the table."""
    torch.set_num_threads(1)
    updates = int(sys.argv[1]) if len(sys.argv) > 1 else UPDATES
    rows = remedies(updates)
    table = Table("optimizer", *rows, title=f"held-out loss after {updates} updates")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "text.bin"
        write_tokens(demo_text().content, path)
        for name, optimizer in OPTIMIZERS.items():
            loss = partial(held_out_loss, path, optimizer)
            means = [fmean(loss(row, updates, seed) for seed in SEEDS) for row in rows.values()]
            table.add_row(name, *(f"{mean:.3f}" for mean in means))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
