"""The notes of a guard on disk about one service: record, restarts, stops by an operator. Acts follow from them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sparkops.errors import SparkopsError
from sparkops.guard.disk.state import State
from sparkops.guard.follow.engines import SECRET_S, Engines, reason, secrets
from sparkops.guard.follow.local_service import LocalService
from sparkops.node.docker.facts import Container
from sparkops.node.docker.places import CONTAINER
from sparkops.serving.comparison.answers import COMPARED
from sparkops.serving.comparison.verdict import Comparison
from sparkops.serving.watch.finding import EngineFinding
from sparkops.swap import effects
from sparkops.swap.catalogue import Code, NoticeState, noted
from sparkops.swap.follower import Record
from sparkops.swap.journal import HOUR_S, PAUSES_S

RESTART = "restart"
"""The kind of the event of a restart, by this guard or by the leader."""
FINDING = "finding"
"""The kind of the events with which a finding of the watch begins and ends."""
Note = effects.KeepCopy | effects.ArmBoot | effects.MarkStart | effects.MarkRestart | effects.MarkStop
"""Effects that are notes on disk."""


@dataclass(frozen=True)
class Notes:
    """The notes of one node."""

    state: State
    engines: Engines
    lock: threading.RLock
    log: Callable[[str], None]

    def write(self, service: LocalService, effect: Note, boot: str) -> None:
        """Write an effect that is a note. Raises OSError, and then nothing follows from it."""
        restarting = isinstance(effect, effects.MarkRestart)
        if isinstance(effect, effects.MarkRestart):
            service.restarted_s = self._note_restart(service, effect.container)
        self._write_record(service, service.record.after(effect, boot))
        if isinstance(effect, effects.KeepCopy):
            self.state.forget_secrets(service.name, secrets(effect.journal), SECRET_S)
        if isinstance(effect, effects.MarkStart | effects.MarkRestart):
            service.begin(effect.container, restarting=restarting)
            if restarting:
                pause_s = PAUSES_S[min(service.record.restarts, len(PAUSES_S)) - 1]
                service.start(effect.container).due_s = time.monotonic() + pause_s
            self.note_stops(service, service.by_hand - {effect.container})

    def _write_record(self, service: LocalService, record: Record) -> None:
        self.state.write_record(service.name, record)
        service.record = record

    def refused(self, service: LocalService, container: str, why: str, *, lost: bool) -> None:
        """Note that a start has not happened. `lost`: Docker did not reply, so that it may happen yet.

        A start from the boot record that Docker refused does not count. One that was lost does, and the next one waits
        as after any restart: otherwise a Docker that is slow for seconds uses up the hour. Raises OSError.
        """
        with self.lock:
            start, restarting = service.start(container), service.restarting and service.pending == container
            paused_s = start.due_s
            first = start.refuse(why, time.monotonic()) == 1
            if restarting and lost:
                start.due_s = max(start.due_s, paused_s)
            elif restarting:
                self._write_record(service, service.record.refused())
        if first:
            text = f"{container}: not started, retried: {why.splitlines()[0]}"
            self.state.note_event(service.name, {"kind": "note", "text": text, "lasting": True}, self.log)

    def _note_restart(self, service: LocalService, container: str) -> float:
        """Add the event of a restart that is about to happen; return its BOOTTIME in seconds.

        Events make the budget of an hour survive this process. A full disk stops no restart: the record counts them.
        """
        clock = self.state.clock()
        if not service.start(container).refused:  # retries of a refused start are one event
            event = {"kind": RESTART, "text": f"{container} starts from the boot record", "lasting": True}
            event |= noted(Code.RESTARTED, container, next_step=f"sparkops history {service.name}")
            self.state.note_event(service.name, {**event, "boot": clock.boot, "boottime_s": clock.now_s}, self.log)
        return clock.now_s

    def reset_restarts(self, service: LocalService) -> None:
        """Restore the whole budget of starts from the boot record after an hour without one.

        A disk that takes no note keeps the budget, and ends no watch over the engines.
        """
        if service.record.restarts and self.state.clock().now_s - service.restarted_s >= HOUR_S:
            try:
                self._write_record(service, replace(service.record, restarts=0))
            except (SparkopsError, OSError) as error:
                self.log(f"{service.name}: restarts not reset: {reason(error)}")

    def check_stop(self, service: LocalService, container: Container) -> None:
        """Ask Docker whether an operator stopped a container, and note it. Until it replies, nothing restarts it."""
        by_hand = self.engines.stopped_by_hand(container)
        with self.lock:
            if by_hand:
                self.note_stops(service, service.by_hand | {container.name})
            service.run(container).checked = True

    def note_stops(self, service: LocalService, containers: frozenset[str]) -> None:
        """Note the containers that an operator stopped. This process knows them even if the disk is full."""
        if containers == service.by_hand:
            return
        service.by_hand = containers
        try:
            self.state.note_by_hand(service.name, containers)
        except OSError as error:
            self.log(f"{service.name}: stop by hand not written: {error}")

    def save_evidence(self, service: LocalService, container: Container, why: str, files: Mapping[str, str]) -> None:
        """Save the evidence of a failure, and note it for `history`."""
        first = why.splitlines()[0]
        text = first if first.startswith(container.name) else f"{container.name}: {first}"
        try:
            saved = self._kept(service.name, container.release, container.name, files)
            event = {"kind": "evidence", "text": text, "node": self.engines.node.name, "lasting": True}
            self.state.add_event(service.name, {**event, **saved})
        except (SparkopsError, OSError) as error:
            self.log(f"{container.name}: evidence not saved: {reason(error)}")

    def note_comparison(self, service: LocalService, container: Container, intent: str, found: Comparison) -> None:
        """Note for `history` and for the deploy how a new release differs from the old one."""
        text = f"{container.name}: {found}"
        event = {"kind": COMPARED, "text": text, "node": self.engines.node.name, "lasting": True, "intent": intent}
        self.log(f"{service.name}: {text}")
        self.state.note_event(service.name, event, self.log)

    def note_finding(self, release: str, finding: EngineFinding, files: Mapping[str, str]) -> None:
        """Save the evidence of a finding of the watch first, then note it for `history` and as a notice."""
        service, container = finding.service, finding.container
        saved = dict[str, list[str]]()
        try:
            saved = self._kept(service, release, container, files)
        except (SparkopsError, OSError) as error:
            self.log(f"{container}: evidence not saved: {reason(error)}")
        self._note_watch(finding, finding.detail, {**saved, **_told(finding, NoticeState.BEGINS, finding.next_step)})

    def end_finding(self, finding: EngineFinding, why: str) -> None:
        """Note that a finding of the watch has ended."""
        self._note_watch(finding, why, _told(finding, NoticeState.ENDS))

    def _note_watch(self, finding: EngineFinding, detail: str, more: Mapping[str, object]) -> None:
        text = f"{finding.container}: {finding.code}: {detail}"
        event = {"kind": FINDING, "text": text, "node": self.engines.node.name, "lasting": True}
        self.log(f"{finding.service}: {text}")
        self.state.note_event(finding.service, {**event, **more}, self.log)

    def _kept(self, service: str, release: str, container: str, files: Mapping[str, str]) -> dict[str, list[str]]:
        """Save files beside log and inspect of a container; return where they are. Raises SparkopsError, OSError."""
        path = self.state.keep(service, release, {**files, **self.engines.evidence(container)})
        return {"evidence": [f"{self.engines.node.name}: docker cp {CONTAINER}:{path} ."]} if path else {}


def _told(finding: EngineFinding, state: NoticeState, next_step: str = "") -> dict[str, Any]:
    return noted(Code.FINDING, f"{finding.container} {finding.code}", state, next_step)


def last_restart_s(state: State, service: str) -> float:
    """Return the BOOTTIME of the last restart; 0.0, the boot itself, for one of an earlier boot.

    Now where no event could be written. Raises SparkopsError, OSError.
    """
    clock = state.clock()
    restarts = [event for event in state.events(service) if event.get("kind") == RESTART]
    if not restarts:
        return clock.now_s
    return float(restarts[-1]["boottime_s"]) if restarts[-1]["boot"] == clock.boot else 0.0
