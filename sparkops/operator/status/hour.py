"""The samples of the last hour that guards keep: read from each over the connection that `status` has open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sparkops.errors import SparkopsError
from sparkops.node.node import Node
from sparkops.operator.fleet.guards.leader import GuardConnection
from sparkops.operator.fleet.guards.replies import parsed
from sparkops.operator.fleet.parallel import on_each
from sparkops.serving.watch.minutes import KEPT, MOST_SERVICES, Minute, read_minutes, together

READ_S = 20.0
"""Seconds between two readings."""
Hour = Mapping[str, list[Minute]]
"""Samples by service, oldest first."""


def read_hour(reply: object, now: float) -> dict[str, list[Minute]]:
    """Return the samples of the last hour in a guard's reply, by the minutes of this machine's clock, `now`.

    Raises KeyError, TypeError, ValueError or OverflowError for a reply of another form.
    """
    if not isinstance(reply, dict):
        raise TypeError(type(reply))
    shift, services, end = round((now - float(reply["now"])) / 60), dict(reply["services"]), int(now // 60)
    hour = dict[str, list[Minute]]()
    for name, samples in list(services.items())[:MOST_SERVICES]:
        moved = (replace(one, minute=one.minute + shift) for one in read_minutes(samples))
        hour[str(name)] = [one for one in moved if end - KEPT < one.minute <= end + 1]
    return hour


@dataclass
class HourReader:
    """Reads the guards of `nodes`, those that are connected now; the streams to them end with the connections."""

    nodes: Callable[[], Mapping[str, Node]]
    cancel: threading.Event = field(default_factory=threading.Event)
    now: Callable[[], float] = time.time
    _guards: dict[str, GuardConnection] = field(default_factory=dict)
    _last: dict[str, dict[str, list[Minute]]] = field(default_factory=dict)

    def read(self) -> Hour:
        """Return the samples of all nodes; of a guard that does not reply its last ones. Raises Interrupted."""
        nodes = dict(self.nodes())
        for name, hour in on_each(nodes, lambda name: self._read(name, nodes[name]), self.cancel).items():
            if not isinstance(hour, SparkopsError):
                self._last[name] = hour
        services = dict.fromkeys(service for hour in self._last.values() for service in hour)
        return {
            service: together(one for hour in self._last.values() for one in hour.get(service, ()))
            for service in services
        }

    def _read(self, name: str, node: Node) -> dict[str, list[Minute]]:
        if name not in self._guards or self._guards[name].node is not node:  # it was connected anew
            self._guards[name] = GuardConnection(node)
        reply = self._guards[name].request("minutes")
        return parsed(name, "minutes", reply, lambda reply: read_hour(reply, self.now()))
