"""Ending a run before its end, in good order: all ranks agree after which update."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Self

from diaulos.errors import DiaulosError
from diaulos.schedules.causality.cut import actions_until
from diaulos.schedules.schedule import Schedule
from diaulos.training.failures import FailureBoard
from diaulos.training.groups import Groups

_ASKED = "diaulos/stop"
_MET = "diaulos/stop/met"
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0
"""How long ranks that live may take to agree: they do so beside their computations."""
_SAME_REQUEST_SECONDS = 3.0
"""A scheduler sends a signal to all processes of a job, and the launcher passes on its own."""
_STATUS = 128 + signal.SIGTERM
"""As shells say that this signal ended it."""


class StoppedError(DiaulosError):
    """A run has ended because it was asked to, with a checkpoint of where it was."""

    exit_status = _STATUS

    def __init__(self, updates: int) -> None:
        super().__init__(f"stopped by SIGTERM after update {updates}; go on with --resume")
        self.updates = updates


class StopSignal:
    """SIGTERM while it is listened to: the first one asks to stop, another ends the process.

    Those that come within seconds of the first are taken for the same request. Also heard while
    the main thread waits for another rank.
    """

    def __init__(self, asked: threading.Event) -> None:
        self._asked = asked
        self._reading, self._writing = -1, -1
        self._before_fd = -1
        self._before: signal.Handlers | object = None

    def __enter__(self) -> Self:
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        self._before_fd = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._before = signal.signal(signal.SIGTERM, _do_nothing)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGTERM, self._before)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._before_fd)
        os.close(self._writing)  # ends the thread

    def _listen(self) -> None:
        first_seconds = None
        while number := os.read(self._reading, 1):
            now = time.monotonic()
            if number[0] != signal.SIGTERM:
                continue
            if first_seconds is None:
                first_seconds = now
                self._asked.set()
            elif now - first_seconds > _SAME_REQUEST_SECONDS:
                os._exit(_STATUS)
        os.close(self._reading)


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    """The thread that listens does it all."""


class Stopping:
    """One rank's part in the agreement after which update a run stops.

    Where any rank is asked to, each says which update it will not pass before all have said so,
    and the last of these is the one. All stages have it, and a checkpoint of it can be written.
    """

    def __init__(self, groups: Groups, board: FailureBoard, *, done: int, stride: int) -> None:
        """Begin to look out for requests, after so many updates are done.

        The run stops after a multiple of `stride` updates.
        """
        self.asked = threading.Event()
        """Set where this rank is asked to stop."""
        self._groups = groups
        self._board = board
        self._stride = stride
        self._lock = threading.Lock()
        self._done = done
        self._bound: int | None = None
        self._agreed = threading.Event()
        self._updates: int | None = None
        self._end: int | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._agree, name="stopping", daemon=True)
        self._thread.start()

    def passed(self, updates: int) -> bool:
        """Note that so many updates are done on this rank; whether the run stops after them."""
        with self._lock:
            self._done = updates
            bound = self._bound
        if bound is None or updates < bound:
            return False
        with self._board.waiting_for(self._board.others):
            if not self._agreed.wait(_PATIENCE_SECONDS):
                raise self._board.blame("stopping", TimeoutError("ranks did not agree in time"))
        return updates == self._updates

    def is_over(self, schedule: Schedule, index: int) -> bool:
        """Whether this rank does no more actions of a schedule from this index on."""
        if self._updates is None or self._updates - 1 not in schedule.batch_numbers:
            return False
        if self._end is None:
            self._end = actions_until(schedule, self._updates - 1)[self._groups.row]
        return index >= self._end

    @property
    def stopped_after(self) -> int | None:
        """The updates after which the run stops, once this rank has had them; None before."""
        return self._updates if self._updates is not None and self._done >= self._updates else None

    def leave(self) -> None:
        """Raise `StoppedError` if the run stops here, once every rank has come as far."""
        if self.stopped_after is not None:
            self._meet()
            raise StoppedError(self.stopped_after)

    def _meet(self) -> None:
        # Not by a message between the ranks: some of those may be under way that nobody takes.
        store, deadline = self._groups.store, time.monotonic() + self._groups.timeout.seconds
        met = store.add(_MET, 1)
        while met < self._groups.grid.ranks:
            if time.monotonic() > deadline:
                raise self._board.blame("stopping", TimeoutError("not all ranks stopped in time"))
            time.sleep(_POLL_SECONDS / 4)
            met = store.add(_MET, 0)

    def close(self) -> None:
        """Look out for requests no more."""
        self._closed.set()
        self._thread.join()

    def _agree(self) -> None:
        store = self._groups.store.clone()  # as the failure board, for the same reason
        try:
            while not (self.asked.is_set() or store.check([_ASKED])):
                if self._closed.wait(_POLL_SECONDS):
                    return
            store.set(_ASKED, "1")
            with self._lock:
                self._bound = (self._done // self._stride + 1) * self._stride
            store.set(_bound_of(self._groups.rank), str(self._bound))
            bounds = [_bound_of(rank) for rank in range(self._groups.grid.ranks)]
            while not store.check(bounds):
                if self._closed.wait(_POLL_SECONDS / 4):
                    return
            self._updates = max(int(store.get(key)) for key in bounds)
            self._agreed.set()
        except RuntimeError:  # the store is gone, and with it the run
            return


def _bound_of(rank: int) -> str:
    return f"{_ASKED}/{rank}"
