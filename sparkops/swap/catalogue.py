"""The events that an operator must know, by code: the only list of them. Pure.

The history of a service, `sparkops history` and webhooks take them from here; the alert rules are tested against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    """How urgent a notice is, in the words of the alert rules."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class NoticeState(StrEnum):
    """Whether a notice tells one moment, or the begin or end of what lasts."""

    ONCE = "once"
    BEGINS = "begins"
    ENDS = "ends"


class Code(StrEnum):
    """The codes of notices. A receiver must accept unknown ones: newer guards may send more."""

    PROMOTED = "PROMOTED"
    REVERTED = "REVERTED"
    CANCELLED = "CANCELLED"
    STOPPED = "STOPPED"
    RESTARTED = "RESTARTED"
    HOLD = "HOLD"
    NEEDS_OPERATOR = "NEEDS_OPERATOR"
    NOT_ANSWERING = "NOT_ANSWERING"
    FINDING = "FINDING"
    NODE_LOST = "NODE_LOST"
    LEADER_LOST = "LEADER_LOST"
    GATEWAY_DOWN = "GATEWAY_DOWN"
    DISK_LOW = "DISK_LOW"


@dataclass(frozen=True)
class Entry:
    """What a code means. `lasts`: its notices begin and end. `after_s`: how long a state holds before it is told.

    `after_s` is also the time of the alert rule for the same event, so that both tell it at the same moment.
    """

    severity: Severity
    meaning: str
    lasts: bool = False
    after_s: float = 0.0


def _lasting(severity: Severity, meaning: str, after_s: float = 0.0) -> Entry:
    return Entry(severity, meaning, lasts=True, after_s=after_s)


DISK_LOW_GIB = 20.0
"""Free disk in GiB below which a node is about to have no room for the next image: a vLLM image has 15 to 20 GiB."""

CATALOGUE: Mapping[Code, Entry] = {
    Code.PROMOTED: Entry(Severity.INFO, "a release is promoted: a deploy or rollback has succeeded"),
    Code.REVERTED: Entry(Severity.WARNING, "a swap failed and was reverted"),
    Code.CANCELLED: Entry(Severity.INFO, "an operator cancelled a swap"),
    Code.STOPPED: Entry(Severity.INFO, "a service is stopped"),
    Code.RESTARTED: Entry(Severity.WARNING, "a guard or the leader restarts an engine"),
    Code.HOLD: _lasting(Severity.INFO, "an operator blocks changes to a service"),
    # A restarted leader needs an operator until another guard has confirmed it, within seconds.
    Code.NEEDS_OPERATOR: _lasting(Severity.CRITICAL, "the fleet cannot continue without an operator", 60.0),
    # A load balancer is retried for as long by common clients; a restart of HAProxy takes seconds.
    Code.NOT_ANSWERING: _lasting(Severity.CRITICAL, "the active release does not answer", 60.0),
    Code.FINDING: _lasting(Severity.WARNING, "the watch has a finding about an engine"),
    # A replaced or restarted guard is back within seconds, a rebooted node within minutes.
    Code.NODE_LOST: _lasting(Severity.WARNING, "the leader does not reach the guard of a node", 120.0),
    Code.LEADER_LOST: _lasting(Severity.CRITICAL, "a guard gets no message of its leader", 120.0),
    Code.GATEWAY_DOWN: _lasting(Severity.CRITICAL, "the leader cannot read the gateway", 60.0),
    # A build or a pull takes and frees disk within minutes.
    Code.DISK_LOW: _lasting(Severity.WARNING, f"a node has less than {DISK_LOW_GIB:.0f} GiB of free disk", 600.0),
}


@dataclass(frozen=True)
class Notice:
    """One event that an operator must know, without the node and time of its guard."""

    code: Code
    text: str
    state: NoticeState = NoticeState.ONCE
    service: str = ""
    subject: str = ""
    """What it is about: a release, a node, or a container and its finding."""
    next_step: str = ""

    @property
    def key(self) -> str:
        """Return what a begin and its end have in common."""
        return f"{self.code} {self.service} {self.subject}".rstrip()


def noted(code: Code, subject: str = "", state: NoticeState = NoticeState.ONCE, next_step: str = "") -> dict[str, Any]:
    """Return what makes an event of a service's history a notice too: its key `notice`."""
    return {"notice": {"code": code.value, "state": state.value, "subject": subject, "next_step": next_step}}


def of_event(service: str, event: Mapping[str, Any]) -> Notice | None:
    """Return the notice in an event of a service's history; None in one that an operator need not know."""
    if (told := event.get("notice")) is None:
        return None
    names = {"service": service, "subject": str(told["subject"]), "next_step": str(told["next_step"])}
    return Notice(Code(told["code"]), str(event["text"]), NoticeState(told["state"]), **names)
