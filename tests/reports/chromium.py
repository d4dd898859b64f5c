"""A headless Chromium that shows a page as a phone, a dark screen or a sheet of paper would."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aftlib.reports import export

CHROMIUM = export.find_browser()
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no browser on this machine")

# Scrolls through the page until its figures are drawn, and then some time for late changes.
DRAWN = """new Promise((done) => {
  const look = () => {
    const boxes = [...document.querySelectorAll(".canvas > .plotly")];
    const next = boxes.find((box) => box.dataset.drawn !== "yes");
    next?.scrollIntoView();
    if (document.readyState !== "complete" || next) setTimeout(look, 50);
    else setTimeout(done, 300);
  };
  look();
})"""


class Page:
    """The one page of a browser, driven by the browser's own protocol."""

    def __init__(self, socket: Any) -> None:
        self.socket, self.count, self.session = socket, 0, {}
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = {"sessionId": attached["sessionId"]}

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        call = {"id": self.count, "method": method, "params": parameters} | self.session
        self.socket.send(json.dumps(call))
        while (answer := json.loads(self.socket.recv())).get("id") != self.count:
            pass
        assert "error" not in answer, answer
        return answer["result"]

    def run(self, script: str) -> Any:
        """Return what a script in the page evaluates to, once its promise is resolved."""
        parameters = {"expression": script, "awaitPromise": True, "returnByValue": True}
        answer = self.call("Runtime.evaluate", **parameters)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def size(self, width: int) -> None:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def medium(self, medium: str, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    def show(self, path: Path, width: int, scheme: str = "light") -> None:
        """Open a page on a screen, and wait until all its figures are drawn."""
        self.size(width)
        self.medium("screen", scheme)
        self.call("Page.navigate", url=path.as_uri())
        self.run(DRAWN)


@contextmanager
def open_page(program: str, folder: Path) -> Iterator[Page]:
    """Start the browser with a fresh profile in `folder`, and end it with the block."""
    import websocket

    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += [f"--user-data-dir={folder}", "--remote-debugging-port=0", "about:blank"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        line = next(line for line in process.stderr if "DevTools listening on" in line)
        socket = websocket.create_connection(
            line.split()[-1], timeout=500, suppress_origin=True, enable_multithread=False
        )
        yield Page(socket)
        socket.close()
    finally:
        process.kill()
        process.communicate()
