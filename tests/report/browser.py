"""Headless Chromium over its DevTools pipe: open a page, run a line of script in it, see what it logs and asks for."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
# The browser reads commands from descriptor 3 and answers on 4; this moves our ends of the pipes there.
LAUNCH = (
    "import fcntl,os,sys; away=[fcntl.fcntl(int(end),fcntl.F_DUPFD,10) for end in sys.argv[1:3]]; "
    "os.dup2(away[0],3); os.dup2(away[1],4); os.execv(sys.argv[3],sys.argv[3:])"
)


def find_browser() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one tab. `errors` and `requests` collect what the page did since it was opened."""

    def __init__(self, program: str, profile: Path, *, patience: float = 60.0) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._patience, self._last, self._buffer = patience, 0, b""
        self._events: list[dict[str, Any]] = []
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), program, *FLAGS]
        self._log = (profile.parent / "browser.log").open("wb")
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdout=self._log,
            stderr=self._log,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = ""
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the browser; nothing of it is left running."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
        os.close(self._in)
        os.close(self._out)
        self._log.close()

    def open(self, page: Path | str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Load a page, a file or an address, in a window of this size; wait until its scripts have run."""
        self._size(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.errors.clear()
        self.requests.clear()
        self._events.clear()
        self.send("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self._wait(lambda message: message.get("method") == "Page.loadEventFired")
        self.settle()

    def before_pages(self, script: str) -> Callable[[], object]:
        """Run a script at the beginning of every page from now on; calling what it returns ends that."""
        given = self.send("Page.addScriptToEvaluateOnNewDocument", source=script)["identifier"]
        return lambda: self.send("Page.removeScriptToEvaluateOnNewDocument", identifier=given)

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window another size, and the page time to follow."""
        self._size(width, height)
        self.run("new Promise(done => setTimeout(done, 500))")  # Plotly follows after a while
        self.settle()

    def _size(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.send("Emulation.setDeviceMetricsOverride", **size)

    def settle(self) -> None:
        """Let the page paint twice."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))")

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """A picture of the window, or of the whole page."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole, **(self._clip() if whole else {}))[
            "data"
        ]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF")["data"])

    def _clip(self) -> dict[str, Any]:
        width, height = self.run("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        return {"clip": {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}}

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its result."""
        self._last += 1
        number = self._last
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        answer = self._wait(lambda message: message.get("id") == number)
        if "error" in answer:
            raise AssertionError(f"{method}: {answer['error']}")
        return answer["result"]

    def _wait(self, wanted: Any) -> dict[str, Any]:
        for i, message in enumerate(self._events):
            if wanted(message):
                return self._events.pop(i)
        deadline = time.monotonic() + self._patience
        while True:
            message = self._read(deadline)
            self._note(message)
            if wanted(message):
                return message
            self._events.append(message)

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._in, 1 << 20) if ready else b""
            if not data:
                raise AssertionError("the browser ended or did not answer in time")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"])[:600])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(params["args"])[:600])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(json.dumps(params["entry"])[:600])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
