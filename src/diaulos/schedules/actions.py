"""The action: the one thing that is checked, simulated, executed, traced and printed.

An action is written as its stage, its kind and its number: `2F0` is the forward of microbatch 0 on
stage 2, `1SEND_B3` sends the gradient of microbatch 3 from stage 1 backwards, `0UPDATE4` applies
the update of batch 4. A backward is done whole, `1B3`, or in two halves: `1I3` gives the gradient
of the stage's input, which the stage before waits for, and `1W3` that of its weights, which nobody
waits for but the update. Forwards and backwards carry the weight version that they use: `2F9@1`.
"""

import re
from enum import Enum
from typing import NamedTuple

from diaulos.errors import InputError


class Kind(Enum):
    """What an action does; the value is its text."""

    FORWARD = "F"
    BACKWARD = "B"
    """Both halves at once."""
    INPUT_BACKWARD = "I"
    WEIGHT_BACKWARD = "W"
    SEND_FORWARD = "SEND_F"
    RECEIVE_FORWARD = "RECV_F"
    SEND_BACKWARD = "SEND_B"
    RECEIVE_BACKWARD = "RECV_B"
    REDUCE = "REDUCE"
    """Hand over the gradients of a batch: summed over replicas, norms over stages."""
    UPDATE = "UPDATE"
    """Apply the optimizer to a batch: makes the next weight version."""

    def __init__(self, text: str) -> None:
        self.code = len(self.__class__.__members__)
        """Its place among the kinds, for columns of numbers."""
        self.is_compute = text in ("F", "B", "I", "W")
        """Whether it is a forward, a backward or a half of one."""
        self.gives_gradient = text in ("B", "I")
        """Whether the stage before can go on once it is done."""
        self.ends_backward = text in ("B", "W")
        """Whether the microbatch is no longer in flight once it is done."""
        self.is_send = text.startswith("SEND")
        """Whether it gives a tensor to another stage."""
        self.is_receive = text.startswith("RECV")
        """Whether it takes a tensor from another stage."""
        self.is_of_batch = text in ("REDUCE", "UPDATE")
        """Whether its number is that of a batch and not of a microbatch."""

    # A member is the only one of its value; Enum would hash its name, which takes longer.
    __hash__ = object.__hash__


class Action(NamedTuple):
    """One step of one rank."""

    stage: int
    kind: Kind
    number: int
    """The microbatch, counted through all batches; for REDUCE and UPDATE the batch."""
    version: int | None = None
    """The weight version that a computation uses: how many updates it has seen."""

    def __str__(self) -> str:
        tag = "" if self.version is None else f"@{self.version}"
        return f"{self.stage}{self.kind.value}{self.number}{tag}"

    def matching_send(self) -> "Action":
        """The send, on the neighbouring stage, that a receive waits for."""
        if self.kind is Kind.RECEIVE_FORWARD:
            return Action(self.stage - 1, Kind.SEND_FORWARD, self.number)
        return Action(self.stage + 1, Kind.SEND_BACKWARD, self.number)

    def matching_receive(self) -> "Action":
        """The receive, on the neighbouring stage, that takes what a send gives."""
        if self.kind is Kind.SEND_FORWARD:
            return Action(self.stage + 1, Kind.RECEIVE_FORWARD, self.number)
        return Action(self.stage - 1, Kind.RECEIVE_BACKWARD, self.number)


_KINDS = "|".join(sorted((kind.value for kind in Kind), key=len, reverse=True))
_PATTERN = re.compile(rf"(\d+)({_KINDS})(\d+)(?:@(\d+))?", re.ASCII)


def parse_action(text: str) -> Action:
    """The action of a text such as `2F0`, `1SEND_B3` or `0F9@1`."""
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise InputError(
            f"{text!r} is not an action",
            "an action is a stage, a kind and a number",
            "for example 2F0, 1SEND_B3 or 0UPDATE4",
        )
    kind = Kind(match[2])
    if match[4] is not None and not kind.is_compute:
        raise InputError(f"{text!r} has a weight version", "only forwards and backwards have one")
    return Action(int(match[1]), kind, int(match[3]), None if match[4] is None else int(match[4]))
