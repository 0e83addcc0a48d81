"""A headless Chromium with one page, driven through its DevTools protocol over a pair of pipes."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--remote-debugging-pipe",
    "--window-size=1200,900",
)
TROUBLE = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


class Page:
    """What a person does with a page, and what it then shows."""

    def __init__(self, commands: BinaryIO, answers: BinaryIO) -> None:
        self._commands, self._answers = commands, answers
        self._session: dict[str, str] = {}
        self._sent = 0
        self.console: list[dict[str, Any]] = []
        """Everything that the page has written there, and errors that nobody caught."""

    def open(self, address: str) -> None:
        target = self._send("Target.createTarget", url="about:blank")
        attached = self._send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in ("Runtime", "Log", "Page"):
            self._send(f"{domain}.enable")
        self._send("Page.navigate", url=address)
        while self._receive().get("method") != "Page.loadEventFired":
            pass

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression, which may be a promise."""
        answer = self._send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def drawn(self) -> None:
        """Wait until all that is due has been drawn."""
        self.ask("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")

    def mouse(self, kind: str, x: float, y: float, **details: Any) -> None:
        self._send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **details)
        self.drawn()

    def click(self, selector: str) -> None:
        """Press an element in its middle."""
        x, y = self.ask(
            f"(() => {{ const b = document.querySelector({json.dumps(selector)})"
            ".getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def key(self, name: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self._send("Input.dispatchKeyEvent", type=kind, key=name)
        self.drawn()

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        command = {"id": self._sent, "method": method, "params": parameters, **self._session}
        self._commands.write(json.dumps(command).encode() + b"\0")
        self._commands.flush()
        while (answer := self._receive()).get("id") != self._sent:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def _receive(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        message = json.loads(text)
        if message.get("method") in TROUBLE:
            self.console.append(message)
        return message


@contextmanager
def opened(page: str, folder: Path) -> Iterator[Page]:
    """A page in a browser of its own."""
    assert CHROMIUM is not None
    path = folder / "page.html"
    path.write_text(page, encoding="utf-8")
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()

    def place_pipes() -> None:
        """The browser reads commands from descriptor 3 and writes answers to 4."""
        first, second = os.dup(theirs_in), os.dup(theirs_out)
        os.dup2(first, 3)
        os.dup2(second, 4)

    with (
        os.fdopen(ours_out, "wb") as commands,
        os.fdopen(ours_in, "rb") as answers,
        subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}"],
            preexec_fn=place_pipes,  # noqa: PLW1509 - it only copies descriptors
            close_fds=False,
            stderr=subprocess.DEVNULL,
        ) as browser,
    ):
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            visitor = Page(commands, answers)
            visitor.open(path.as_uri())
            yield visitor
        finally:
            browser.kill()
