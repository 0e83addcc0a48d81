"""Who sends what to whom: the handshake of each edge, and its sends and receives."""

import json
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from diaulos.errors import CheckError
from diaulos.models.layers import Stream
from diaulos.schedules.actions import Action, Kind
from diaulos.schedules.causality.arrivals import sends_proven_by
from diaulos.schedules.schedule import Schedule
from diaulos.training.failures import FailureBoard, RunError
from diaulos.training.groups import Groups
from diaulos.training.pieces import pieces, run_of

_RECEIVES_AHEAD = 2
"""Receives posted before they are needed: the next of each direction."""
_TAGS = 2**30
_MOST_TENSORS = 64
"""Of one message, as far as tags go; those of one edge arrive in order beyond that, too."""


@dataclass(frozen=True, slots=True)
class TensorForm:
    """Shape and type of a tensor that passes an edge, for every microbatch the same."""

    shape: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(tensor: Tensor) -> "TensorForm":
        """The form of a tensor."""
        return TensorForm(tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    def empty(self, device: torch.device) -> Tensor:
        """A tensor of this form, to be filled."""
        return torch.empty(self.shape, dtype=getattr(torch, self.dtype), device=device)

    @property
    def is_float(self) -> bool:
        """Whether it could have a gradient."""
        return getattr(torch, self.dtype).is_floating_point  # type: ignore[no-any-return]

    @property
    def elements(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class EdgeForm:
    """What passes an edge forward for every microbatch, and of which a gradient comes back."""

    tensors: tuple[TensorForm, ...]
    differentiated: tuple[int, ...] = ()
    """The places of those with a gradient: none where nothing before the edge is trained."""

    @staticmethod
    def of(stream: Stream) -> "EdgeForm":
        """The form of tensors, of which those that require a gradient get one."""
        places = tuple(place for place, tensor in enumerate(stream) if tensor.requires_grad)
        return EdgeForm(tuple(map(TensorForm.of, stream)), places)

    @property
    def gradients(self) -> tuple[TensorForm, ...]:
        """What passes the edge backward."""
        return tuple(self.tensors[place] for place in self.differentiated)

    def __str__(self) -> str:
        named = (
            str(form) if place in self.differentiated or not form.is_float else f"{form} (frozen)"
            for place, form in enumerate(self.tensors)
        )
        return ", ".join(named)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageForms:
    """What a rank believes enters and leaves one of its stages."""

    input: EdgeForm
    output: EdgeForm


def shake_hands(groups: Groups, forms: Mapping[int, StageForms]) -> None:
    """Compare what both ends of every edge expect; the same `RunError` on every rank otherwise.

    `forms` are those of this rank's stages. A receive into a buffer of another size or type would
    be silent garbage, or end the process.
    """
    key = "diaulos/handshake/{}"
    message = {stage: [_view(form.input), _view(form.output)] for stage, form in forms.items()}
    groups.store.set(key.format(groups.rank), json.dumps(message))
    views = [json.loads(groups.store.get(key.format(rank))) for rank in range(groups.grid.ranks)]
    for stage in range(groups.shape.stages - 1):
        for sender in groups.grid.ranks_of(stage):
            for receiver in groups.grid.ranks_of(stage + 1):
                sent = _read(views[sender][str(stage)][1])
                expected = _read(views[receiver][str(stage + 1)][0])
                if sent != expected:
                    raise RunError(
                        f"{groups.named(sender)} sends {sent} and {groups.named(receiver)} "
                        f"expects {expected}; both ends of an edge must agree on shape and type, "
                        "so start all ranks with the same model and microbatch size"
                    )


_View = tuple[list[tuple[list[int], str]], list[int]]


def _view(form: EdgeForm) -> _View:
    tensors = [(list(tensor.shape), tensor.dtype) for tensor in form.tensors]
    return tensors, list(form.differentiated)


def _read(view: _View) -> EdgeForm:
    tensors, differentiated = view
    forms = tuple(TensorForm(tuple(shape), dtype) for shape, dtype in tensors)
    return EdgeForm(forms, tuple(differentiated))


@dataclass(slots=True)
class _Posted:
    """A tensor under way; that of a send must stay as it is until its work is done."""

    tensor: Tensor
    """What is sent; or what is received, the whole or this shard's run of it."""
    works: list[dist.Work]
    """One for each shard of the peer that takes or gives a piece."""
    peers: tuple[int, ...]


class Links:
    """The messages of one rank, in the order of its action list, tagged by microbatch and border.

    Receives are posted ahead, since a send only completes against a posted receive. A sent tensor
    is held until the peer is known to have it: when something arrives that the peer sends later,
    and at the latest when its batch is updated. Between stages of several shards each byte of a
    tensor is sent once: see `pieces`. A message of several tensors is as many sends, one of none
    is nothing.
    """

    def __init__(
        self, groups: Groups, forms: Mapping[int, StageForms], board: FailureBoard
    ) -> None:
        self._groups = groups
        self._messages = {
            (stage, kind): message
            for stage, form in forms.items()
            for kind, message in (
                (Kind.RECEIVE_FORWARD, form.input.tensors),
                (Kind.SEND_BACKWARD, form.input.gradients),
                (Kind.SEND_FORWARD, form.output.tensors),
                (Kind.RECEIVE_BACKWARD, form.output.gradients),
            )
        }
        self._board = board
        self._shape = groups.shape
        self._shards = groups.grid.shards_of_row(groups.row)
        self._shard = groups.shard
        self._upcoming: deque[Action] = deque()
        self._receiving: dict[Action, tuple[_Posted, ...]] = {}
        self._sending: dict[Action, tuple[_Posted, ...]] = {}
        self._proven: Mapping[Action, tuple[Action, ...]] = {}

    def expect(self, schedule: Schedule) -> None:
        """Begin to receive for a schedule."""
        self._shape = schedule.shape
        actions = schedule.actions[self._groups.row]
        self._upcoming.extend(action for action in actions if action.kind.is_receive)
        self._proven = sends_proven_by(schedule, self._groups.row)
        self._post_ahead()

    def receive(self, action: Action) -> Stream:
        """The tensors that a receive action waits for; the shards of a replica call it together."""
        posted = self._receiving.pop(action)
        self._wait(posted, action)
        self._post_ahead()
        for send in self._proven.get(action, ()):
            self._settle(send)
        if self._groups.sharded is None:
            return tuple([each.tensor for each in posted])
        return tuple(
            self._put_together(each.tensor, form, action)
            for each, form in zip(posted, self._message(action), strict=True)
        )

    def send(self, action: Action, stream: Stream) -> None:
        """Start to send tensors; they must not be changed afterwards."""
        agreed = self._message(action)
        forms = tuple(map(TensorForm.of, stream))
        if forms != agreed:
            found, wanted = (", ".join(map(str, some)) for some in (forms, agreed))
            raise CheckError(f"it would send {found}, and {wanted} was agreed on for this edge")
        receive = action.matching_receive()
        row = self._shape.rank_of(receive.stage, receive.number)
        self._sending[action] = tuple(
            [
                self._start(dist.isend, action, row, tensor.contiguous(), place, first=0)
                for place, tensor in enumerate(stream)
            ]
        )

    def settle_batch(self, batch: int) -> None:
        """Let go of what was sent for a batch and all before it; every rank is done with it."""
        last = (batch + 1) * self._shape.microbatches
        for action in [action for action in self._sending if action.number < last]:
            self._settle(action)

    def _settle(self, send: Action) -> None:
        if send in self._sending:
            self._wait(self._sending.pop(send), send)

    def _post_ahead(self) -> None:
        while self._upcoming and len(self._receiving) < _RECEIVES_AHEAD:
            action = self._upcoming.popleft()
            send = action.matching_send()
            row = self._shape.rank_of(send.stage, send.number)
            self._receiving[action] = tuple(
                [
                    self._start(dist.irecv, action, row, tensor, place, first=own.start)
                    for place, form in enumerate(self._message(action))
                    for tensor, own in [self._receive_into(form)]
                ]
            )

    def _receive_into(self, form: TensorForm) -> tuple[Tensor, range]:
        """A tensor of this form, or the run of it that this shard receives, and which run it is."""
        if self._groups.sharded is None:
            return form.empty(self._groups.device), range(form.elements)
        own = run_of(form.elements, self._shards, self._shard)
        each = len(run_of(form.elements, self._shards, 0))
        return replace(form, shape=(each,)).empty(self._groups.device), own

    def _put_together(self, run: Tensor, form: TensorForm, action: Action) -> Tensor:
        """The whole tensor of which each shard has received a run."""
        assert self._groups.sharded is not None
        whole = run.new_empty(run.numel() * self._shards)
        with self._board.waiting_for(self._groups.grid.ranks_of_row(self._groups.row)):
            try:
                dist.all_gather_single(whole, run, group=self._groups.sharded.computing)
            except RuntimeError as error:
                raise self._board.blame(str(action), error) from error
        return whole[: form.elements].view(form.shape)

    def _message(self, action: Action) -> tuple[TensorForm, ...]:
        return self._messages[action.stage, action.kind]

    def _start(
        self,
        operation: Callable[..., dist.Work | None],
        action: Action,
        row: int,
        tensor: Tensor,
        place: int,
        *,
        first: int,
    ) -> _Posted:
        """Begin to exchange the tensor at a place of a message with the ranks of a row.

        It begins at the element `first`.
        """
        runs_forward = action.kind in (Kind.SEND_FORWARD, Kind.RECEIVE_FORWARD)
        group = self._groups.forward if runs_forward else self._groups.backward
        grid = self._groups.grid
        elements = self._message(action)[place].elements
        exchanged = pieces(
            elements,
            shards=self._shards,
            shard=self._shard,
            peer_shards=grid.shards_of_row(row),
        )
        peers = tuple(grid.rank_at(row, piece.peer_shard) for piece in exchanged)
        works = []
        with self._board.waiting_for(peers):
            for piece, peer in zip(exchanged, peers, strict=True):
                part = tensor
                if piece.end - piece.begin < elements:
                    part = tensor.view(-1)[piece.begin - first : piece.end - first]
                try:
                    work = operation(part, peer, group=group, tag=self._tag(action, place))
                except RuntimeError as error:
                    raise self._board.blame(str(action), error) from error
                assert work is not None
                works.append(work)
        return _Posted(tensor, works, peers)

    def _tag(self, action: Action, place: int) -> int:
        """The same on both ends, and another for each of the tensors that are under way."""
        border = action.stage if _is_behind(action) else action.stage - 1
        message = action.number * self._shape.stages + border
        return (message * _MOST_TENSORS + place) % _TAGS

    def _wait(self, posted: tuple[_Posted, ...], action: Action) -> None:
        for each in posted:
            with self._board.waiting_for(each.peers):
                try:
                    for work in each.works:
                        work.wait()
                except RuntimeError as error:
                    raise self._board.blame(str(action), error) from error


def _is_behind(action: Action) -> bool:
    """Whether a message passes the border behind its stage, and not the one before it."""
    return action.kind in (Kind.SEND_FORWARD, Kind.RECEIVE_BACKWARD)
