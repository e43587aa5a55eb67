"""A load in a process of its own, so that whoever watches it does not slow it down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from tests.load.record import Record, read
from tests.load.report import Report, Window, report
from tests.load.worker import Settings

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120.0
"""Far more than a slow machine takes."""
STOP_S = 10.0  # after the worker's own patience with what is under way


class Load:
    """A load on `base_url`, from `start` to `stop`; `more` are further fields of worker.Settings."""

    def __init__(
        self, base_url: str, model: str, *, streams: int = 20, rate: float = 200.0, key: str = "", **more: Any
    ) -> None:
        self.settings = Settings(base_url, model, streams=streams, rate=rate, **more)
        self.key = key
        self.process: subprocess.Popen[str] | None = None
        self.file = Path(os.devnull)
        self.ended: list[Record] | None = None

    def start(self) -> Self:
        """Begin. It ends by itself after `seconds` or `most` requests, or when this process does."""
        command = [sys.executable, "-m", "tests.load", "worker"]
        with tempfile.NamedTemporaryFile(prefix="sparkops-load-", suffix=".jsonl", delete=False) as out:
            self.file = Path(out.name)
            self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=out, text=True)
        stdin = self.process.stdin
        assert stdin
        stdin.write(json.dumps({**asdict(self.settings), "key": self.key}) + "\n")
        stdin.flush()
        return self

    def stop(self) -> Self:
        """Send no more, let what is under way end, and wait for it."""
        if self.ended is None and self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            try:
                self.process.wait(self.settings.drain_s + STOP_S)
            finally:
                self.process.kill()
                self.ended = self.records()
                self.file.unlink()
        return self

    @property
    def running(self) -> bool:
        """Whether requests are still sent."""
        return self.process is not None and self.process.poll() is None

    def wait_for(self, count: int, within_s: float = PATIENCE_S) -> Self:
        """Wait until `count` requests have ended well. Raises TimeoutError."""
        deadline = time.monotonic() + within_s
        while sum(record.ok for record in self.records()) < count:
            if time.monotonic() > deadline or not self.running:
                raise TimeoutError(f"{count} good answers did not come in {within_s:g} s: {self.report()}")
            time.sleep(0.02)
        return self

    def records(self) -> list[Record]:
        """What has ended so far."""
        if self.ended is not None:
            return self.ended
        with self.file.open() as lines:
            return list(read(lines))

    def report(self, window: Window | None = None) -> Report:
        """The figures so far, over all or over a window of `time.monotonic()`."""
        return report(self.records(), window)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
