"""A small job for tests: a GPT of bytes, planned by hand."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.graph import Edge, Layer, LayerGraph, Option
from diaulos.models.layers import IGNORED, LayeredModel
from diaulos.planning.plan import Plan, Stage
from diaulos.training.job import TrainingJob
from diaulos.training.precision import Precision

CONFIG = GPTConfig(layers=2, width=16, heads=2, sequence_length=8)


@dataclass(frozen=True)
class RandomTokens:
    """Microbatches that are a function of batch and microbatch."""

    config: GPTConfig = CONFIG
    size: int = 2

    def __call__(self, batch: int, microbatch: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1000 * batch + microbatch)
        shape = (self.size, self.config.sequence_length + 1)
        tokens = torch.randint(self.config.vocabulary, shape, generator=generator)
        return tokens[:, :-1], tokens[:, 1:]


@dataclass(frozen=True)
class MaskedTokens(RandomTokens):
    """Random microbatches in which ever more targets are ignored, in every third one all."""

    def __call__(self, batch: int, microbatch: int) -> tuple[Tensor, Tensor]:
        inputs, targets = RandomTokens.__call__(self, batch, microbatch)
        targets = targets.clone()
        targets[:, : (0, 3, self.config.sequence_length)[microbatch % 3]] = IGNORED
        return inputs, targets


def graph_of(model: LayeredModel) -> LayerGraph:
    """A graph with made-up prices for a model."""
    options = tuple(
        Option(
            name=name,
            tensor_parallel=degree,
            recompute="recompute" in name,
            sequence_parallel="sequence" in name,
            seconds=1,
            parameter_bytes=1,
            activation_bytes=1,
        )
        for degree in (1, 2, 3, 4)
        for name in ("plain", "recompute", "sequence", "sequence recompute")
    )
    return LayerGraph(
        layers=tuple(
            Layer(id=index, name=spec.name, options=options)
            for index, spec in enumerate(model.layers)
        ),
        edges=tuple(
            Edge(source=index, target=index + 1, bytes=1) for index in range(len(model.layers) - 1)
        ),
    )


def plan_of(
    layers: int,
    replicas: tuple[int, ...],
    microbatches: int,
    *,
    recompute: bool = False,
    shards: tuple[int, ...] | None = None,
    sequence_parallel: bool = False,
    sharded_optimizer: bool = False,
) -> Plan:
    """Stages of about equal numbers of layers, with these replicas and shards."""
    bounds = [round(layers * stage / len(replicas)) for stage in range(len(replicas) + 1)]
    words = ["sequence"] * sequence_parallel + ["recompute"] * recompute
    option = " ".join(words) or "plain"
    return Plan(
        microbatches=microbatches,
        stages=tuple(
            Stage(
                layers=tuple(range(first, last)),
                data_parallel=degree,
                tensor_parallel=split,
                options=dict.fromkeys(range(first, last), option),
                sharded_optimizer=sharded_optimizer,
            )
            for first, last, degree, split in zip(
                bounds[:-1], bounds[1:], replicas, shards or (1,) * len(replicas), strict=True
            )
        ),
    )


def toy_job(
    schedule: str,
    replicas: tuple[int, ...],
    microbatches: int,
    *,
    batches: int = 4,
    recompute: bool = False,
    make_optimizer: partial[torch.optim.Optimizer] = partial(torch.optim.AdamW, lr=1e-2),
    clip_norm: float | None = None,
    config: GPTConfig = CONFIG,
    chunks: int | None = None,
    shards: tuple[int, ...] | None = None,
    sequence_parallel: bool = False,
    sharded_optimizer: bool = False,
    precision: Precision = Precision.FLOAT32,
) -> TrainingJob:
    """A job over a pipeline of these replicas; `microbatches` is per replica of the widest."""
    model = gpt(config)
    total = microbatches * max(replicas)
    return TrainingJob(
        model=model,
        graph=graph_of(model),
        plan=plan_of(
            len(model.layers),
            replicas,
            total,
            recompute=recompute,
            shards=shards,
            sequence_parallel=sequence_parallel,
            sharded_optimizer=sharded_optimizer,
        ),
        schedule=schedule,
        data=RandomTokens(config),
        microbatch_size=2,
        batches=batches,
        make_optimizer=make_optimizer,
        precision=precision,
        clip_norm=clip_norm,
        chunks=chunks,
    )
