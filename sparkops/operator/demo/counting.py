"""Requests of a demonstration, counted by part."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sparkops.errors import SparkopsError
from sparkops.operator.demo.screen import ALL
from sparkops.operator.demo.traffic.generator import Traffic
from sparkops.operator.demo.traffic.report import TrafficReport

MORE = 10
"""Further answers that a part waits for, so that it does not end before the clients notice its failure."""
WITHIN_S = 60.0


@dataclass
class Counting:
    """Traffic to a service, and its reports by part."""

    traffic: Traffic
    parts: dict[str, TrafficReport] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the requests of a part, until MORE have been answered after it. Raises SparkopsError without them."""
        began_s = time.monotonic()
        yield
        self.wait_for_more()
        self.parts[name] = self.traffic.report((began_s, time.monotonic()))

    def wait_for_more(self) -> None:
        """Wait for MORE answers. Raises SparkopsError."""
        try:
            self.traffic.wait_for(self.traffic.report().good + MORE, WITHIN_S)
        except TimeoutError as error:
            raise SparkopsError(str(error)) from None


@contextmanager
def counting(traffic: Traffic) -> Iterator[Counting]:
    """Send requests meanwhile; afterwards the reports have the part ALL too."""
    counted = Counting(traffic)
    with traffic:
        counted.wait_for_more()
        yield counted
    counted.parts[ALL] = traffic.report()
