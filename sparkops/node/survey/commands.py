"""The request with which `status` reads a node, and the format of a guard's report."""

from __future__ import annotations

from sparkops.engines.load import METRICS
from sparkops.names import LABEL, NODE_LABEL
from sparkops.node import host
from sparkops.node.docker import places
from sparkops.swap.journal import SCHEMA

LOG_TAIL = 2000
EVENTS = 5
"""Last events of a service that are shown."""
EVENTS_READ = 20
"""Events that are read for them: those of progress are left out."""
FORMAT = 2
"""Of a guard's report. Status reads a node by its own program where the guard's format is another."""


def request() -> dict[str, object]:
    """Return the request of node_survey.survey.

    Each node is asked for a gateway: the inventory may name the wrong one.
    """
    return {
        "host": host.status().argv,
        "label": f"{LABEL}service",
        "metrics": METRICS,
        "tail": LOG_TAIL,
        "show": places.SHOW.argv,
        "gateway": places.GATEWAY,
        "ask": places.RELAY.argv,
        "guard": places.CONTAINER,
        "name": NODE_LABEL,
        "events": EVENTS_READ,
        "format": SCHEMA,
    }
