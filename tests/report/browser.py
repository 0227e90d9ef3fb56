"""A headless Chromium driven through its DevTools protocol over a pipe: no driver, no port.

Messages are JSON, each ended by a zero byte, on the child's file descriptors 3 and 4
(`--remote-debugging-pipe`); see https://chromedevtools.github.io/devtools-protocol/.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Against a hang only: axe-core takes its time on a large page and a busy machine.
_TIMEOUT_S = 300.0


def find_chromium() -> str | None:
    """The path of a Chromium on this machine, or None."""
    return next((path for path in map(shutil.which, _NAMES) if path), None)


class Browser:
    """One Chromium with one page; use as a context manager."""

    def __init__(self, executable: str) -> None:
        self._profile = tempfile.TemporaryDirectory(
            prefix="advisor-chromium-", ignore_cleanup_errors=True
        )
        child_reads, self._write = os.pipe()
        self._read, child_writes = os.pipe()
        # The protocol fixes the numbers 3 and 4: move the child's ends out of their way, then let
        # the shell's redirections put them there.
        to_child, from_child = (
            fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (child_reads, child_writes)
        )
        os.close(child_reads)
        os.close(child_writes)
        command = f'exec "$0" "$@" 3<&{to_child} 4>&{from_child} {to_child}<&- {from_child}>&-'
        self._process = subprocess.Popen(
            [
                "/bin/bash", "-c", command, executable, "--headless", "--no-sandbox",
                "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                "--hide-scrollbars", "--disable-background-networking",
                f"--user-data-dir={self._profile.name}", "--remote-debugging-pipe", "about:blank",
            ],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_child)
        os.close(from_child)
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send one command and wait for its result; events that come meanwhile are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            answer = self._receive(deadline)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, path: Path, *, width: int, dark: bool = False, height: int = 900) -> None:
        """Load a file at a width (CSS pixels) and in a colour scheme; returns when it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = "dark" if dark else "light"
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + _TIMEOUT_S
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive(deadline))

    def pretend(self, url: str, html: str) -> None:
        """Show ``html`` as if ``url`` had answered it: a page of that origin, without a network."""
        self.events.clear()
        self.call("Fetch.enable", patterns=[{"urlPattern": f"{url}*"}])
        self.evaluate(f"void setTimeout(() => {{ location.href = {json.dumps(url)}; }})")
        paused = self._wait_for("Fetch.requestPaused")
        self.call(
            "Fetch.fulfillRequest",
            requestId=paused["requestId"],
            responseCode=200,
            responseHeaders=[{"name": "Content-Type", "value": "text/html"}],
            body=base64.b64encode(html.encode()).decode(),
        )
        self._wait_for("Page.loadEventFired")
        self.call("Fetch.disable")

    def _wait_for(self, method: str) -> dict[str, Any]:
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            for event in self.events:
                if event.get("method") == method:
                    parameters: dict[str, Any] = event["params"]
                    return parameters
            self.events.append(self._receive(deadline))

    def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, top: int = 0, height: int | None = None) -> None:
        """A PNG of the whole page, or of ``height`` pixels from ``top``."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0, "y": top, "width": size["width"], "height": height or size["height"] - top,
            "scale": 1,
        }  # fmt: skip
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session = ""
        # Chromium's children write into the profile until the browser itself has ended them.
        with contextlib.suppress(RuntimeError, TimeoutError, OSError):
            self.call("Browser.close")
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._read], [], [], left)[0]:
                raise TimeoutError("Chromium does not answer")
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise RuntimeError(f"Chromium ended with status {self._process.wait()}")
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message
