"""The one command with which `status` reads a node."""

from __future__ import annotations

from collections.abc import Mapping

from sparkops.command import Command
from sparkops.docker import places
from sparkops.engine.load import METRICS
from sparkops.names import LABEL
from sparkops.nodes.program import python

LOG_TAIL = 2000
EVENTS = 5
"""Last events of a service that are shown."""
EVENTS_READ = 20
"""Events that are read for them: those of progress are left out."""
TIMEOUT_S = 60.0
FORMAT = 1
"""Of a guard's report. Status reads a node by its own program where the guard's format is another."""


def survey(modules: Mapping[str, str], *, at_gateway: bool) -> Command:
    """Return the command that reads a node and asks its guard; on the gateway's node it asks the gateway as well."""
    return python(modules, request(at_gateway=at_gateway), timeout_s=TIMEOUT_S)


def request(*, at_gateway: bool) -> dict[str, object]:
    """Return the request of node_survey.survey."""
    return {
        "label": f"{LABEL}service",
        "metrics": METRICS,
        "tail": LOG_TAIL,
        "show": places.SHOW.argv if at_gateway else None,
        "gateway": places.GATEWAY,
        "ask": places.ASK.argv,
        "guard": places.CONTAINER,
        "events": EVENTS_READ,
    }
