"""FLOPs are those that torch's own counter counts."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from diaulos.documents import Value
from diaulos.models.operations import Workload

transformers = pytest.importorskip("transformers", reason="needs the extra diaulos[hf]")

from diaulos.models.traced.model import parse_model  # noqa: E402

SIZES = {"num_hidden_layers": 2, "vocab_size": 512}
CONFIGS = {
    "llama": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, **SIZES},
    "bert": {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, **SIZES},
    "t5": {"d_model": 64, "d_ff": 96, "d_kv": 16, "num_heads": 4, "num_layers": 2},
    "mixtral": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        **SIZES,
    },
}
TASKS = {
    "llama": "AutoModelForCausalLM",
    "bert": "AutoModelForMaskedLM",
    "t5": "AutoModelForSeq2SeqLM",
    "mixtral": "AutoModelForCausalLM",
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_flops_are_those_of_the_counter(kind: str) -> None:
    """Forward and backward of a small model, run with plain attention, count as many."""
    found = parse_model(Value({"model_type": kind, **CONFIGS[kind]}, "$", kind), kind)(
        Workload(microbatch_size=2, sequence_length=32)
    )
    config = transformers.AutoConfig.for_model(kind, **CONFIGS[kind])
    with torch.device("meta"):
        model = getattr(transformers, TASKS[kind]).from_config(
            config, attn_implementation="eager", dtype=torch.bfloat16
        )
        if kind == "mixtral":  # of grouped products the counter knows nothing
            model.set_experts_implementation("batched_mm")
        tokens = torch.ones(2, 32, dtype=torch.long)
        inputs = {"input_ids": tokens, "attention_mask": torch.ones(2, 1, 32, 32).bfloat16()}
        if kind == "t5":
            inputs["decoder_input_ids"] = tokens
        with FlopCounterMode(display=False) as counter:
            model(**inputs, use_cache=False).logits.sum().backward()
    assert found.model_flops == pytest.approx(counter.get_total_flops(), rel=0.001)
