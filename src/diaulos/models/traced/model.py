"""A config of transformers as a model: what it computes for any microbatch."""

from difflib import get_close_matches
from functools import partial

import transformers
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

from diaulos.documents import Value
from diaulos.errors import InputError
from diaulos.models.decoders.keys import Keys
from diaulos.models.operations import ModelOperations, Workload
from diaulos.models.traced.assembly import Assembly, assembled
from diaulos.models.traced.attention import note_attention
from diaulos.models.traced.blocks import find_blocks
from diaulos.models.traced.huggingface import (
    build_model,
    find_head,
    model_inputs,
    split_plan,
    whole_classes,
)
from diaulos.models.traced.recorder import Recorder
from diaulos.models.traced.tracer import Segment, element_dtype, in_short, trace, without_data


def parse_model(document: Value, name: str) -> "TracedModel":
    """The model in the document of a config; of one that also reads images, its text part."""
    keys = Keys.of(document, name)
    if "text_config" in keys:
        keys = keys.inner("text_config", f"{keys.name} (its text part)")
    kind = keys.text("model_type")
    if kind not in CONFIG_MAPPING:
        near = get_close_matches(kind, CONFIG_MAPPING, n=3)
        raise keys.value("model_type").error(
            f"is {kind!r}, which transformers {transformers.__version__} does not know",
            "it must be one of its models",
            f"did you mean {' or '.join(near)}?" if near else "",
        )
    raw = {key: value.raw for key, value in keys.members.items() if key != "model_type"}
    with keys.document.context():
        try:
            config = AutoConfig.for_model(kind, **raw)
        except Exception as error:  # which its classes of configs raise of all kinds
            raise InputError(f"is no config of transformers: {in_short(error)}") from error
        return TracedModel(config, keys.name)


class TracedModel:
    """A `diaulos.models.operations.Model`, built once; each workload is traced once."""

    def __init__(self, config: PretrainedConfig, name: str) -> None:
        self.name = name
        self._module = build_model(config)
        self._names: dict[Tensor, str] = {
            some: name for name, some in self._module.named_parameters()
        }
        self._blocks = find_blocks(self._module, whole_classes(self._module))
        self._head = find_head(self._module, frozenset(block.path for block in self._blocks))
        self._made: dict[Workload, ModelOperations] = {}

    def __call__(self, workload: Workload) -> ModelOperations:
        """All layers for one microbatch."""
        if workload not in self._made:
            self._made[workload] = self._operations(workload)
        return self._made[workload]

    def _operations(self, workload: Workload) -> ModelOperations:
        head, module = self._head or (None, None)
        plan = split_plan(self._module, self._names, head)
        assembly = Assembly(self._names, self._segments(workload, module), plan)
        heads = getattr(self._module.config, "num_attention_heads", 1)
        return assembled(
            self.name,
            workload,
            assembly,
            has_loss=True,
            stated_heads=heads if isinstance(heads, int) else 1,
        )

    def _segments(self, workload: Workload, head: nn.Module | None) -> list[Segment]:
        self._module.to(dtype=element_dtype(workload))  # type: ignore[call-arg]
        recorder = Recorder(self._names, self._dense_experts(workload))
        note_attention(self._module, recorder)
        with without_data(self._module):
            inputs = model_inputs(self._module, workload)
            run = partial(self._module, **inputs)
            segments = trace(self._module, recorder, self._blocks, head, run)
        _check_length(segments, workload)
        return segments

    def _dense_experts(self, workload: Workload) -> tuple[int, int, int]:
        """Experts, those that each token takes, and tokens."""
        config = self._module.config
        count = getattr(config, "num_local_experts", None)
        active = getattr(config, "num_experts_per_tok", None)
        return (count, active, workload.tokens) if count and active else (1, 1, 1)


def _check_length(segments: list[Segment], workload: Workload) -> None:
    """The hidden state has as many positions as the workload says; images state theirs."""
    first = next((segment for segment in segments if segment.tape.attentions), None)
    if first is None:
        return
    queries = first.tape.attentions[0].queries
    if queries != workload.sequence_length:
        raise InputError(
            f"sequence_length is {workload.sequence_length}",
            f"the model makes sequences of {queries} of its inputs",
            f"take {queries}",
        )
