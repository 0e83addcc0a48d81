"""Configs of published models that have no closed form, and how many parameters they have."""

from typing import Any

OTHERS: dict[str, dict[str, Any]] = {
    "bert-large": {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 30522,
    },
    "t5-large": {
        "model_type": "t5",
        "d_model": 1024,
        "d_ff": 4096,
        "d_kv": 64,
        "num_heads": 16,
        "num_layers": 24,
        "vocab_size": 32128,
    },
    "vit-large": {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "image_size": 224,
        "patch_size": 16,
        "id2label": {str(index): str(index) for index in range(1000)},
    },
    "mamba2": {"model_type": "mamba2", "num_hidden_layers": 1},
}
"""By name; what a file says beside the sizes is left out."""

PARAMETERS = {"bert-large": 335_174_458, "t5-large": 737_668_096, "vit-large": 304_326_632}
"""As their authors publish them; of BERT with the head that predicts masked tokens."""
