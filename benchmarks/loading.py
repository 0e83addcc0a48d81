"""The memory that a rank takes to read its stage of a Hugging Face model.

    python -m benchmarks.loading

Writes a Llama of 194 million parameters with random weights into a temporary folder, in files of
200 MB, and reads each of four stages in a process of its own.
"""

import multiprocessing
import resource
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from torch import nn

from diaulos.models.huggingface.model import read_pretrained
from diaulos.training.stage import PlacedLayer, StageModule

STAGES = 4
MIB = 2**20


def write_model(folder: Path) -> None:
    """A Llama with random weights, tied."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    config = LlamaConfig(
        hidden_size=768,
        num_hidden_layers=24,
        num_attention_heads=12,
        num_key_value_heads=12,
        intermediate_size=2048,
        vocab_size=32000,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder, max_shard_size="200MB")


def read_stage(folder: Path, stage: int) -> tuple[float, float]:
    """MiB of the stage's weights, and the most that reading it took beside what was before."""
    torch.set_num_threads(1)
    model = read_pretrained(folder, sequence_length=32)
    bounds = [round(len(model.layers) * i / STAGES) for i in range(STAGES + 1)]
    placed = [
        PlacedLayer(spec=spec, recompute=False, ties=model.ties_of(spec))
        for spec in model.layers[bounds[stage] : bounds[stage + 1]]
    ]
    before = _peak_mib()
    module = StageModule(placed, seed=0)
    return _mib(module), _peak_mib() - before


def _mib(module: nn.Module) -> float:
    return sum(weight.nbytes for weight in module.parameters()) / MIB


def _peak_mib() -> float:
    """The most memory that this process has had; Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (MIB if sys.platform == "darwin" else 1024)


def main() -> None:
    """Print the table."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with context.Pool(1, maxtasksperchild=1) as pool:
            pool.apply(write_model, [folder])
        whole = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / MIB
        print(f"{'stage':>5}  {'its weights':>12}  {'peak to read':>12}  {'whole model':>12}")
        for stage in range(STAGES):
            with context.Pool(1, maxtasksperchild=1) as pool:
                own, peak = pool.apply(partial(read_stage, folder), [stage])
            print(f"{stage:>5}  {own:>8.0f} MiB  {peak:>8.0f} MiB  {whole:>8.0f} MiB")


if __name__ == "__main__":
    main()
