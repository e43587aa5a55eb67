"""Every service that this guard leads, and what the operator's machine may ask of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from sparkops.errors import Busy, NotReady, PlanRefused
from sparkops.guard.disk.durable import Unreadable
from sparkops.guard.disk.state import Membership, Peer, State
from sparkops.guard.follow.follower import Follower
from sparkops.guard.lead.gateway_front import GatewayContainer, GatewayFront
from sparkops.guard.lead.lead import Lead
from sparkops.guard.lead.leases import Leases
from sparkops.guard.lead.membership import Members
from sparkops.guard.lead.operator_socket import Request
from sparkops.guard.lead.peers import IDLE_S, GuardLink, Reach, ServiceOrders
from sparkops.node.node import Node
from sparkops.node.waiting import Waiting
from sparkops.serving.service_state import free_step, needed_nodes, unnamed
from sparkops.swap import wire
from sparkops.swap.fleet_state import Report
from sparkops.swap.intents import Intent, NothingToDo, Refused, changing
from sparkops.swap.journal import Journal
from sparkops.swap.model import RankSpec
from sparkops.swap.orders import Order
from sparkops.swap.rebuild import taken

REPLIES_S = 6.0  # for the first replies of the guards that an intent needs
EVENTS_POLL_S = 0.3
CONFIRM_S = 10.0  # most seconds in which a leader that was away waits for another guard before its node starts engines
INTENT: TypeAdapter[Intent] = TypeAdapter(Intent)


@dataclass
class Leadership:
    """The services of one leader. `link` connects to a peer."""

    state: State
    node: Node
    follower: Follower
    link: Callable[[str, Peer, Membership], GuardLink]
    log: Callable[[str], None]
    leads: dict[str, Lead] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.RLock = field(default_factory=threading.RLock)
    agents: Leases = field(default_factory=Leases)
    """A change of gateway and guards. Meanwhile every intent is refused."""
    deploys: dict[str, Leases] = field(default_factory=dict)
    """By service, a deploy that is planned and checked. Meanwhile no other one is."""
    idle_s: float = IDLE_S
    """Seconds between two turns of a lead, and between two exchanges with a guard, while nothing is in progress."""
    members: Members = field(init=False)
    gateway: GatewayContainer = field(init=False)

    def __post_init__(self) -> None:
        self.gateway = GatewayContainer(self.node)
        self.members = Members(self.state, self.node.name, self.link, self._reach, self.lock)

    def start(self) -> None:
        """Lead every service whose journal names this node, and reach the other guards."""
        for service in self.state.services():
            with suppress(Unreadable):  # `shown` reports it; it stops no other service
                if (journal := self.state.journal(service)) and journal.leader == self.node.name:
                    self._lead(journal)
        self.members.reach.start()  # last: an exchange that asks about one service confirms nothing for the others

    def verbs(self) -> dict[str, Callable[[Request], object]]:
        return {
            "intend": self._intend,
            "secret": lambda request: self.state.put_secret(
                request["service"], request["name"], request["value"].encode()
            ),
            "key": lambda request: {"key": self.members.key(request), "term": self.members.own().term},
            "join": self.members.join,
            "peers": self._peers,
            "resign": self._resign,
            "lead": self._take,
        }

    def followed(self, service: str, order: Order | None) -> Order | None:
        """Return the order of another leader; None where this guard deployed the service in no earlier term."""
        lead = self.leads.get(service)
        leads = lead and order and lead.journal.deployments and order.journal.term <= lead.journal.term
        return None if leads else order

    def led(self) -> tuple[Lead, ...]:
        """Return the leads of services that this guard answers for. Raises SparkopsError, for an unreadable membership.

        A journal may still name a former leader: after a rebuild that gave it up, its services have another one. Of a
        forgotten service only the journal is left.
        """
        leads = self.members.leads
        return tuple(
            lead
            for service, lead in tuple(self.leads.items())
            if leads and not lead.journal.forgotten and self._known_term(service) <= lead.journal.term
        )

    def promoted(self, besides: str) -> Iterator[RankSpec]:
        """Yield the ranks of the other services' releases, which their guards start again, without their specs."""
        for lead in tuple(self.leads.values()):
            journal = lead.journal
            for rank in journal.active.ranks if journal.active and journal.service != besides else ():
                engine = lead.fleet.engine(journal, rank)
                if not (engine and engine.by_hand):
                    yield replace(rank, spec="")

    def _known_term(self, service: str) -> int:
        """Return the newest term in the record of a service; 0 for one that cannot be read: `shown` reports it."""
        try:
            record = self.state.record(service)
        except Unreadable:
            return 0
        return max(record.term, record.copy.term if record.copy else 0)

    def awaited(self) -> str:
        """Return what the engines of this node wait for before they start; empty for nothing.

        A leader that was away may have been replaced: another guard must confirm it, within CONFIRM_S.
        """
        reach, leads = self.members.reach, tuple(self.leads.items())
        for service, lead in leads:
            if any(report.term > lead.journal.term for report in reach.reports(service).values()):
                return "new leader of this fleet: the next deploy lets this node join it"
        unmet = not reach.last or any(lead.journal.peers and not self._contacts(service) for service, lead in leads)
        waits = reach.links and unmet and time.monotonic() - reach.began_s < CONFIRM_S
        return "answer of another guard" if waits else ""

    def _contacts(self, service: str) -> frozenset[str]:
        """Return the nodes whose guards confirm that this one leads a service."""
        lead = self.leads.get(service)
        return self.members.reach.contacts(service, lead.journal.term) if lead else frozenset()

    def _intend(self, request: Request) -> dict[str, Any]:
        """Decide on an intent. The first one for a service makes its journal."""
        intent: Intent = INTENT.validate_python(request["intent"])
        lead = self._leading(request["service"])
        Waiting(EVENTS_POLL_S, REPLIES_S, self.over).poll(lambda: lead.has_replies(intent), bool)
        with lead.lock:
            holder = self.agents.text
            reply = Refused(f"no intent is accepted during the {holder}", busy=True) if holder else lead.intend(intent)
        number = max((event["n"] for event in self.state.events(lead.journal.service)), default=0)
        if reply is None:
            return {"result": "accepted", "why": "", "code": 0, "last": number}
        if isinstance(reply, NothingToDo):
            return {"result": "nothing", "why": reply.why, "code": 0, "last": number}
        code = (Busy if reply.busy else PlanRefused).exit_code
        return {"result": "refused", "why": reply.why, "code": code, "last": number}

    def _leading(self, service: str) -> Lead:
        with self.lock:
            lead = self.leads.get(service)
            self.members.require_lead()
            if lead is None:
                peers = tuple(sorted(self.members.own().peers))
                lead = self._lead(self.state.journal(service) or Journal(service, self.node.name, peers))
                self.members.reach.wake()  # the other guards have confirmed nothing about this service yet
            return lead

    def _lead(self, journal: Journal) -> Lead:
        service = journal.service
        lead = Lead(
            journal,
            self.state,
            GatewayFront(service, self.gateway),
            lambda: self._reports(service),
            lambda: self._contacts(service),
            self.log,
            lambda: self.members.reach.wake(),  # noqa: PLW0108 - new peers get another Reach
            other=lambda: self.members.other,
            idle_s=self.idle_s,
        )
        threading.Thread(target=lead.run, args=(self.over,), name=f"lead {service}", daemon=True).start()
        self.leads[service] = lead  # not before: without a thread it would never act, nor be made again
        return lead

    def _take(self, request: Request) -> None:
        """Lead a service from now on. `copies` are journals of other leaders, of which nothing may run any more."""
        service = str(request["service"])
        copies = [wire.load_value(Journal, copy) for copy in request["copies"]]
        with self.lock:
            peers = tuple(sorted(self.members.own().peers))
            lead = self.leads.get(service)
            kept = self.state.record(service).copy if service in self.state.services() else None
            journals = [copy for copy in (lead and lead.journal, kept, *copies) if copy and copy.revision]
            newest = max(journals, key=lambda copy: copy.position, default=None)
            same = newest is None or newest.leader == self.node.name
            if lead and same and lead.journal.peers == peers:
                return
            for journal in journals:
                if journal.deployments or journal.stopping:
                    raise _deployed(journal)
            self._begin(service, peers, journals)

    def _begin(self, service: str, peers: tuple[str, ...], journals: list[Journal]) -> None:
        """Lead a service without a leader, one term after the last known one."""
        journal = taken(service, journals, self.node.name, peers)
        lead = self.leads.get(service)
        if lead is None:
            lead = self._lead(replace(journal, revision=0))
        lead.lead(journal)

    def _reports(self, service: str) -> Mapping[str, Report]:
        """Return the reports of the other guards and this node's own."""
        lead = self.leads.get(service)
        peers = lead.journal.peers if lead else ()
        reports = {node: report for node, report in self.members.reach.reports(service).items() if node in peers}
        with suppress(NotReady):  # Docker does not answer here: this node is unknown
            report = self.follower.handle(service, None)
            if lead is not None and lead.journal.revision:
                report = self.follower.handle(service, lead.order(self.node.name, report.boot))
            reports[self.node.name] = report
        return reports

    def _orders(self, node: str, boots: Mapping[str, str]) -> ServiceOrders:
        """Return the orders for a guard, each for the boot that it reported; None asks for its report alone."""
        leads = dict(self.leads)
        return {
            service: lead.order(node, boots[service]) if service in boots and lead.journal.revision else None
            for service, lead in leads.items()
            if node in lead.journal.peers
        }

    def _peers(self, request: Request) -> None:
        """Lead the fleet, with these other guards. Not in place of others while a swap needs them.

        A leader that a rebuild has made has none, and a swap that it has found in progress may wait for them. A node
        that the operator's machine does not reach keeps the address that is known here: its own may be wrong.
        """
        peers = {node: Peer(peer["address"], int(peer["port"])) for node, peer in request["peers"].items()}
        with self.lock:
            membership = self.members.own()
            kept = {*request.get("unread", ())} & peers.keys() & membership.peers.keys()
            peers |= {node: membership.peers[node] for node in kept}
            same = self.members.leads and dict(membership.peers) == peers
            if not same and membership.peers and (busy := [name for name, lead in self.leads.items() if lead.busy]):
                raise Busy(f"a swap of {busy[0]} is in progress", next_step=f"sparkops status {busy[0]} --follow")
            for service, lead in self.leads.items():
                self._require_needed(service, lead, frozenset(peers))
            if self.members.set_peers(peers, tuple(request.get("gateway", ()))):
                for lead in self.leads.values():
                    lead.regroup(tuple(sorted(peers)))

    def _resign(self, request: Request) -> None:
        """Decide nothing more, and accept no intent: the guard of another node takes the lead, from these journals.

        It is on the disk on return, and may be repeated. Raises Busy while a service changes.
        """
        with self.lock, ExitStack() as held:
            self.members.require_lead(besides=request["to"])
            for service, lead in self.leads.items():
                held.enter_context(lead.lock)
                if why := changing(lead.journal):
                    raise Busy(why, next_step=free_step(service, why))
            if not self.members.other:
                self.members.resign(request["to"])

    def _require_needed(self, service: str, lead: Lead, peers: frozenset[str]) -> None:
        """Raise PlanRefused where a service runs on a node that is not among the peers: nobody would lead it there."""
        reporting = self.members.reach.reports(service)
        if lost := sorted(needed_nodes(lead.journal, reporting) - peers - {self.node.name}):
            raise unnamed(service, lost[0])

    def _reach(self, links: tuple[GuardLink, ...]) -> Reach:
        def busy() -> bool:
            return any(lead.busy for lead in tuple(self.leads.values()))

        return Reach(links, self._orders, busy, self.log, changed=self._wake, idle_s=self.idle_s)

    def _wake(self) -> None:
        for lead in tuple(self.leads.values()):
            lead.wake.set()

    def close(self) -> None:
        self.over.set()
        self._wake()
        self.members.reach.close()


def _deployed(journal: Journal) -> PlanRefused:
    """Return the refusal of another leader."""
    problem = f"{journal.service} is already deployed, led by {journal.leader}"
    step = f"sparkops stop {journal.service}, then deploy it again"
    return PlanRefused(problem, next_step=step)
