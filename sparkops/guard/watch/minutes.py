"""A sample a minute of each service with an engine on this node, in memory only: an hour of them for `sparkops ui`.

It asks nothing: it takes what the background has sampled and what the leader has read of the gateway anyway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field

from sparkops.engines import load
from sparkops.gateway.facts import GatewayFacts
from sparkops.guard.report.node_report import Sampled
from sparkops.serving.watch.minutes import KEPT, MOST_SERVICES, Count, Minute, counted, more_errors

MINUTES_S = 2.0
"""Seconds between two looks, so that a sample is that of its minute."""
Run = tuple[str, str]
"""Container and its start: a later start counts from 0."""


@dataclass
class MinuteWatch:
    """Samples of the last hour by service. `look` runs in one thread; others may call `report`."""

    samples: Callable[[], Iterable[Sampled]]
    """Returns the last sample of each engine on this node."""
    gateway: Callable[[], GatewayFacts | None] = lambda: None
    """Returns the gateway as it was read last; None on a node without one."""
    now: Callable[[], float] = time.time
    _counts: dict[Run, Count] = field(default_factory=dict)
    _errors: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By service and process of HAProxy: errors counted so far."""
    _minute: int = 0
    _kept: Mapping[str, tuple[Minute, ...]] = field(default_factory=dict)

    def look(self) -> None:
        """Keep one sample of each service where a minute has ended. The first look only counts."""
        minute = int(self.now() // 60)
        if minute == self._minute:
            return
        first, self._minute = not self._minute, minute
        sampled, front = tuple(self.samples()), self.gateway()
        services = front.services if front else {}
        counts = {(one.container, one.start): Count(one.at_s, load.by_meaning(one.figures)) for one in sampled}
        named = dict.fromkeys(one.service for one in sampled if one.service)
        latest = dict[str, Minute]()
        for name in (*named, *(name for name in services if name not in named))[:MOST_SERVICES]:
            runs = [(one.container, one.start) for one in sampled if one.service == name]
            pairs = [(self._counts.get(run), counts[run]) for run in runs if counts[run].figures]
            facts = services.get(name)
            errors = more_errors(self._errors.get(name), facts.errors if facts else None)
            latest[name] = counted(minute, pairs, errors, facts.hold.waiting if facts and facts.hold else 0)
        # An engine that did not answer for a while goes on from its last count.
        self._counts = {run: count if count.figures else self._counts.get(run, count) for run, count in counts.items()}
        self._errors = {name: facts.errors for name, facts in services.items()} or self._errors
        if not first:
            self._kept = self._with(latest, minute)

    def _with(self, latest: Mapping[str, Minute], minute: int) -> dict[str, tuple[Minute, ...]]:
        """Return the samples of the last hour with these; a clock that was set back loses those after it."""
        hour = {
            name: tuple(one for one in kept if minute - KEPT < one.minute < minute) for name, kept in self._kept.items()
        }
        samples = {name: (*hour.get(name, ()), one) for name, one in latest.items()}
        ended = {name: kept for name, kept in hour.items() if kept and name not in samples}
        return {**samples, **dict(list(ended.items())[: MOST_SERVICES - len(samples)])}

    def report(self) -> dict[str, object]:
        """Return the samples by service, oldest first, and the Unix time of this node's clock."""
        return {"now": self.now(), "services": {name: [*map(asdict, kept)] for name, kept in self._kept.items()}}
