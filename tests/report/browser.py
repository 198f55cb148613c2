"""A headless Chromium that is spoken to over a pipe (DevTools protocol): no driver, no port, no further package."""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from project import PATIENCE

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")  # Debian's first
PX_PER_IN = 96


def program() -> str | None:
    """The browser: TOKENCODES_CHROMIUM, else the first that is installed; None if there is none."""
    return os.environ.get("TOKENCODES_CHROMIUM") or next(
        (found for name in NAMES if (found := shutil.which(name))), None
    )


class Browser:
    """One page. Messages are JSON, each ended by a zero byte, on file descriptors 3 (to) and 4 (from)."""

    def __init__(self, profile: Path) -> None:
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        flags = "--headless --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run --disable-extensions"
        command = f'exec "$0" {flags} --user-data-dir="$1" about:blank 3<&{to_read} 4>&{back_write}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, program() or "", str(profile)],
            pass_fds=(to_read, back_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(back_write)
        os.set_blocking(self.back, False)
        self.buffer, self.number, self.session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        pages = [t for t in self("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self.session = self("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")

    def __call__(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            assert time.monotonic() < end and self.process.poll() is None, "the browser does not answer"
            try:
                self.buffer += os.read(self.back, 2**20)
            except BlockingIOError:
                time.sleep(0.005)
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def open(self, page: Path, *, width: int, height: int = 900, dark: bool = False, media: str = "") -> None:
        """Load a file in a window of this size, and wait until it is there."""
        self("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.events.clear()
        self("Page.navigate", url=page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, as JSON."""
        found = self("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """What was logged, thrown or could not be loaded since the page was opened."""
        told = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Network.loadingFailed")
        return [json.dumps(event["params"]) for event in self.events if event["method"] in told]

    def requests(self) -> list[str]:
        """The addresses that the page asked for; what it holds itself is cut short."""
        sent = (event for event in self.events if event["method"] == "Network.requestWillBeSent")
        return [event["params"]["request"]["url"][:40] for event in sent]

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of the window, or of the whole page."""
        data = self("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def print(self, path: Path) -> None:
        """The page as it is printed on A4."""
        data = self(
            "Page.printToPDF", printBackground=True, preferCSSPageSize=False, paperWidth=8.27, paperHeight=11.69
        )
        path.write_bytes(base64.b64decode(data["data"]))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.session = None
            self("Browser.close")
        for handle in (self.to, self.back):
            os.close(handle)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser that is closed at the end."""
    found = Browser(profile)
    try:
        yield found
    finally:
        found.close()
