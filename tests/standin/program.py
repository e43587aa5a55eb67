"""The stand-in engine as a process on the loopback interface."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import requests

from tests.places import ROOT
from tests.ports import free_port

HERE = ROOT / "templates" / "stand-in"
SERVING = "Application startup complete"
PATIENCE_S = 60.0


def module(name: str) -> Any:
    """A module of the program, to look at without a process."""
    if str(HERE) not in sys.path:
        sys.path.append(str(HERE))
    return importlib.import_module(f"stand_in.{name}")


class Program:
    """One engine. Knobs are given without their prefix: START_S="0.1"; `port` and `args` as sparkops gives them."""

    def __init__(self, *args: str, port: int = 0, key: str = "", path: str = "/models/x", **knobs: str) -> None:
        self.port = port or free_port()
        self.model = "stand-in"
        self.lines: list[str] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("STAND_IN_", "VLLM_"))}
        given = {"TTFT_S": "0", "TOK_S": "20000", **knobs}
        environment = {**kept, **{f"STAND_IN_{name}": value for name, value in given.items()}, "VLLM_API_KEY": key}
        served = (f"--port={self.port}", f"--served-model-name={self.model}", *args)
        self.process = subprocess.Popen(
            # -S: without the packages of the test's own environment
            [sys.executable, "-S", str(HERE / "vllm.py"), "serve", path, "--host=127.0.0.1", *served],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()
        self.http = requests.Session()
        self.http.trust_env = False

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def url(self) -> str:
        """Base of all paths."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        """What it has said so far."""
        return "\n".join(self.lines)

    def says(self, text: str) -> Self:
        """Wait until a line holds `text`. Raises AssertionError."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.log:
            alive = self.process.poll() is None or self.reading.is_alive()
            assert alive, f"it ended without saying {text!r}:\n{self.log}"
            assert time.monotonic() < deadline, f"{text!r} was not said in {PATIENCE_S:g} s:\n{self.log}"
            time.sleep(0.005)
        return self

    def serves(self) -> Self:
        """Wait until the start is over."""
        return self.says(SERVING)

    def get(self, path: str, **more: Any) -> requests.Response:
        """GET a path."""
        return self.http.get(f"{self.url}{path}", timeout=60, **more)

    def post(self, body: Any, path: str = "/v1/chat/completions", **more: Any) -> requests.Response:
        """POST a body of JSON."""
        return self.http.post(f"{self.url}{path}", json=body, timeout=60, **more)

    def ask(self, question: str, **body: Any) -> Any:
        """The first choice of the answer to a question."""
        reply = self.post(self.body(question, **body))
        assert reply.status_code == 200, reply.text
        return reply.json()["choices"][0]

    def body(self, question: str, **more: Any) -> dict[str, Any]:
        """The body of a chat request."""
        return {"model": self.model, "messages": [{"role": "user", "content": question}], **more}

    def metric(self, name: str) -> float:
        """The sum of a metric's samples."""
        samples = re.findall(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", self.get("/metrics").text, re.MULTILINE)
        return sum(float(value) for value in samples)

    def resident_mib(self) -> float:
        """Resident memory of the process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1024

    def tell(self, what: int = signal.SIGTERM) -> Self:
        """Send a signal."""
        self.process.send_signal(what)
        return self

    def ended(self, within_s: float = PATIENCE_S) -> int:
        """Wait for the end; the exit code."""
        code = self.process.wait(within_s)
        self.reading.join(within_s)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.process.kill()
        self.process.wait()
        self.reading.join(PATIENCE_S)
        assert self.process.stdout
        self.process.stdout.close()
