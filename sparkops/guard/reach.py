"""The leader's way to every guard: orders go out, reports come back, a node at a time and all at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sparkops.errors import SparkopsError
from sparkops.swap.orders import Order
from sparkops.swap.seen import Report

FRESH_S = 8.0  # an older report says nothing: a lost exchange takes 5 s, and the next one may succeed
PAUSE_S, IDLE_S = 0.3, 1.0  # between two exchanges during a swap, and without one
Orders = Mapping[str, Order | None]


class GuardLink(Protocol):
    """The link to one guard."""

    node: str

    @property
    def progress(self) -> Mapping[str, Mapping[str, str]]:
        """Of the last reply: by service and container, how far an engine is."""
        ...

    def exchange(self, orders: Orders) -> Mapping[str, Report]:
        """Send orders and return the reports, by service. Raises ConnectionLost."""
        ...


@dataclass
class Heard:
    """The last reports of one guard, and when they came on this machine's monotonic clock."""

    reports: Mapping[str, Report]
    progress: Mapping[str, Mapping[str, str]]
    at_s: float


@dataclass
class Reach:
    """Exchanges with every guard in threads. `orders` gives what a node is to do, from the boot that it reported."""

    links: tuple[GuardLink, ...]
    orders: Callable[[str, Mapping[str, str]], Orders]
    busy: Callable[[], bool]
    log: Callable[[str], None]
    heard: dict[str, Heard] = field(default_factory=dict)
    met: set[str] = field(default_factory=set)
    lost: dict[str, str] = field(default_factory=dict)
    """By node: why its guard cannot be reached now."""
    over: threading.Event = field(default_factory=threading.Event)
    changed: Callable[[], None] = lambda: None
    """Called when a guard has reported something new."""
    began_s: float = field(default_factory=time.monotonic)
    due: dict[str, threading.Event] = field(default_factory=dict, init=False)
    """By node: set when its next exchange must not wait."""

    def __post_init__(self) -> None:
        self.due = {link.node: threading.Event() for link in self.links}

    def start(self) -> None:
        """Begin, one thread for each guard."""
        for link in self.links:
            threading.Thread(target=self._talk, args=(link,), name=f"reach {link.node}", daemon=True).start()

    def _talk(self, link: GuardLink) -> None:
        due = self.due[link.node]
        while not self.over.is_set():
            due.wait(PAUSE_S if self.busy() else IDLE_S)
            due.clear()
            if not self.over.is_set():
                self.exchange(link)

    def wake(self) -> None:
        """Exchange with every guard now: there are new orders."""
        for due in self.due.values():
            due.set()

    def exchange(self, link: GuardLink) -> None:
        """One exchange with one guard."""
        known = self.heard.get(link.node)
        boots = {service: report.boot for service, report in known.reports.items()} if known else {}
        try:
            reports = link.exchange(self.orders(link.node, boots))
        except (SparkopsError, OSError) as error:
            if link.node not in self.lost:
                self.log(f"{link.node}: its guard is not reached: {error}")
            self.lost[link.node] = str(error)
            return
        if self.lost.pop(link.node, None):
            self.log(f"{link.node}: its guard is reached again")
        self.heard[link.node] = Heard(reports, link.progress, time.monotonic())
        self.met.add(link.node)
        if known is None or known.reports != reports:
            self.changed()

    def reports(self, service: str) -> dict[str, Report]:
        """The recent reports on a service, by node."""
        now_s = time.monotonic()
        recent = {node: last for node, last in tuple(self.heard.items()) if now_s - last.at_s <= FRESH_S}
        reports = {node: last.reports.get(service) for node, last in recent.items()}
        return {node: report for node, report in reports.items() if report is not None}

    def progress(self, service: str) -> dict[str, Mapping[str, str]]:
        """By node: how far its engines are."""
        return {node: last.progress.get(service, {}) for node, last in tuple(self.heard.items())}

    def close(self) -> None:
        """End all exchanges."""
        self.over.set()
        self.wake()
