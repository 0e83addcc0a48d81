"""Models traced on the meta device beside their closed forms; prints the table of docs/models.md.

python -m benchmarks.traced_models
"""

import time
from functools import partial

from diaulos.clusters.expression import parse_cluster
from diaulos.documents import Value
from diaulos.estimating.estimate import estimate
from diaulos.models.decoders.configuration import parse_config
from diaulos.models.decoders.operations import decoder_operations
from diaulos.models.operations import ModelOperations, Workload
from diaulos.models.traced.model import parse_model
from tests.estimating.models import configuration
from tests.models.decoders.published import CONFIGS

CLUSTER = parse_cluster("1x2xH100-80GB")
WORKLOAD = Workload(microbatch_size=1, sequence_length=2048)


def kept_bytes(operations: ModelOperations) -> float:
    """Of all layers, where nothing is recomputed."""
    return sum(tensor.bytes for layer in operations.layers for tensor in layer.operations.saved)


def main() -> None:
    """One line a model."""
    chosen = configuration(pipeline=2, sequence_length=WORKLOAD.sequence_length)
    print("model              parameters       FLOPs     kept     step    closed    traced")
    for name, config in CONFIGS.items():
        document = Value(config, "$", name)
        start = time.perf_counter()
        by_form = partial(decoder_operations, parse_config(document, name))
        closed = by_form(WORKLOAD)
        middle = time.perf_counter()
        by_tracing = parse_model(document, name)
        traced = by_tracing(WORKLOAD)
        end = time.perf_counter()
        steps = [estimate(model, CLUSTER, chosen).step_seconds for model in (by_tracing, by_form)]
        print(
            f"{name:17}"
            f" {traced.parameter_count - closed.parameter_count:+11d}"
            f" {traced.model_flops / closed.model_flops - 1:+11.4%}"
            f" {kept_bytes(traced) / kept_bytes(closed) - 1:+8.1%}"
            f" {steps[0] / steps[1] - 1:+8.1%}"
            f" {1e3 * (middle - start):6.1f} ms {1e3 * (end - middle):6.0f} ms"
        )


if __name__ == "__main__":
    main()
