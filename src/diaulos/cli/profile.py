"""`diaulos profile`: measure the layers of a model on this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from diaulos.cli.output import make_console, note, print_json
from diaulos.clusters.files import write_cluster
from diaulos.errors import InputError
from diaulos.models.factories import MadeModel, load_model, pretrained_model
from diaulos.models.files import format_graph, write_graph
from diaulos.models.gpt import GPTConfig, gpt
from diaulos.models.graph import LayerGraph
from diaulos.models.layers import LayeredModel
from diaulos.pricing import measure
from diaulos.pricing.links import local_cluster
from diaulos.pricing.training_memory import with_training_state
from diaulos.reporting.layers_table import layers_table
from diaulos.training.optimizers import SGD, AdamW
from diaulos.units import parse_bytes

_LEARNING_RATE = 1e-4  # changes no price
_SIZES = ("layers", "width", "heads", "sequence_length")


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class GPTFlags:
    """The sizes of a GPT, where no other model is given."""

    layers: int | None = None
    """Transformer blocks, without embedding and head."""
    width: int | None = None
    """Size of a token's vector."""
    heads: int | None = None
    """Attention heads; they divide the width."""
    sequence_length: int | None = None
    """Tokens in a sample."""
    vocabulary: int = 256
    """Different tokens; 256 for bytes."""

    def given(self) -> dict[str, int]:
        """The sizes that are, by flag."""
        sizes = {name: getattr(self, name) for name in _SIZES}
        return {
            f"--{name.replace('_', '-')}": size for name, size in sizes.items() if size is not None
        }

    def model(self) -> LayeredModel:
        """The GPT of these sizes."""
        if len(self.given()) < len(_SIZES):
            flags = [f"--{name.replace('_', '-')}" for name in _SIZES]
            missing = ", ".join(flag for flag in flags if flag not in self.given())
            raise InputError(
                f"{missing} not given", f"a model is module:factory, or {', '.join(flags)}"
            )
        sizes = {name: getattr(self, name) for name in _SIZES}
        return gpt(GPTConfig(**sizes, vocabulary=self.vocabulary))


def profile(
    source: str | None = None,
    /,
    *,
    model: GPTFlags | None = None,
    microbatch_size: int | None = None,
    processes: int = 1,
    optimizer: Literal["adamw", "adamw-fused", "sgd"] = "adamw",
    repetitions: int = 3,
    device: str = "cpu",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    cluster: Path | None = None,
    memory: str | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Measure the layers of a model on this machine, with and without recomputation.

    Prints seconds and bytes of each layer; the graph can be planned with `diaulos plan`.

    Parameters
    ----------
    source
        A Hugging Face model (its folder or config.json, with --sequence-length), or module:factory,
        a function that returns a LayeredModel, or a torch module and a tuple of example inputs; or
        give the sizes of a GPT.
    model
        The sizes of a GPT.
    microbatch_size
        Samples in a microbatch; those of the example inputs unless given.
    processes
        How many measure at the same time: the ranks that will share this machine.
    optimizer
        Whose update is timed and whose state is counted.
    repetitions
        Batches of 4 microbatches that are measured.
    device
        What the layers run on.
    output
        Where to write the layer graph, JSON.
    cluster
        Where to write this machine as a cluster of as many devices as processes, TOML.
    memory
        Of each device in the cluster file, such as 2GiB; an equal share of the machine's if absent.
    as_json
        Print the layer graph as JSON instead of the table.

    """
    made = _model(source, model or GPTFlags())
    samples = made.samples if microbatch_size is None else microbatch_size
    if samples is None:
        raise InputError("--microbatch-size not given", "prices are those of a microbatch")
    memory_bytes = None if memory is None else parse_bytes(memory)
    chosen = _optimizer(optimizer)
    measured = measure.profile(
        made.model,
        microbatch_size=samples,
        processes=processes,
        optimizer=chosen.factory(),
        repetitions=repetitions,
        device=device,
    )
    graph = with_training_state(
        measured,
        optimizer_bytes_per_parameter_byte=chosen.state_bytes_per_parameter_byte,
    )
    if output is not None:
        write_graph(output, graph)
    if cluster is not None:
        largest = max((int(edge.bytes) for edge in graph.edges), default=1)
        local = local_cluster(processes=processes, memory_bytes=memory_bytes, message_bytes=largest)
        write_cluster(cluster, local)
    _show(graph, as_json=as_json, written=[path for path in (output, cluster) if path])


def _model(source: str | None, flags: GPTFlags) -> MadeModel:
    if source is None:
        return MadeModel(model=flags.model())
    given = set(flags.given())
    if Path(source).exists():
        if given != {"--sequence-length"} or flags.sequence_length is None:
            raise InputError(
                f"{', '.join(sorted(given)) or 'nothing'} given beside {source}",
                "a Hugging Face model is measured for samples of --sequence-length",
            )
        made = pretrained_model(Path(source), sequence_length=flags.sequence_length)
        return MadeModel(model=made)
    if given:
        raise InputError(
            f"{', '.join(flags.given())} given beside {source}",
            "a model is made by a factory or of sizes, not both",
        )
    return load_model(source)


def _optimizer(name: str) -> AdamW | SGD:
    if name == "sgd":
        return SGD(learning_rate=_LEARNING_RATE)
    return AdamW(learning_rate=_LEARNING_RATE, fused=name == "adamw-fused")


def _show(graph: LayerGraph, *, as_json: bool, written: list[Path]) -> None:
    if as_json:
        print_json(format_graph(graph))
    else:
        make_console().print(layers_table(graph))
    ratio = graph.provenance["layers_over_whole_model"]
    note(f"the layers add up to {ratio} of the time of the model run as a whole")
    for path in written:
        note(f"wrote {path}")
