"""The executor: does a rank's actions, one after another, as the schedule lists them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from diaulos.errors import CheckError
from diaulos.models.layers import Stream
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.schedule import Schedule
from diaulos.training.failures import FailureBoard, RunError
from diaulos.training.finite import first_bad_gradient, first_bad_output, is_finite
from diaulos.training.groups import Groups
from diaulos.training.halves import backward_of_input
from diaulos.training.links import Links, StageForms
from diaulos.training.objective import Objective
from diaulos.training.records import RankRecorder
from diaulos.training.stage import StageModule
from diaulos.training.stopping import Stopping
from diaulos.training.updates import Updater
from diaulos.training.weights import Lease, WeightVersions

_Place = tuple[int, int]
"""A stage and a microbatch."""


@dataclass(slots=True)
class _InFlight:
    """A microbatch between its forward and the end of its backward."""

    lease: Lease
    input: Stream
    roots: Sequence[GradientEdge]
    """Where the backward begins: of the output, or on the last stage of the loss. The output
    itself is not kept."""
    weight_half: Callable[[], None] | None = None
    """What is left once the first half is done; None where nothing up to here is trained."""


class Executor:
    """One rank at work. `run` may be called again with a schedule of later batches."""

    def __init__(
        self,
        *,
        groups: Groups,
        weights: Mapping[int, WeightVersions],
        forms: Mapping[int, StageForms],
        links: Links,
        updater: Updater,
        objective: Objective,
        board: FailureBoard,
        recorder: RankRecorder,
        stopping: Stopping,
    ) -> None:
        self._groups = groups
        self._shape = groups.shape
        shards = groups.grid.ranks_of_row(groups.row)
        self._other_shards = [rank for rank in shards if rank != groups.rank]
        self._weights = weights
        self._forms = forms
        self._links = links
        self._updater = updater
        self._objective = objective
        self._board = board
        self._recorder = recorder
        self._stopping = stopping
        self._in_flight: dict[_Place, _InFlight] = {}
        self._arrived: dict[_Place, Stream] = {}
        """Tensors come and not yet used: of forwards or backwards, never of both at a time."""
        self._leaving: dict[_Place, Stream] = {}
        """Tensors computed and not yet sent."""
        self._do: dict[Kind, Callable[[Action], None]] = {
            Kind.FORWARD: self._forward,
            Kind.BACKWARD: self._backward,
            Kind.INPUT_BACKWARD: self._input_backward,
            Kind.WEIGHT_BACKWARD: self._weight_backward,
            Kind.SEND_FORWARD: self._send,
            Kind.SEND_BACKWARD: self._send,
            Kind.RECEIVE_FORWARD: self._receive,
            Kind.RECEIVE_BACKWARD: self._receive,
            Kind.REDUCE: updater.hand_over,
            Kind.UPDATE: updater.update,
        }

    def run(self, schedule: Schedule) -> None:
        """Do all actions of this rank, or those up to where the run stops.

        Raises `RunError` naming whoever failed first.
        """
        self._shape = schedule.shape
        self._updater.begin(schedule)
        self._links.expect(schedule)
        for index, action in enumerate(schedule.actions[self._groups.row]):
            if self._stopping.is_over(schedule, index):
                break
            self._board.begin(action)
            try:
                self._perform(action)
            except RunError:
                raise
            except Exception as error:  # whatever it was, the other ranks must hear of it
                raise self._board.explain(str(action), error) from error
        self._updater.finish()

    def _perform(self, action: Action) -> None:
        """Do an action; in the layers of sharded stages each shard waits for the others."""
        is_together = action.kind.is_compute or action.kind is Kind.REDUCE
        if not (self._other_shards and is_together):
            self._do[action.kind](action)
            return
        with self._board.waiting_for(self._other_shards):
            self._do[action.kind](action)

    def evaluate(self, objective: Objective, schedule: Schedule) -> float:
        """The loss of held-out data on the newest weights, the same on every rank.

        `schedule` is one of forwards only, of whose microbatches the objective is. Nothing may be
        in flight. Gradients, versions, modes and random numbers are as before.
        """
        loss = torch.zeros(1, dtype=torch.float64, device=self._groups.device)
        newest = {stage: held.module(held.newest) for stage, held in self._weights.items()}
        self._shape = schedule.shape
        self._links.expect(schedule)
        with torch.no_grad(), _evaluating(newest.values()):
            for action in schedule.actions[self._groups.row]:
                with self._board.reporting(f"evaluating, in {action}"):
                    if action.kind is Kind.FORWARD:
                        loss += self._evaluate(newest[action.stage], objective, action)
                    else:
                        self._do[action.kind](action)
        with self._board.waiting_for(self._board.others):
            try:
                dist.all_reduce(loss, group=self._groups.world)
            except RuntimeError as error:
                raise self._board.blame("evaluating", error) from error
        self._links.settle_batch(0)
        return float(loss)

    def _evaluate(self, module: StageModule, objective: Objective, action: Action) -> float:
        """Do a forward; what it adds to the loss."""
        if action.stage == 0:
            entering = self._to_device(objective.inputs(action.number))
        else:
            entering = self._arrived.pop((action.stage, action.number))
        output = module(entering, action.number)
        if action.stage == self._shape.stages - 1:
            loss = float(objective.loss(output, action.number))
            return loss if self._groups.is_first_shard else 0.0
        self._pass_on(action, action.stage + 1, output)
        return 0.0

    def _forward(self, action: Action) -> None:
        start = self._recorder.now()
        assert action.version is not None
        lease = self._weights[action.stage].lease(action.version)
        entering = self._entering(action)
        output = lease.module(entering, action.number)
        is_last = action.stage == self._shape.stages - 1
        if is_last:
            output = (self._objective.loss(output, action.number),)
        ends = [tensor for tensor in output if tensor.requires_grad]
        if not all(is_finite(tensor.detach()) for tensor in ends):
            layer = first_bad_output(lease.module, entering, action.number)
            what = "the loss" if layer is None else f"the output of layer {layer}"
            raise CheckError(f"{what} is not finite for {self._named(action)}")
        if is_last and self._groups.is_first_shard:
            self._updater.add_loss(action.number // self._shape.microbatches, output[0].detach())
        if not is_last:
            self._pass_on(action, action.stage + 1, tuple([t.detach() for t in output]))
        stashed = _InFlight(lease, entering, [get_gradient_edge(tensor) for tensor in ends])
        self._in_flight[action.stage, action.number] = stashed
        self._recorder.note_in_flight(len(self._in_flight))
        self._recorder.action(action, start)

    def _entering(self, action: Action) -> Stream:
        if action.stage == 0:
            return self._to_device(self._objective.inputs(action.number))
        stream = self._arrived.pop((action.stage, action.number))
        for place in self._forms[action.stage].input.differentiated:
            stream[place].requires_grad_()
        return stream

    def _to_device(self, stream: Stream) -> Stream:
        return tuple([tensor.to(self._groups.device) for tensor in stream])

    def _backward(self, action: Action) -> None:
        start = self._recorder.now()
        stashed = self._stashed(action)
        gradients = self._gradients(action)
        if stashed.roots:  # not where nothing up to here is trained
            torch.autograd.backward(stashed.roots, gradients)
        self._pass_back(action, stashed, gradients)
        self._end_backward(action, stashed)
        self._recorder.action(action, start)

    def _input_backward(self, action: Action) -> None:
        start = self._recorder.now()
        stashed = self._stashed(action)
        gradients = self._gradients(action)
        differentiated = [tensor for tensor in stashed.input if tensor.requires_grad]
        if differentiated:
            module = stashed.lease.module
            half = backward_of_input(
                stashed.roots,
                gradients,
                differentiated,
                weights=module.trained(),
                at_once=module.recomputed_parameters(),
            )
            stashed.weight_half = half.run
        elif stashed.roots:  # nobody waits for a gradient: all of it is left for later
            stashed.weight_half = partial(torch.autograd.backward, stashed.roots, gradients)
        stashed.roots = ()
        self._pass_back(action, stashed, gradients)
        self._recorder.action(action, start)

    def _weight_backward(self, action: Action) -> None:
        start = self._recorder.now()
        stashed = self._stashed(action)
        if stashed.weight_half is not None:
            stashed.weight_half()
        self._end_backward(action, stashed)
        self._recorder.action(action, start)

    def _stashed(self, action: Action) -> _InFlight:
        stashed = self._in_flight[action.stage, action.number]
        if stashed.lease.version != action.version:
            raise CheckError(
                f"its forward used version {stashed.lease.version} of the weights and its backward "
                f"is to use {action.version}"
            )
        return stashed

    def _gradients(self, action: Action) -> Stream | None:
        """What arrived for a backward.

        On the last stage, where it begins with the loss, the loss scale, or None.
        """
        if action.stage == self._shape.stages - 1:
            scale = self._updater.scale(action.number // self._shape.microbatches)
            if scale is None:
                return None
            dtype = self._objective.precision.updating
            return (torch.tensor(scale, dtype=dtype, device=self._groups.device),)
        return self._arrived.pop((action.stage, action.number))

    def _pass_back(self, action: Action, stashed: _InFlight, gradients: Stream | None) -> None:
        if action.stage == 0:
            return
        passed = tuple([_gradient_of(tensor) for tensor in stashed.input if tensor.requires_grad])
        # A loss scale that is too large shows in the norm: the update is skipped everywhere.
        is_scaled = self._objective.precision.is_scaled
        if not is_scaled and not all(map(is_finite, passed)):
            layer = self._layer_with_bad_gradient(action, stashed, gradients)
            place = "at the loss" if layer is None else f"in layer {layer}"
            raise CheckError(f"the gradient is not finite {place} for {self._named(action)}")
        self._pass_on(action, action.stage - 1, passed)

    def _layer_with_bad_gradient(
        self, action: Action, stashed: _InFlight, gradients: Stream | None
    ) -> str | None:
        def gradients_of(output: Stream) -> Stream:
            if gradients is not None:
                return gradients
            differentiated = [tensor for tensor in output if tensor.requires_grad]
            return torch.autograd.grad(self._objective.loss(output, action.number), differentiated)

        module = stashed.lease.module
        return first_bad_gradient(module, stashed.input, action.number, gradients_of)

    def _named(self, action: Action) -> str:
        batch, within = divmod(action.number, self._shape.microbatches)
        return f"microbatch {within} of batch {batch}"

    def _pass_on(self, action: Action, stage: int, stream: Stream) -> None:
        """Lay tensors where their send finds them, or the stage that takes them on this rank."""
        if self._shape.is_handed_over(min(action.stage, stage)):
            self._leaving[action.stage, action.number] = stream
        else:
            self._arrived[stage, action.number] = stream

    def _end_backward(self, action: Action, stashed: _InFlight) -> None:
        del self._in_flight[action.stage, action.number]
        self._weights[action.stage].release(stashed.lease)

    def _send(self, action: Action) -> None:
        self._links.send(action, self._leaving.pop((action.stage, action.number)))

    def _receive(self, action: Action) -> None:
        self._arrived[action.stage, action.number] = self._links.receive(action)


def _gradient_of(tensor: Tensor) -> Tensor:
    """The gradient of what entered; zero where the stage has no use for it."""
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


@contextmanager
def _evaluating(modules: Iterable[StageModule]) -> Iterator[None]:
    """Dropout off, and on again."""
    for module in modules:
        module.eval()
    yield
    for module in modules:
        module.train()
