"""Chromium without a screen, driven by chromedriver over WebDriver's HTTP interface."""

from __future__ import annotations

import base64
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.ports import free_port

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *(
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--disable-lcd-text",
    ),
)
WITHIN_S = 60.0


@dataclass(frozen=True)
class Browser:
    """One session, at its URL of chromedriver."""

    url: str

    def _call(self, path: str, **body: Any) -> Any:
        reply = requests.post(f"{self.url}/{path}", json=body, timeout=WITHIN_S)
        value = reply.json()["value"]
        assert reply.ok, value
        return value

    def open(self, address: str) -> None:
        self._call("url", url=address)

    def run(self, script: str) -> Any:
        """Return the value of an expression of the page."""
        return self._call("execute/sync", script=f"return ({script})", args=[])

    def cdp(self, command: str, **parameters: Any) -> Any:
        """Return the result of a command of the DevTools protocol."""
        return self._call("goog/cdp/execute", cmd=command, params=parameters)

    def sized(self, width: int, height: int = 1000, *, dark: bool = False, scale: float = 1) -> None:
        """Show pages in a window of this size, in a scheme of colors."""
        self.cdp(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.cdp("Emulation.setEmulatedMedia", features=[scheme, {"name": "prefers-reduced-motion", "value": "reduce"}])

    def wait(self, script: str) -> Any:
        """Return the value of an expression once it is true."""
        until_s = time.monotonic() + WITHIN_S
        while not (value := self.run(script)):
            assert time.monotonic() < until_s, f"never true: {script}"
            time.sleep(0.05)
        return value

    def keys(self, *names: str) -> None:
        """Press and release keys, by their names in WebDriver."""
        actions = [{"type": kind, "value": name} for name in names for kind in ("keyDown", "keyUp")]
        self._call("actions", actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def console(self) -> list[str]:
        """Return what the browser has reported since the last call: errors, and what the policy refused."""
        return [entry["message"] for entry in self._call("se/log", type="browser")]

    def picture(self, *, whole: bool = False) -> bytes:
        """Return the page as PNG; `whole`: also what is below the window."""
        shot = self.cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])


@contextmanager
def browser(scratch: Path) -> Iterator[Browser]:
    """Start chromedriver and Chromium with a fresh profile, and end both."""
    driver, program = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or program is None:
        raise FileNotFoundError("needs Debian's packages chromium and chromium-driver")
    port = free_port()
    arguments = [*FLAGS, f"--user-data-dir={scratch / 'profile'}"]
    with (scratch / "chromedriver.log").open("wb") as log:
        process = subprocess.Popen((driver, f"--port={port}"), stdout=log, stderr=log)
        try:
            base, options = f"http://127.0.0.1:{port}", {"binary": program, "args": arguments}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            _ready(base)
            made = requests.post(
                f"{base}/session", json={"capabilities": {"alwaysMatch": wanted}}, timeout=WITHIN_S
            ).json()["value"]
            assert "sessionId" in made, made
            session = f"{base}/session/{made['sessionId']}"
            try:
                yield Browser(session)
            finally:
                requests.delete(session, timeout=WITHIN_S)
        finally:
            process.terminate()
            process.wait()


def _ready(base: str) -> None:
    until_s = time.monotonic() + WITHIN_S
    while True:
        try:
            if requests.get(f"{base}/status", timeout=WITHIN_S).json()["value"]["ready"]:
                return
        except requests.ConnectionError:
            assert time.monotonic() < until_s, "chromedriver does not answer"
        time.sleep(0.05)
