"""A thread that does what it is given, one thing after another."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")


class Worker:
    """Work beside the thread that hands it over, in the order in which it is handed over."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: when a run fails, this thread may wait for a peer that is gone.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, task: Callable[[], Result]) -> "Future[Result]":
        """Have a task done; its result or its exception is in the future."""
        future: Future[Result] = Future()

        def work() -> None:
            try:
                future.set_result(task())
            except BaseException as error:  # noqa: BLE001 - raised where the result is wanted
                future.set_exception(error)

        self._tasks.put(work)
        return future

    def close(self) -> None:
        """End the thread after what was handed over."""
        self._tasks.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
