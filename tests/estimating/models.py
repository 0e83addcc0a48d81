"""Models and configurations that the tests of estimates share."""

from functools import partial
from typing import Any

from diaulos.documents import Value
from diaulos.estimating.configuration import Configuration
from diaulos.models.decoders.configuration import parse_config
from diaulos.models.decoders.inline import gpt_sizes
from diaulos.models.decoders.operations import decoder_operations
from diaulos.models.operations import Model
from diaulos.pricing.analytic.groups import Degrees
from tests.models.decoders.published import CONFIGS


def published(name: str) -> Model:
    """A published model by name."""
    return partial(decoder_operations, parse_config(Value(CONFIGS[name], "$", name), name))


def gpt(
    *, hidden: int, layers: int, heads: int, vocabulary: int = 51200, positions: int = 2048
) -> Model:
    """A GPT of these sizes."""
    sizes = gpt_sizes(
        hidden=hidden, layers=layers, heads=heads, vocabulary=vocabulary, positions=positions
    )
    return partial(decoder_operations, sizes)


def configuration(
    *,
    tensor: int = 1,
    pipeline: int = 1,
    data: int = 1,
    context: int = 1,
    expert: int = 1,
    **changes: Any,
) -> Configuration:
    """Eight samples a step, one at a time, unless said otherwise."""
    degrees = Degrees(tensor=tensor, pipeline=pipeline, data=data, context=context, expert=expert)
    given: dict[str, Any] = {"microbatch_size": 1, "batch_size": 8, "sequence_length": 2048}
    return Configuration(degrees=degrees, **{**given, **changes})
