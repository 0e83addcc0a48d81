"""Who failed first: written once where all ranks read it, so that each names the same culprit."""

import json
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist

from diaulos.errors import CheckError
from diaulos.training.groups import Groups

_FAILURE = "diaulos/failure"
_ROLL_CALL = "diaulos/roll-call"
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 1.5
"""How long a rank that lost its connection waits for a word about why."""


class RunError(CheckError):
    """A run stopped on every rank; the message names the rank that failed first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The first failure of a run."""

    rank: str
    """As messages call it, with its stages."""
    reason: str

    def __str__(self) -> str:
        return f"{self.rank} {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a living rank says when the roll is called."""

    doing: str
    waits_for: list[int]


class FailureBoard:
    """One note for the whole run; the first rank to write it wins.

    A rank that fails writes why. A rank that only loses a connection, or waits too long, reads who
    did; where nobody has written, it calls the roll, which every living rank answers from a
    thread: what it does, and for whom it waits. The culprit is the rank that does not answer, or
    else one that others wait for and that waits for nobody.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._doing: object = "the start"
        self._waits_for: Sequence[int] = ()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._answer_roll_call, name="roll", daemon=True)
        self._thread.start()

    def begin(self, action: object) -> None:
        """Note what the rank does from now on."""
        self._doing = action

    @contextmanager
    def waiting_for(self, ranks: Sequence[int]) -> Iterator[None]:
        """Note for whom the rank waits meanwhile; it goes on doing so where that fails."""
        before, self._waits_for = self._waits_for, ranks
        yield
        self._waits_for = before

    def close(self) -> None:
        """End the thread that answers roll calls."""
        self._closed.set()
        self._thread.join()

    def report(self, action: str, error: BaseException) -> RunError:
        """The error to raise for a failure of this rank's own."""
        reason = str(error) or type(error).__name__
        return RunError(str(self._write(self._groups.rank, f"failed in {action}: {reason}")))

    def explain(self, action: str, error: BaseException) -> RunError:
        """The error to raise for a failure in a computation, of its own or of another shard's."""
        if self._groups.sharded is not None and _is_of_connection(error):
            return self.blame(action, error)
        return self.report(action, error)

    @contextmanager
    def reporting(self, action: str) -> Iterator[None]:
        """Turn any failure of this rank's own into the error that `report` gives."""
        try:
            yield
        except RunError:
            raise
        except Exception as error:  # whatever it was, the other ranks must hear of it
            raise self.explain(action, error) from error

    def meet(self, place: str) -> None:
        """Wait until every rank is here."""
        self.begin(place)
        with self.waiting_for(self.others):
            try:
                dist.barrier(group=self._groups.world)
            except RuntimeError as error:
                raise self.blame(place, error) from error

    @property
    def others(self) -> Sequence[int]:
        """All ranks but this one."""
        return [rank for rank in range(self._groups.grid.ranks) if rank != self._groups.rank]

    def blame(self, action: str, error: BaseException) -> RunError:
        """The error to raise when a connection failed, or what was waited for did not come."""
        failure = self._read() or self._find_out(action, error)
        me = self._groups.named(self._groups.rank)
        return RunError(f"{failure}\n{me} stopped in {action}")

    def _find_out(self, action: str, error: BaseException) -> Failure:
        answers = self._call_roll()
        written = self._read()
        if written is not None:
            return written
        silent = [rank for rank in range(self._groups.grid.ranks) if rank not in answers]
        if silent:
            return self._write(silent[0], "no longer answers: it was killed, or is stopped")
        me = self._groups.named(self._groups.rank)
        reason = str(error).splitlines()[0]
        culprit = _first_idle(answers, self._groups.rank)
        if culprit is None:
            return self._write(self._groups.rank, f"failed in {action}: {reason}")
        table = "".join(
            f"\n{self._groups.named(rank)} was in {answer.doing}"
            + "".join(f", waiting for rank {peer}" for peer in answer.waits_for[:1])
            for rank, answer in sorted(answers.items())
        )
        return self._write(
            culprit, f"did not do its part of {action} on {me} in time: {reason}{table}"
        )

    def _call_roll(self) -> dict[int, _Answer]:
        """The answers of the ranks, unless somebody writes a failure in the meantime."""
        store = self._groups.store
        store.set(_ROLL_CALL, "1")
        answers: dict[int, _Answer] = {}
        deadline = time.monotonic() + _PATIENCE_SECONDS
        ranks = range(self._groups.grid.ranks)
        while len(answers) < len(ranks) and time.monotonic() < deadline:
            if store.check([_FAILURE]):
                break
            time.sleep(_POLL_SECONDS / 4)
            for rank in ranks:
                if rank not in answers and store.check([_present(rank)]):
                    answers[rank] = _Answer(**json.loads(store.get(_present(rank))))
        return answers

    def _answer_roll_call(self) -> None:
        # A connection of its own: a store serves one call at a time, and some calls wait.
        store = self._groups.store.clone()
        while not self._closed.wait(_POLL_SECONDS):
            try:
                if store.check([_ROLL_CALL]):
                    answer = _Answer(doing=str(self._doing), waits_for=list(self._waits_for))
                    store.set(_present(self._groups.rank), json.dumps(asdict(answer)))
                    return
            except RuntimeError:  # the store is gone, and with it the run
                return

    def _write(self, rank: int, reason: str) -> Failure:
        failure = Failure(rank=self._groups.named(rank), reason=reason)
        stored = self._groups.store.compare_set(_FAILURE, "", json.dumps(asdict(failure)))
        return Failure(**json.loads(stored))

    def _read(self) -> Failure | None:
        if not self._groups.store.check([_FAILURE]):
            return None
        return Failure(**json.loads(self._groups.store.get(_FAILURE)))


def _is_of_connection(error: BaseException) -> bool:
    """Whether a collective failed, and not what is computed; gloo and NCCL name themselves."""
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and "gloo/transport" in str(error)


def _present(rank: int) -> str:
    return f"{_ROLL_CALL}/{rank}"


def _first_idle(answers: dict[int, _Answer], rank: int) -> int | None:
    """The nearest rank that this one waits for, over others or not, and that waits for nobody."""
    seen, waiting = {rank}, deque([rank])
    while waiting:
        for peer in answers[waiting.popleft()].waits_for:
            if not answers[peer].waits_for:
                return peer
            if peer not in seen:
                seen.add(peer)
                waiting.append(peer)
    return None
