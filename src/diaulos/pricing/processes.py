"""Ranks on this machine: started together, watched, and never left behind."""

import faulthandler
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar, TypeVarTuple

import torch
import torch.distributed as dist

from diaulos.errors import CheckError, InputError

_HOST = "127.0.0.1"
_PRELOADED = (__name__, "torch._dynamo")
"""Imported once for all ranks; torch imports the second when the first optimizer is made."""
_GRACE_SECONDS = 0.3
"""How long after the first failure others may still report, before all are ended."""

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalRank:
    """Who a rank is among those started with it, and where they meet."""

    rank: int
    ranks: int
    store_port: int
    timeout_seconds: float


class RankError(CheckError):
    """A rank failed, died or did not end in time; the message holds its traceback or stack."""

    def __init__(self, message: str, *, rank: int, traceback: str) -> None:
        super().__init__(f"{message}\n{traceback}".rstrip())
        self.rank = rank
        self.traceback = traceback


def run_ranks(
    body: Callable[[LocalRank, *Arguments], Result],
    *arguments: *Arguments,
    ranks: int,
    timeout_seconds: float = 60.0,
    threads: int = 1,
    grace_seconds: float = _GRACE_SECONDS,
) -> list[Result]:
    """What `body(rank, *arguments)` returns on each of `ranks` processes, in rank order.

    `body` is a top-level function; it, the arguments and the results are pickled. Raises
    `RankError` with the traceback of the rank that failed first, or with the stacks of those
    that were not done in time; after the first failure, others have `grace_seconds` to end by
    themselves. When this returns or raises, no rank is left running.
    """
    if ranks < 1:
        raise InputError(f"ranks is {ranks}", "it must be at least 1")
    work = _pickled(body, arguments)
    store = _store(0, is_master=True)
    with tempfile.TemporaryDirectory(prefix="diaulos-") as folder, _ended(_Ranks()) as started:
        for rank in range(ranks):
            identity = LocalRank(
                rank=rank, ranks=ranks, store_port=store.port, timeout_seconds=timeout_seconds
            )
            started.start(identity, work, threads, _stack_file(folder, rank))
        started.watch(time.monotonic() + timeout_seconds, folder, grace_seconds)
        return [pickle.loads(started.reports[rank].result) for rank in range(ranks)]  # noqa: S301


def join_group(rank: LocalRank) -> dist.TCPStore:  # type: ignore[name-defined]
    """Make the default process group, over gloo, of the ranks started together; gives its store.

    Ended by `run_ranks` when the body returns.
    """
    store = _store(rank.store_port, is_master=False)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=rank.rank,
        world_size=rank.ranks,
        timeout=timedelta(seconds=rank.timeout_seconds),
    )
    return store


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report:
    """How a rank ended: with a result, or with a traceback."""

    rank: int
    at_seconds: float
    result: bytes = b""
    traceback: str | None = None


class _Ranks:
    """The processes that were started, and what they have reported."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(_PRELOADED))
        self.processes: list[BaseProcess] = []
        self.pipes: list[Connection] = []
        self.reports: dict[int, _Report] = {}

    def start(self, identity: LocalRank, work: bytes, threads: int, stack_file: Path) -> None:
        receiving, sending = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_run_rank, args=(identity, work, threads, stack_file, sending), daemon=True
        )
        self.pipes.append(receiving)
        process.start()
        sending.close()
        self.processes.append(process)

    def watch(self, deadline: float, folder: str, grace_seconds: float) -> None:
        """Wait for a result of every rank; raise as soon as it is clear which one failed."""
        while len(self.reports) < len(self.processes):
            if not self._receive(deadline - time.monotonic()):
                raise self._late(folder)
            if any(report.traceback is not None for report in self.reports.values()):
                self._receive_all(grace_seconds)
                raise self._failure()

    def end(self) -> None:
        """Kill what still runs, and let go of everything."""
        for process in self.processes:
            # A rank that has reported is on its way out; it may take its group down in peace.
            process.join(_GRACE_SECONDS if len(self.reports) == len(self.processes) else 0)
            process.kill()
        for process in self.processes:
            process.join()
            process.close()
        for pipe in self.pipes:
            pipe.close()

    def _receive(self, timeout_seconds: float) -> bool:
        """Take the reports that have come; False when none came in time."""
        waiting = {
            self.pipes[rank]: rank
            for rank in range(len(self.processes))
            if rank not in self.reports
        }
        ready = wait(list(waiting), max(timeout_seconds, 0.0))
        for pipe in ready:
            assert isinstance(pipe, Connection)
            self.reports[waiting[pipe]] = self._take(waiting[pipe], pipe)
        return bool(ready)

    def _receive_all(self, timeout_seconds: float) -> None:
        deadline = time.monotonic() + timeout_seconds
        while len(self.reports) < len(self.processes):
            if not self._receive(deadline - time.monotonic()):
                return

    def _take(self, rank: int, pipe: Connection) -> _Report:
        try:
            report = pickle.loads(pipe.recv_bytes())  # noqa: S301 - from our own child
            assert isinstance(report, _Report)
        except EOFError:
            self.processes[rank].join()
            code = self.processes[rank].exitcode
            # It died before it could say so: whatever others report is the consequence.
            report = _Report(rank=rank, at_seconds=0.0, traceback=f"It left {_cause(code)}.")
        return report

    def _failure(self) -> RankError:
        failures = [report for report in self.reports.values() if report.traceback is not None]
        failures.sort(key=lambda report: (report.at_seconds, report.rank))
        first, *others = failures
        assert first.traceback is not None
        then = ", ".join(str(report.rank) for report in others)
        message = f"rank {first.rank} of {len(self.processes)} failed" + (
            f" (and then rank {then})" if then else ""
        )
        return RankError(f"{message}:", rank=first.rank, traceback=first.traceback)

    def _late(self, folder: str) -> RankError:
        late = [rank for rank in range(len(self.processes)) if rank not in self.reports]
        for rank in late:
            self._ask_for_stacks(self.processes[rank])
        time.sleep(_GRACE_SECONDS)
        stacks = [
            f"rank {rank}:\n{_stack_file(folder, rank).read_text(encoding='utf-8')}"
            for rank in late
        ]
        names = ", ".join(map(str, late))
        return RankError(
            f"rank {names} of {len(self.processes)} did not end in time; where each was:",
            rank=late[0],
            traceback="\n".join(stacks),
        )

    @staticmethod
    def _ask_for_stacks(process: BaseProcess) -> None:
        if process.pid is not None and process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGUSR1)


@contextmanager
def _ended(ranks: _Ranks) -> Iterator[_Ranks]:
    try:
        yield ranks
    finally:
        ranks.end()


def _run_rank(
    identity: LocalRank, work: bytes, threads: int, stack_file: Path, sending: Connection
) -> None:
    """The life of a rank's process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides, and ends all ranks
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with stack_file.open("w", encoding="utf-8") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=False)
        torch.set_num_threads(threads)
        sending.send_bytes(pickle.dumps(_report(identity, work)))
        if dist.is_initialized():
            dist.destroy_process_group()
        faulthandler.unregister(signal.SIGUSR1)


def _report(identity: LocalRank, work: bytes) -> _Report:
    try:
        body, arguments = pickle.loads(work)  # noqa: S301 - from our own parent
        result = pickle.dumps(body(identity, *arguments))
    except BaseException:  # noqa: BLE001 - whatever it was, the caller must hear of it
        failed_at = time.monotonic()
        return _Report(rank=identity.rank, at_seconds=failed_at, traceback=traceback.format_exc())
    return _Report(rank=identity.rank, at_seconds=time.monotonic(), result=result)


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _pickled(body: Callable[..., Any], arguments: tuple[Any, ...]) -> bytes:
    # Not multiprocessing's own pickling: that sends tensors as handles, which die with the sender.
    try:
        return pickle.dumps((body, arguments))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            f"cannot be sent to a rank: {error}",
            "ranks are processes: what they run and get must survive pickling",
            "use top-level functions and classes instead of lambdas and local ones",
        ) from None


def _store(port: int, *, is_master: bool) -> dist.TCPStore:  # type: ignore[name-defined]
    return dist.TCPStore(  # type: ignore[attr-defined]
        _HOST, port, is_master=is_master, wait_for_workers=False
    )


def _stack_file(folder: str, rank: int) -> Path:
    return Path(folder) / f"rank_{rank}.stacks"


def _cause(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"with exit status {exit_code} and without a result"
    return f"by signal {signal.Signals(-exit_code).name}"
