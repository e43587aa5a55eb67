"""What a guard knows for Prometheus, read at a scrape: no engine, peer or gateway is asked for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from sparkops import __version__
from sparkops.docker.facts import parse_container, parse_listed
from sparkops.docker.places import STATE
from sparkops.errors import SparkopsError
from sparkops.guard import exposition
from sparkops.guard.exposition import EngineFigures, GuardFigures, PeerFigures, ServiceFigures
from sparkops.guard.lead import Lead
from sparkops.guard.leadership import Leadership
from sparkops.guard.node_report import Sampler
from sparkops.nodes import host
from sparkops.nodes.host import HostFacts
from sparkops.status import node_survey
from sparkops.status.node_survey import Facts
from sparkops.swap.model import Answer
from sparkops.swap.orders import traffic

KEPT_S = 5.0
"""Seconds for which a text serves further scrapes, so that many of them cost as much as one."""


@dataclass
class Figures:
    """The figures of one guard. `message_s`: when the leader's last message came, in monotonic seconds."""

    leadership: Leadership
    sampler: Sampler
    message_s: Callable[[], float | None]
    started_at: float = field(default_factory=time.time)
    _text: bytes = b""
    _read_s: float = -inf
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def text(self) -> bytes:
        """Return the figures as text, at most KEPT_S old. Raises OSError."""
        with self._mutex:
            if time.monotonic() - self._read_s > KEPT_S:
                self._text = exposition.text(self.read())
                self._read_s = time.monotonic()
            return self._text

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
            services=tuple(map(_service, tuple(self.leadership.leads.values()))),
            ordered_at=None if message_s is None else _unix_time(message_s),
        )

    def _leads(self) -> bool:
        try:
            return self.leadership.members.leads
        except SparkopsError:  # its membership cannot be read: it neither leads nor follows
            return False

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
