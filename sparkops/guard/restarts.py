"""The starts of engines from the boot record: each is an event, so that the budget of an hour survives this process."""

from __future__ import annotations

from collections.abc import Callable

from sparkops.guard.state import State

HOUR_S = 3600.0
RESTART = "restart"


def note(state: State, service: str, container: str, log: Callable[[str], None]) -> float:
    """Add the event of a restart that is about to happen; return its BOOTTIME in seconds.

    A full disk stops no restart: the count of restarts is written elsewhere.
    """
    clock = state.clock()
    text = f"{container} starts from the boot record"
    event = {"kind": RESTART, "text": text, "lasting": True, "boot": clock.boot, "boottime_s": clock.now_s}
    try:
        state.add_event(service, event)
    except OSError as error:
        log(f"{service}: restart of {container} not written to the history: {error}")
    return clock.now_s


def last_s(state: State, service: str) -> float:
    """Return the BOOTTIME of the last restart; 0.0, the boot itself, for one of an earlier boot.

    Now where no event could be written. Raises SparkopsError, OSError.
    """
    clock = state.clock()
    restarts = [event for event in state.events(service) if event.get("kind") == RESTART]
    if not restarts:
        return clock.now_s
    return float(restarts[-1]["boottime_s"]) if restarts[-1]["boot"] == clock.boot else 0.0
