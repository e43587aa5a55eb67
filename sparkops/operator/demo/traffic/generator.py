"""Traffic from a process of its own, so that the process that watches it does not slow it down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from sparkops.node.waiting import Waiting
from sparkops.operator.demo.traffic.report import RequestRecord, TrafficReport, Window, read, report
from sparkops.operator.demo.traffic.sender import TrafficSettings

SENDER = (sys.executable, "-P", "-m", "sparkops.operator.demo.traffic.sender")
"""The process that sends. -P: a file of the working directory replaces no module."""
PATIENCE_S = 120.0
"""Far more than a slow machine takes."""
STOP_S = 10.0  # after the sender's own patience with open requests
POLL_S = 0.02


class Traffic:
    """Traffic to `base_url`, from `start` to `stop`; `more` are further fields of TrafficSettings."""

    def __init__(
        self, base_url: str, model: str, *, streams: int = 20, rate: float = 200.0, key: str = "", **more: Any
    ) -> None:
        self.settings = TrafficSettings(base_url, model, streams=streams, rate=rate, **more)
        self.key = key
        self.process: subprocess.Popen[str] | None = None
        self.file = Path(os.devnull)
        self.ended: list[RequestRecord] | None = None

    def start(self) -> Self:
        """Begin to send. It ends by itself after `seconds` or `most` requests, or when this process ends.

        Ctrl-C reaches this process only, which then stops the traffic in order.
        """
        with tempfile.NamedTemporaryFile(prefix="sparkops-traffic-", suffix=".jsonl", delete=False) as out:
            self.file = Path(out.name)
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(SENDER, stdin=pipe, stdout=out, text=True, start_new_session=True)
        if stdin := self.process.stdin:
            stdin.write(json.dumps({**asdict(self.settings), "key": self.key}) + "\n")
            stdin.flush()
        return self

    def stop(self) -> Self:
        """Send no more, let open requests end, and wait for them."""
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
        """Wait until `count` requests have succeeded. Raises TimeoutError."""

        def good() -> int:
            return sum(record.ok for record in self.records())

        waiting = Waiting(POLL_S, within_s)
        if waiting.poll(good, lambda number: number >= count or not self.running) < count:
            raise TimeoutError(f"{count} good answers did not come in {within_s:g} s: {self.report()}")
        return self

    def records(self) -> list[RequestRecord]:
        """Return the requests that have ended so far."""
        if self.ended is not None:
            return self.ended
        with self.file.open() as lines:
            return list(read(lines))

    def report(self, window: Window | None = None) -> TrafficReport:
        """Return the figures so far, over all or over a window of `time.monotonic()`."""
        return report(self.records(), window)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
