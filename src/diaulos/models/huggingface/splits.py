"""How layers of Hugging Face models are split: as the model's own tensor-parallel plan says."""

from collections.abc import Mapping
from types import MappingProxyType

from transformers import PreTrainedConfig, PreTrainedModel

from diaulos.models.huggingface.layout import LayerLayout
from diaulos.models.tensor_split import Split, TensorSplit

_STYLES: Mapping[str, Split] = MappingProxyType(
    {
        "colwise": Split.COLUMNS,
        "rowwise": Split.ROWS,
        "replicated_with_grad_allreduce": Split.HEAD_NORM,
    }
)


_OUTER_STYLES = ("colwise_gather_output", "embedding_rowwise")
"""Of embedding and head, whose outputs are put together on every shard."""


def tensor_split(
    config: PreTrainedConfig, template: PreTrainedModel, layout: LayerLayout | None
) -> TensorSplit | None:
    """The split of a layer, or of the loss; None where the model has no such plan.

    Models that drop out entries of the attention are not split: the masks would depend on the
    degree.
    """
    plan: Mapping[str, str] = getattr(config, "base_model_tp_plan", None) or {}
    if not plan or config.to_dict().get("attention_dropout"):
        return None
    if layout is None:
        return TensorSplit()
    if layout.block is None:
        outer = template._tp_plan or {}  # noqa: SLF001 - the plan of the model around its base
        split = [own for own, place in layout.places.items() if outer.get(place) in _OUTER_STYLES]
        return TensorSplit(modules=dict.fromkeys(split, Split.GATHERED_COLUMNS))
    blocks = layout.block.partition(".")[2] + "."
    styles = {
        f"block.{name.removeprefix(blocks)}": style
        for name, style in plan.items()
        if name.startswith(blocks)
    }
    if not set(styles.values()) <= set(_STYLES):
        return None
    return TensorSplit(
        modules={name: _STYLES[style] for name, style in styles.items()},
        counts={
            "heads": config.num_attention_heads,
            "heads of keys and values": config.num_key_value_heads,
        },
    )
