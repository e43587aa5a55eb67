"""What a guard knows for Prometheus, read at a scrape: no engine, peer or gateway is asked for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import inf

from sparkops import __version__
from sparkops.errors import SparkopsError
from sparkops.guard.lead.lead import Lead
from sparkops.guard.lead.leadership import Leadership
from sparkops.guard.report import exposition
from sparkops.guard.report.exposition import EngineFigures, GuardFigures, PeerFigures, ServiceFigures
from sparkops.guard.report.node_report import Sampler
from sparkops.node import host
from sparkops.node.docker.facts import parse_container, parse_listed
from sparkops.node.docker.places import STATE
from sparkops.node.host import HostFacts
from sparkops.node.survey import node_survey
from sparkops.node.survey.node_survey import Facts
from sparkops.serving.watch.finding import EngineFinding
from sparkops.swap.model import Answer
from sparkops.swap.orders import traffic

KEPT_S = 5.0
"""Seconds for which a text serves further scrapes, so that many of them cost as much as one."""
WAIT_S = 3.0
"""Seconds that a scrape waits for a read: Prometheus gives up after 10 s (monitoring/files.py), without any."""


@dataclass
class Reading:
    """One read of the figures, in a thread of its own: Docker, which it asks, may hang."""

    began_s: float
    ended: threading.Event = field(default_factory=threading.Event)
    figures: GuardFigures | None = None
    error: OSError | None = None

    def run(self, read: Callable[[], GuardFigures]) -> None:
        """Read, then set `ended`, also after an unexpected error, which ends the thread without figures."""
        try:
            self.figures = read()
        except OSError as error:
            self.error = error
        finally:
            self.ended.set()


@dataclass
class Figures:
    """The figures of one guard. `message_s`: when the leader's last message came, in monotonic seconds."""

    leadership: Leadership
    sampler: Sampler
    message_s: Callable[[], float | None]
    findings: Callable[[], tuple[EngineFinding, ...]] = tuple
    started_at: float = field(default_factory=time.time)
    wait_s: float = WAIT_S
    _text: bytes = b""
    _last: GuardFigures | None = None
    _read_s: float = -inf
    _reading: Reading | None = None
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def text(self) -> bytes:
        """Return the figures as text, at most KEPT_S old. Raises OSError.

        If a read takes longer than WAIT_S, these are the last ones, with the time at which they were read, and Docker
        counts as not answering: all else that a read asks is on this node and answers at once.
        """
        reading = self._read_begun()
        if reading is None:
            return self._text
        reading.ended.wait(max(0.0, reading.began_s + self.wait_s - time.monotonic()))
        with self._mutex:
            if not reading.ended.is_set():
                return exposition.text(replace(self._last or self._without_docker(), docker=False))
            if self._reading is reading:
                self._take(reading)
            return self._text

    def _read_begun(self) -> Reading | None:
        """Return the read in progress, a new one if that is due; None where the last text is new enough."""
        with self._mutex:
            now_s = time.monotonic()
            if self._reading is None and now_s - self._read_s > KEPT_S:
                reading = Reading(now_s)
                threading.Thread(target=reading.run, args=(self.read,), name="figures", daemon=True).start()
                self._reading = reading  # not before: one without a thread would never end
            return self._reading

    def _take(self, reading: Reading) -> None:
        """Keep what a read has brought. Raises OSError where it failed: old figures would pass for present ones."""
        self._reading = None
        if reading.figures is None:
            raise reading.error or OSError("the figures cannot be read; the guard's log has the error")
        self._last, self._text, self._read_s = reading.figures, exposition.text(reading.figures), time.monotonic()

    def _without_docker(self) -> GuardFigures:
        """Return what is known before the first read has ended."""
        return GuardFigures(version=__version__, started_at=self.started_at, leads=self._leads(), docker=False)

    def read(self) -> GuardFigures:
        """Return the present figures. Raises OSError."""
        containers, engines, docker = self.sampler.engines()
        message_s = self.message_s()
        return GuardFigures(
            version=__version__,
            started_at=self.started_at,
            leads=self._leads(),
            docker=not docker["code"],
            host=read_host(),
            engines=tuple(map(self._engine, containers, engines)),
            peers=tuple(self._peers()),
            services=tuple(map(_service, self._led())),
            findings=self.findings(),
            read_at=time.time(),
            ordered_at=None if message_s is None else _unix_time(message_s),
        )

    def _leads(self) -> bool:
        try:
            return self.leadership.members.leads
        except SparkopsError:  # its membership cannot be read: it neither leads nor follows
            return False

    def _led(self) -> tuple[Lead, ...]:
        try:
            return self.leadership.led()
        except SparkopsError:
            return ()

    def _engine(self, facts: Facts, engine: Facts) -> EngineFigures:
        node = self.leadership.node.name
        container = parse_container(node, facts) if "Config" in facts else parse_listed(node, facts)
        return EngineFigures(container, engine.get("healthy"), engine.get("second", engine.get("first")))

    def _peers(self) -> Iterator[PeerFigures]:
        reach = self.leadership.members.reach
        for link in reach.links:
            last = reach.last.get(link.node)
            replied_at = _unix_time(last.at_s) if last else None
            yield PeerFigures(link.node, last is not None and link.node not in reach.lost, replied_at)


def read_host() -> HostFacts | None:
    """Return memory and disk of the node; None if they cannot be read."""
    ran = node_survey.run(host.status(STATE).argv)
    try:
        return host.parse(ran["out"])
    except (KeyError, ValueError):
        return None


def _service(lead: Lead) -> ServiceFigures:
    journal, gateway = lead.journal, lead.fleet.gateway
    serving = traffic(journal)  # None while a swap or a stop has taken the traffic away: that is no failure to answer
    answers = gateway.answer(serving) if gateway and serving else Answer.UNKNOWN
    return ServiceFigures(journal, answers, bool(lead.trouble()))


def _unix_time(monotonic_s: float) -> float:
    return time.time() - (time.monotonic() - monotonic_s)
