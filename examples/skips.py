"""Train a network with skip connections in two stages, cut along its graph, and compare.

`model` and `batches` are factories for `diaulos profile` and for run files, too.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from diaulos.models.exported.export import exported
from diaulos.models.layers import LayeredModel
from diaulos.planning.plan import Plan, Stage
from diaulos.pricing.measure import profile
from diaulos.training.compare import compare_gradients
from diaulos.training.job import TrainingJob

SAMPLES, WIDTH, CLASSES = 8, 32, 10


class Hourglass(nn.Module):
    """Narrower and wider again; each layer on the way up sees the one on the way down."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Linear(WIDTH >> i, WIDTH >> (i + 1)) for i in range(3))
        self.up = nn.ModuleList(nn.Linear(WIDTH >> (i + 1), WIDTH >> i) for i in (2, 1, 0))
        self.classes = nn.Linear(WIDTH, CLASSES)

    def forward(self, pixels: Tensor, mask: Tensor) -> Tensor:
        hidden, skipped = pixels.masked_fill(mask, 0.0), []
        for layer in self.down:
            skipped.append(hidden)
            hidden = torch.relu(layer(hidden))
        for layer in self.up:
            hidden = torch.relu(layer(hidden)) + skipped.pop()
        return self.classes(hidden)


def microbatch(batch: int, number: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Pixels and which of them are hidden, and classes: a function of the microbatch's number."""
    generator = torch.Generator().manual_seed(1000 * batch + number)
    pixels = torch.randn(SAMPLES, WIDTH, generator=generator)
    mask = torch.rand(SAMPLES, WIDTH, generator=generator) < 0.1
    return (pixels, mask), torch.randint(CLASSES, (SAMPLES,), generator=generator)


def batches():
    return microbatch


def model() -> LayeredModel:
    torch.manual_seed(0)
    inputs, classes = microbatch(0, 0)
    return exported(Hourglass(), inputs, classes, loss=partial(cross_entropy, reduction="sum"))


def main() -> None:
    cut = model()
    graph = profile(cut, microbatch_size=SAMPLES)
    stages = (range(3), range(3, len(cut.layers)))
    plan = Plan(
        microbatches=4,
        stages=tuple(
            Stage(
                layers=tuple(layers),
                data_parallel=1,
                tensor_parallel=1,
                options=dict.fromkeys(layers, "plain"),
            )
            for layers in stages
        ),
    )
    for number, layers in enumerate(stages):
        print(f"stage {number}: {', '.join(cut.layers[place].name for place in layers)}")
    job = TrainingJob(
        model=cut,
        graph=graph,
        plan=plan,
        schedule="1f1b",
        data=microbatch,
        microbatch_size=SAMPLES,
        batches=3,
        make_optimizer=partial(torch.optim.AdamW, lr=1e-2),
    )
    print(f"gradients differ from those of one process by at most {compare_gradients(job)}")


if __name__ == "__main__":
    main()
