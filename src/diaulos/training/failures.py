"""Who failed first: written once where all ranks read it, so that each names the same culprit."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

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


class FailureBoard:
    """One note for the whole run; the first rank to write it wins.

    A rank that fails writes why. A rank that only loses a connection reads who did; where nobody
    has written, it calls the roll, which every living rank answers from a thread, and names the
    one that does not.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._answer_roll_call, name="roll", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread that answers roll calls."""
        self._closed.set()
        self._thread.join()

    def report(self, action: str, error: BaseException) -> RunError:
        """The error to raise for a failure of this rank's own."""
        reason = str(error) or type(error).__name__
        return RunError(str(self._write(self._groups.rank, f"failed in {action}: {reason}")))

    @contextmanager
    def reporting(self, action: str) -> Iterator[None]:
        """Turn any failure of this rank's own into the error that `report` gives."""
        try:
            yield
        except RunError:
            raise
        except Exception as error:  # whatever it was, the other ranks must hear of it
            raise self.report(action, error) from error

    def meet(self, place: str) -> None:
        """Wait until every rank is here."""
        try:
            dist.barrier(group=self._groups.world)
        except RuntimeError as error:
            raise self.blame(place, error) from error

    def blame(self, action: str, error: BaseException, *, peer: int | None = None) -> RunError:
        """The error to raise when a connection failed: to a peer, or in a sum over all ranks."""
        failure = self._read() or self._find_out(action, error, peer)
        me = self._groups.named(self._groups.rank)
        return RunError(f"{failure}\n{me} stopped in {action}")

    def _find_out(self, action: str, error: BaseException, peer: int | None) -> Failure:
        silent = self._call_roll()
        written = self._read()
        if written is not None:
            return written
        if silent:
            return self._write(silent[0], "no longer answers: it was killed, or is stopped")
        me = self._groups.named(self._groups.rank)
        reason = str(error).splitlines()[0]
        if peer is None:
            return self._write(self._groups.rank, f"failed in {action}: {reason}")
        return self._write(peer, f"did not do its part of {action} on {me} in time: {reason}")

    def _call_roll(self) -> list[int]:
        """The ranks that do not answer, unless somebody writes a failure in the meantime."""
        store = self._groups.store
        store.set(_ROLL_CALL, "1")
        missing = list(range(self._groups.shape.ranks))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while missing and time.monotonic() < deadline and not store.check([_FAILURE]):
            time.sleep(_POLL_SECONDS / 4)
            missing = [rank for rank in missing if not store.check([_present(rank)])]
        return missing

    def _answer_roll_call(self) -> None:
        # A connection of its own: a store serves one call at a time, and some calls wait.
        store = self._groups.store.clone()
        while not self._closed.wait(_POLL_SECONDS):
            try:
                if store.check([_ROLL_CALL]):
                    store.set(_present(self._groups.rank), "1")
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


def _present(rank: int) -> str:
    return f"{_ROLL_CALL}/{rank}"
