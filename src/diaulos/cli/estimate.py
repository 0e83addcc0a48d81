"""`diaulos estimate`: step time and memory of one given configuration."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from diaulos.cli.models import ModelFlags
from diaulos.cli.output import make_console, print_json
from diaulos.clusters.cluster import Cluster
from diaulos.clusters.expression import find_cluster
from diaulos.errors import InfeasibleError, InputError
from diaulos.estimating.configuration import Configuration
from diaulos.estimating.estimate import estimate as estimate_configuration
from diaulos.exporting.layout import parse_layout
from diaulos.pricing.analytic.account import Sharding
from diaulos.pricing.analytic.groups import Degrees
from diaulos.pricing.analytic.options import PRECISIONS, Recompute
from diaulos.pricing.devices.attention import AttentionKind
from diaulos.reporting.estimate import estimate_document, estimate_lines, shortage


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationFlags:
    """How the model is trained."""

    tensor_parallel: int = 1
    """Devices that split each layer."""
    pipeline_parallel: int = 1
    """Devices that the layers are spread over."""
    data_parallel: int | None = None
    """Replicas; as many as there are devices for unless given."""
    context_parallel: int = 1
    """Devices that split the sequence."""
    expert_parallel: int = 1
    """Devices that experts are spread over, of those of context and data parallelism."""
    virtual_stages: int = 1
    """Stages of a rank, which the interleaved schedule has."""
    microbatch_size: int = 1
    """Samples that a replica computes at a time."""
    batch_size: int
    """Samples of a step, over all replicas."""
    sequence_length: int
    """Tokens of a sample."""
    recompute: Literal["none", "selective", "operations", "full"] = "none"
    """What the backward computes again: nothing, the inside of attention, all but attention and
    every second product, or everything."""
    sequence_parallel: Annotated[bool, Parameter(negative=())] = False
    """Share by positions what tensor parallelism does not split."""
    zero: Literal[0, 1, 2, 3] = 0
    """What is spread over replicas: nothing, the optimizer, gradients too, parameters too."""
    schedule: Literal["1f1b", "interleaved", "gpipe", "2bw", "zero-bubble"] | None = None
    """1f1b unless given, or interleaved where ranks have several stages."""
    attention: Literal["flash", "plain"] = "flash"
    """In one kernel, or with its scores in memory."""
    precision: Literal["fp32", "tf32", "bf16", "fp16", "fp8"] = "bf16"
    """Of products; below fp32 with weights in fp32 beside."""
    layers_per_stage: str | None = None
    """Blocks of each stage, such as 4,4,3,5, or as Megatron-LM writes it, Et*4|(t*4|)*2|t*3L; the
    most even split unless given."""

    def configuration(self, cluster: Cluster) -> Configuration:
        """What the flags say, on a cluster."""
        inner = self.tensor_parallel * self.pipeline_parallel * self.context_parallel
        data = self.data_parallel
        if data is None:
            data = max(cluster.devices // max(inner, 1), 1)
        usual = "interleaved" if self.virtual_stages > 1 else "1f1b"
        return Configuration(
            degrees=Degrees(
                tensor=self.tensor_parallel,
                context=self.context_parallel,
                data=data,
                pipeline=self.pipeline_parallel,
                expert=self.expert_parallel,
            ),
            microbatch_size=self.microbatch_size,
            batch_size=self.batch_size,
            sequence_length=self.sequence_length,
            virtual_stages=self.virtual_stages,
            schedule=self.schedule or usual,
            recompute=Recompute(self.recompute),
            sequence_parallel=self.sequence_parallel,
            sharding=Sharding(self.zero),
            attention=AttentionKind(self.attention),
            precision=PRECISIONS[self.precision],
            blocks_per_stage=_shares(self.layers_per_stage),
        )


def estimate(
    config: Path | None = None,
    /,
    *,
    cluster: str,
    flags: ConfigurationFlags,
    model: ModelFlags | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Say how long a step takes and what each stage holds, without running anything.

    Exit status 1 where a device has not the memory.

    Parameters
    ----------
    config
        A config.json of Hugging Face transformers, or its folder; module:factory, a function that
        returns a torch module and example inputs; or give sizes.
    cluster
        Nodes x devices of a node x device, such as 4x8xH100-80GB, or a file.
    flags
        How the model is trained.
    model
        The sizes of a GPT, instead of a config.
    as_json
        Print one JSON object instead of the tables.
    """
    known = find_cluster(cluster)
    described = (model or ModelFlags()).model(config, flags.sequence_length)
    found = estimate_configuration(described, known, flags.configuration(known))
    if as_json:
        print_json(estimate_document(found))
    else:
        console = make_console()
        for line in estimate_lines(found):
            console.print(line, markup=False, soft_wrap=True)
    if not found.fits:
        raise InfeasibleError(shortage(found))


def _shares(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    if text.lstrip().startswith("E"):
        return parse_layout(text)
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise InputError(
            f"--layers-per-stage is {text!r}",
            "it is one whole number for each stage, with commas between them",
            "for example 4,4,3,5",
        )
    return tuple(int(part) for part in parts)
