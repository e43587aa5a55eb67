"""Which starts of a service a guard watches: every one that has not answered yet, and nothing else."""

from __future__ import annotations

from sparkops.guard.jobs import Jobs
from sparkops.guard.tended import Tended


def watch_starts(tended: Tended, jobs: Jobs, boot: str) -> None:
    """Watch what has started in a thread, and end the watch over what has answered or was stopped."""
    ranks = tended.ranks
    for name, container in tended.containers.items():
        if name not in ranks:
            continue
        due = container.running and not tended.loaded(container) and not tended.down(name, boot)
        start = tended.watched.get(name)
        if start and (start.started_at != container.started_at or (container.running and not due)):
            tended.watched.pop(name).cancel.set()
            start = None
        if due and not start:
            jobs.watch(tended, container)
