"""A headless Chromium driven over a pipe with the DevTools protocol: no port, no driver, nothing to download."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
    "--force-prefers-reduced-motion", "about:blank",
)  # fmt: skip


def find_chromium() -> str | None:
    """The first installed browser, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page in one browser; `with Browser() as page: page.open(path)`."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        self._rest = b""
        self._session: str | None = None

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_theirs, self._write = os.pipe()
        self._read, write_theirs = os.pipe()

        def _as_three_and_four() -> None:  # where the browser expects its pipes
            first, second = os.dup(read_theirs), os.dup(write_theirs)
            os.dup2(first, 3)
            os.dup2(second, 4)

        command = [find_chromium() or "chromium", f"--user-data-dir={self._profile.name}", *OPTIONS]
        self._process = subprocess.Popen(
            command,
            preexec_fn=_as_three_and_four,
            close_fds=False,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        os.close(read_theirs)
        os.close(write_theirs)
        target = self.call("Target.getTargets")["targetInfos"]
        page = next(info["targetId"] for info in target if info["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its answer; events that come in between are kept."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def open(self, file: Path) -> None:
        """Load a file and wait until it is ready."""
        self.call("Page.navigate", url=file.resolve().as_uri())
        while self.evaluate("document.readyState") != "complete":
            pass

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def look(self, *, width: int, height: int = 900, dark: bool = False, scale: float = 1) -> None:
        """Set the size of the window and the theme of the system."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=scale, mobile=width < 600,
        )  # fmt: skip
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[theme])

    def press(self, key: str) -> None:
        """A key, into whatever has the focus."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """The window, or the whole page, as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

    def print_to(self, file: Path) -> None:
        """The page as a PDF."""
        data = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False, paperWidth=8.27)["data"]
        file.write_bytes(base64.b64decode(data))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._read, 1 << 20)
            if not part:
                raise RuntimeError("the browser went away")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def _note(self, event: dict[str, Any]) -> None:
        method, parameters = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(parameters["exceptionDetails"]["exception"].get("description", "exception"))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in {"error", "warning"}:
            self.problems.append(parameters["entry"]["text"])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "warning"}:
            self.problems.append(str(parameters["args"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
