"""Who sends what to whom: the handshake of each edge, and its sends and receives."""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.errors import CheckError
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.arrivals import sends_proven_by
from diaulos.schedules.schedule import Schedule
from diaulos.training.failures import FailureBoard, RunError
from diaulos.training.groups import Groups

_RECEIVES_AHEAD = 2
"""Receives posted before they are needed: the next of each direction."""


@dataclass(frozen=True, slots=True)
class TensorForm:
    """Shape and type of the tensor that passes an edge, for every microbatch the same."""

    shape: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(tensor: Tensor) -> "TensorForm":
        """The form of a tensor."""
        return TensorForm(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    def empty(self, device: torch.device) -> Tensor:
        """A tensor of this form, to be filled."""
        return torch.empty(self.shape, dtype=getattr(torch, self.dtype), device=device)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageForms:
    """What a rank believes enters and leaves its stage."""

    input: TensorForm
    output: TensorForm


def shake_hands(groups: Groups, forms: StageForms) -> None:
    """Compare what both ends of every edge expect; the same `RunError` on every rank otherwise.

    A receive into a buffer of another size or type would be silent garbage, or end the process.
    """
    key = "diaulos/handshake/{}"
    message = {
        side: [list(form.shape), form.dtype]
        for side, form in (("input", forms.input), ("output", forms.output))
    }
    groups.store.set(key.format(groups.rank), json.dumps(message))
    views = [json.loads(groups.store.get(key.format(rank))) for rank in range(groups.shape.ranks)]
    for sender in range(groups.shape.ranks):
        for receiver in range(groups.shape.ranks):
            if groups.shape.stage_of(receiver) == groups.shape.stage_of(sender) + 1:
                sent = TensorForm(*_form(views[sender]["output"]))
                expected = TensorForm(*_form(views[receiver]["input"]))
                if sent != expected:
                    raise RunError(
                        f"{groups.named(sender)} sends {sent} and {groups.named(receiver)} "
                        f"expects {expected}; both ends of an edge must agree on shape and type, "
                        "so start all ranks with the same model and microbatch size"
                    )


def _form(view: list[object]) -> tuple[tuple[int, ...], str]:
    shape, dtype = view
    assert isinstance(shape, list)
    assert isinstance(dtype, str)
    return tuple(shape), dtype


@dataclass(slots=True)
class _Posted:
    """A message under way; a send's tensor must stay as it is until its work is done."""

    work: dist.Work
    tensor: Tensor
    peer: int


class Links:
    """The messages of one rank, in the order of its action list, tagged by microbatch.

    Receives are posted ahead, since a send only completes against a posted receive. A sent tensor
    is held until the peer is known to have it: when something arrives that the peer sends later,
    and at the latest when its batch is updated.
    """

    def __init__(self, groups: Groups, forms: StageForms, board: FailureBoard) -> None:
        self._groups = groups
        self._forms = forms
        self._board = board
        self._upcoming: deque[Action] = deque()
        self._receiving: dict[Action, _Posted] = {}
        self._sending: dict[Action, _Posted] = {}
        self._proven: Mapping[Action, tuple[Action, ...]] = {}

    def expect(self, schedule: Schedule) -> None:
        """Begin to receive for a schedule."""
        actions = schedule.actions[self._groups.rank]
        self._upcoming.extend(action for action in actions if action.kind.is_receive)
        self._proven = sends_proven_by(schedule, self._groups.rank)
        self._post_ahead()

    def receive(self, action: Action) -> Tensor:
        """The tensor that a receive action waits for."""
        posted = self._receiving.pop(action)
        self._wait(posted, action)
        self._post_ahead()
        for send in self._proven.get(action, ()):
            self._settle(send)
        return posted.tensor

    def send(self, action: Action, tensor: Tensor) -> None:
        """Start to send a tensor; it must not be changed afterwards."""
        forwards = action.kind is Kind.SEND_FORWARD
        agreed = self._forms.output if forwards else self._forms.input
        form = TensorForm.of(tensor)
        if form != agreed:
            raise CheckError(f"it would send {form}, and {agreed} was agreed on for this edge")
        peer = self._peer(action.stage + (1 if forwards else -1), action)
        tensor = tensor.contiguous()
        work = self._start(dist.isend, tensor, peer, action, forwards=forwards)
        self._sending[action] = _Posted(work, tensor, peer)

    def settle_batch(self, batch: int) -> None:
        """Let go of what was sent for a batch and all before it; every rank is done with it."""
        last = (batch + 1) * self._groups.shape.microbatches
        for action in [action for action in self._sending if action.number < last]:
            self._settle(action)

    def _settle(self, send: Action) -> None:
        if send in self._sending:
            self._wait(self._sending.pop(send), send)

    def _post_ahead(self) -> None:
        while self._upcoming and len(self._receiving) < _RECEIVES_AHEAD:
            action = self._upcoming.popleft()
            forwards = action.kind is Kind.RECEIVE_FORWARD
            peer = self._peer(action.stage + (-1 if forwards else 1), action)
            form = self._forms.input if forwards else self._forms.output
            tensor = form.empty(self._groups.device)
            work = self._start(dist.irecv, tensor, peer, action, forwards=forwards)
            self._receiving[action] = _Posted(work, tensor, peer)

    def _start(
        self,
        operation: Callable[..., dist.Work | None],
        tensor: Tensor,
        peer: int,
        action: Action,
        *,
        forwards: bool,
    ) -> dist.Work:
        group = self._groups.forward if forwards else self._groups.backward
        try:
            work = operation(tensor, peer, group=group, tag=action.number)
        except RuntimeError as error:
            raise self._board.blame(str(action), error, peer=peer) from error
        assert work is not None
        return work

    def _wait(self, posted: _Posted, action: Action) -> None:
        try:
            posted.work.wait()
        except RuntimeError as error:
            raise self._board.blame(str(action), error, peer=posted.peer) from error

    def _peer(self, stage: int, action: Action) -> int:
        return self._groups.shape.rank_of(stage, action.number)
