"""The states of node and fleet that operators are told once they have lasted: nothing is asked for them anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sparkops.errors import SparkopsError
from sparkops.guard.lead.lead import Lead
from sparkops.guard.lead.leadership import Leadership
from sparkops.guard.report.conditions import Conditions, Look, advance
from sparkops.guard.report.figures import read_host
from sparkops.node.host import HostFacts
from sparkops.swap import trouble
from sparkops.swap.catalogue import DISK_LOW_GIB, Code, Notice, noted
from sparkops.swap.model import Answer
from sparkops.swap.orders import traffic

CONDITIONS_S = 10.0
"""Seconds between two looks."""
HOST_S = 60.0
"""Seconds between two reads of the disk, which run a program."""
STATE = "state"
"""The kind of the events with which a state of a service begins and ends."""
Seen = tuple[Notice, bool | None]
"""A state, and whether it is wrong; None: unknown."""


@dataclass
class ConditionWatch:
    """The states that one guard sees. `message_s`: when the leader's last message came, in monotonic seconds."""

    leadership: Leadership
    message_s: Callable[[], float | None]
    host: Callable[[], HostFacts | None] = read_host
    clock: Callable[[], float] = time.monotonic
    conditions: Conditions = field(default_factory=Conditions)
    _began_s: float = field(init=False)
    _host: HostFacts | None = None
    _host_s: float | None = None

    def __post_init__(self) -> None:
        self._began_s = self.clock()

    def look(self) -> None:
        """Look once, and tell what is due: of a service in its history, of the node in the guard's log."""
        seen = list(self._seen())
        wrong = tuple(notice for notice, is_wrong in seen if is_wrong)
        unknown = frozenset(notice.key for notice, is_wrong in seen if is_wrong is None)
        look = Look(self.clock(), wrong, unknown)
        self.conditions, due = advance(self.conditions, look)
        for notice in due:
            self._tell(notice)

    def _tell(self, notice: Notice) -> None:
        state, log = self.leadership.state, self.leadership.log
        if notice.service:
            more = noted(notice.code, notice.subject, notice.state, notice.next_step)
            state.note_event(notice.service, {"kind": STATE, "text": notice.text, "lasting": True, **more}, log)
        else:
            log(notice.text)
            state.tell(notice)

    def _seen(self) -> Iterator[Seen]:
        yield self._disk()
        try:
            membership, leads = self.leadership.state.membership(), self.leadership.members.leads
            leading = self.leadership.led()
        except SparkopsError:  # it cannot be read: whether this guard leads is unknown
            for notice in self.conditions.told.values():
                yield notice, None
            return
        if leads:
            yield from self._peers()
        elif membership:
            yield self._leader(membership.leader)
        if leading:
            yield self._gateway(leading)
        for lead in leading:
            yield from _service(lead)

    def _disk(self) -> Seen:
        now_s, node = self.clock(), self.leadership.node.name
        if self._host_s is None or now_s - self._host_s >= HOST_S:
            self._host, self._host_s = self.host(), now_s
        free_gib = self._host.disk_free_gib if self._host else None
        text = f"{node}: {free_gib or 0.0:.1f} GiB of disk are free, expected {DISK_LOW_GIB:.0f} GiB"
        notice = Notice(Code.DISK_LOW, text, subject=node, next_step="sparkops prune")
        return notice, None if free_gib is None else free_gib < DISK_LOW_GIB

    def _leader(self, leader: str) -> Seen:
        """A guard that has just started may not have been reached yet."""
        after_s = self.clock() - (self.message_s() or self._began_s)
        node = self.leadership.node.name
        text = f"{node}: its guard has got no message of the leader on {leader} for {after_s:.0f} s"
        notice = Notice(Code.LEADER_LOST, text, subject=node, next_step="sparkops doctor")
        return notice, after_s >= 2 * CONDITIONS_S

    def _peers(self) -> Iterator[Seen]:
        reach = self.leadership.members.reach
        for link in reach.links:
            why = reach.lost.get(link.node)
            text = f"{link.node}: its guard cannot be reached: {why}"
            notice = Notice(Code.NODE_LOST, text, subject=link.node, next_step="sparkops doctor")
            yield notice, bool(why) if why or link.node in reach.last else None

    def _gateway(self, leading: tuple[Lead, ...]) -> Seen:
        text = "the gateway cannot be read: clients may get no answer"
        notice = Notice(Code.GATEWAY_DOWN, text, subject=self.leadership.node.name, next_step="sparkops status")
        return notice, all(lead.fleet.gateway is None for lead in leading)


def _service(lead: Lead) -> Iterator[Seen]:
    journal, gateway, why = lead.journal, lead.fleet.gateway, lead.trouble()
    service, serving = journal.service, traffic(journal)
    step = trouble.next_step(journal, why) if why else ""
    text = f"needs an operator: {trouble.reason(why)}"
    yield Notice(Code.NEEDS_OPERATOR, text, service=service, next_step=step), bool(why)
    if serving is None:  # a swap or a stop has taken the traffic away: that is no failure to answer
        return
    text = f"{serving.release} does not answer"
    notice = Notice(Code.NOT_ANSWERING, text, service=service, next_step=f"sparkops status; sparkops logs {service}")
    answer = gateway.answer(serving) if gateway else Answer.UNKNOWN
    yield notice, None if answer is Answer.UNKNOWN else answer is Answer.NO
