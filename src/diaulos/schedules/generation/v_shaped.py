"""Two stages a rank in a V: the first and the last stage stand on the first rank.

Both schedules are those of more microbatches where there are few, with the surplus left out.
"""

from collections import deque

from diaulos.schedules.actions import Kind
from diaulos.schedules.generation.assembly import Step
from diaulos.schedules.generation.completion import Order, flushed
from diaulos.schedules.generation.looped import equal_share
from diaulos.schedules.schedule import Schedule
from diaulos.schedules.shape import PipelineShape


def zero_bubble_v(shape: PipelineShape, batches: range) -> Schedule:
    """ZB-V (Qi et al. 2024): no idle time after the first forward where F, I and W take the same.

    At most 2 d pairs of stage and microbatch in flight on each rank, as much as under 1F1B.
    """
    local = equal_share(shape)

    def order_of(position: int) -> Order:
        rank = _Rank(shape, position)
        rank.zero_bubble_v(max(local, 2 * shape.depth - 1))
        return [step for step in rank.order if step[2] < local]

    limits = [2 * min(shape.depth, local)] * shape.depth
    return flushed("zb-v", shape, batches, order_of=order_of, limits=limits)


def dualpipe_v(shape: PipelineShape, batches: range) -> Schedule:
    """DualPipe-V (DeepSeek-AI 2025): forwards of one chunk in turn with backwards of the other.

    Most backwards are whole. At most 2 d + 1 pairs of stage and microbatch in flight on each rank.
    """
    local = equal_share(shape)

    def order_of(position: int) -> Order:
        rank = _Rank(shape, position)
        rank.dualpipe_v(max(local, 2 * shape.depth))
        return [step for step in rank.order if step[2] < local]

    limits = [min(2 * shape.depth + 1, 2 * local)] * shape.depth
    return flushed("dualpipe-v", shape, batches, order_of=order_of, limits=limits)


class _Rank:
    """The order of one rank while it grows; chunk 0 runs there, chunk 1 back."""

    def __init__(self, shape: PipelineShape, position: int) -> None:
        self.depth, self.position = shape.depth, position
        self.stages = (position, 2 * shape.depth - 1 - position)
        self.order: list[Step] = []
        self.forwards, self.backwards = [0, 0], [0, 0]
        self.waiting: deque[tuple[int, int]] = deque()
        """Weight halves to come: stage and microbatch."""

    def forward(self, chunk: int) -> None:
        self.order.append((Kind.FORWARD, self.stages[chunk], self.forwards[chunk]))
        self.forwards[chunk] += 1

    def backward(self, chunk: int, *, is_whole: bool = True) -> None:
        stage, index = self.stages[chunk], self.backwards[chunk]
        kind = Kind.BACKWARD if is_whole else Kind.INPUT_BACKWARD
        self.order.append((kind, stage, index))
        self.backwards[chunk] += 1
        if not is_whole:
            self.waiting.append((stage, index))

    def weights(self) -> None:
        stage, index = self.waiting.popleft()
        self.order.append((Kind.WEIGHT_BACKWARD, stage, index))

    def halves(self, chunk: int) -> None:
        """Both halves of a backward, one right after the other."""
        self.backward(chunk, is_whole=False)
        stage, index = self.waiting.pop()
        self.order.append((Kind.WEIGHT_BACKWARD, stage, index))

    def zero_bubble_v(self, microbatches: int) -> None:
        depth, position = self.depth, self.position
        for _ in range(2 * (depth - position) - 1):
            self.forward(0)
        for _ in range(position):
            self.forward(1)
            self.forward(0)
        for _ in range(depth - position):
            self.forward(1)
            self.halves(1)
        while self.forwards[1] < microbatches:
            if self.forwards[0] < microbatches:
                self.forward(0)
            self.halves(0)
            self.forward(1)
            self.halves(1)
        for _ in range(position):
            self.backward(0, is_whole=False)
            self.backward(1, is_whole=False)
        for _ in range(depth - position):
            self.backward(0, is_whole=False)
            self.first_weights_of(0)
        for chunk in (1, 0):
            while any(stage == self.stages[chunk] for stage, _ in self.waiting):
                self.first_weights_of(chunk)

    def first_weights_of(self, chunk: int) -> None:
        stage, index = next(half for half in self.waiting if half[0] == self.stages[chunk])
        self.waiting.remove((stage, index))
        self.order.append((Kind.WEIGHT_BACKWARD, stage, index))

    def dualpipe_v(self, microbatches: int) -> None:
        """The eight steps of DeepSeek's DualPipeV, as they are numbered there."""
        depth, position = self.depth, self.position
        for _ in range(2 * (depth - 1 - position)):  # 1: nF0
            self.forward(0)
        for _ in range(position + 1):  # 2: nF0F1
            self.forward(0)
            self.forward(1)
        for _ in range(depth - 1 - position):  # 3: nB1W1F1
            self.backward(1, is_whole=False)
            self.weights()
            self.forward(1)
        for _ in range(microbatches - 2 * depth + position + 1):  # 4: nF0B1F1B0
            self.forward(0)
            self.backward(1)
            self.forward(1)
            self.backward(0)
        for _ in range(depth - 1 - position):  # 5: nB1F1B0
            self.backward(1)
            self.forward(1)
            self.backward(0)
        self._step_6(position + 1)
        for _ in range(depth - 1 - position):  # 7: nWB0
            self.weights()
            self.backward(0, is_whole=False)
        for _ in range(position + 1):  # 8: nW
            self.weights()

    def _step_6(self, pairs: int) -> None:
        """6: nB1B0, the second half of them split."""
        for index in range(2 * pairs):
            self.backward((index + 1) % 2, is_whole=index < pairs)
