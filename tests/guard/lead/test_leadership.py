"""A leader that is idle acts on an intent at once, and its guard asks Docker and the gateway seldom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.errors import Busy, PlanRefused, SparkopsError
from sparkops.gateway import commands
from sparkops.guard.disk.state import Membership, Peer, State
from sparkops.guard.follow.follower import Follower
from sparkops.guard.lead.gateway_front import GatewayContainer, GatewayFront
from sparkops.guard.lead.lead import Lead
from sparkops.guard.lead.leadership import INTENT, Leadership
from sparkops.guard.lead.operator_requests import OperatorRequests
from sparkops.guard.lead.peers import ServiceOrders
from sparkops.names import Slot
from sparkops.node.local import LocalNode
from sparkops.serving import service_state
from sparkops.serving.service_state import unreported
from sparkops.swap.fleet_state import EngineState, FleetState, Report
from sparkops.swap.follower import Local, Record, reconcile
from sparkops.swap.intents import Forget, NothingToDo, Refused, Stop
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Limits, Mode, Phase, RankSpec, Replica
from sparkops.swap.orders import Armed, order
from tests.node.recording import RecordingNode

RELEASE = Deployment("q-1", Slot.BLUE, (Replica((RankSpec("n1", "q-1-r0"),)),))
PATIENCE_S = 60.0
IDLE_S = 3600.0
"""So long that a test only sees turns and exchanges that an event causes."""
ACCEPTED = {"result": "accepted", "why": "", "code": 0, "last": 2}


@dataclass
class Wire:
    """The link to one guard, which follows every order."""

    node: str = "n2"
    boot: str = "boot"
    orders: list[ServiceOrders] = field(default_factory=list)
    progress: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    open: threading.Event = field(default_factory=threading.Event)

    def exchange(self, orders: ServiceOrders) -> Mapping[str, Report]:
        self.open.wait(PATIENCE_S)
        self.orders.append(orders)
        revisions = {service: order.journal.revision if order else 0 for service, order in orders.items()}
        return {service: Report(self.node, self.boot, 1, revision) for service, revision in revisions.items()}

    def revision(self) -> int:
        """The last revision of the service that was ordered."""
        order = self.orders[-1].get("chat") if self.orders else None
        return order.journal.revision if order else 0


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    wire.open.set()
    return wire


@pytest.fixture
def leadership(tmp_path: Path, wire: Wire) -> Iterator[Leadership]:
    state = State(tmp_path)
    state.write_membership(Membership("n1", bytes(32), {"n2": Peer("127.0.0.1", 1)}))
    for service in ("chat", "other"):
        state.write_journal(Journal(service, "n1", peers=("n2",), revision=1, hold="exam"))
    follower = Follower(state, LocalNode("n1"), print)
    leader = Leadership(state, RecordingNode("n1"), follower, lambda *_: wire, print, idle_s=IDLE_S)
    leader.start()
    yield leader
    leader.close()
    follower.close()


def test_the_end_of_a_stop_has_no_seconds_of_an_earlier_swap(tmp_path: Path) -> None:
    state = State(tmp_path)
    service = Journal("chat", "n1", revision=1)
    lead = Lead(service, state, GatewayFront("chat", GatewayContainer(RecordingNode("n1"))), dict, frozenset, print)
    deployed = service.begun("i1", Mode.FIRST, RELEASE, automatic=True)
    while deployed.swap:
        lead.lead(deployed)
        deployed = deployed.advanced()
    stopping = deployed.noted("i2", "accepted", stopping=True)
    for journal in (deployed, stopping, stopping.offline(), stopping.offline().confirmed_stopped(RELEASE.ranks)):
        lead.lead(journal)

    completed, stopped = (event for event in state.events("chat") if event["kind"] == "end")

    assert (completed["result"], stopped["result"]) == ("done", "stopped")
    assert "verify" in completed["seconds"]
    assert stopped["seconds"] == {}


def keeping_warm() -> tuple[Journal, Journal]:
    """A journal whose old release is kept warm for 600 s, and the one before."""
    limits = Limits(keep_old_s=600.0)
    old, new = (replace(RELEASE, release=name, limits=limits) for name in ("q-1", "q-2"))
    drained = journal = Journal("chat", "n1", active=old).begun(
        "i", Mode.BESIDE, replace(new, slot=Slot.GREEN), automatic=True
    )
    while journal.swap and journal.swap.phase is not Phase.RETIRE:
        drained, journal = journal, journal.advanced()
    return journal, drained


def test_a_leader_reports_when_the_old_release_stops_that_is_kept_warm(tmp_path: Path) -> None:
    journal, drained = keeping_warm()
    front = GatewayFront("chat", GatewayContainer(RecordingNode("n1")))
    leads = [Lead(item, State(tmp_path), front, dict, frozenset, print) for item in (drained, journal, journal)]
    leads[1].fleet, leads[2].fleet = FleetState(sampled_s=200.0), FleetState(sampled_s=600.0)
    earliest_s = time.time() + 400.0

    before, warm_until, late = (lead.warm_until() for lead in leads)

    assert (before, late) == (None, None)
    assert warm_until is not None
    assert earliest_s <= warm_until <= time.time() + 400.0


def test_the_state_that_a_client_reads_has_the_end_of_the_warm_release(leadership: Leadership) -> None:
    journal, _ = keeping_warm()
    leadership.leads["chat"].lead(journal)

    state = service_state.read("chat", "n1", OperatorRequests(leadership).shown("chat"))

    assert state.journal.warm
    assert state.warm_until is not None
    assert abs(state.warm_until - time.time() - 600.0) < PATIENCE_S


def until(true: Callable[[], Any]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def exchange(leadership: Leadership, wire: Wire) -> None:
    """Exchange twice, as orders are for the boot that a guard has reported."""
    for _ in range(2):
        leadership.members.reach.exchange(wire)
    assert wire.revision() == 1


def test_other_guards_receive_what_follows_from_an_intent_at_once(leadership: Leadership, wire: Wire) -> None:
    exchange(leadership, wire)
    intent = {"kind": "hold", "id": "i", "revision": 1, "reason": ""}
    assert leadership.verbs()["intend"]({"service": "chat", "intent": intent}) == ACCEPTED

    until(lambda: wire.revision() == 2)


FORGET = str(commands.forget("chat"))


def forget(state: State, node: RecordingNode, intent: str) -> Refused | NothingToDo | None:
    """Forget the service as the guard of this node does, started anew."""
    journal = state.journal("chat")
    assert journal
    lead = Lead(journal, state, GatewayFront("chat", GatewayContainer(node)), dict, frozenset, print)
    return lead.intend(Forget(intent, journal.revision))


def test_a_forgotten_service_leaves_the_gateway_before_the_journal_says_so(tmp_path: Path) -> None:
    state, node = State(tmp_path), RecordingNode("n1")
    state.write_journal(Journal("chat", "n1", revision=1, previous=RELEASE))

    assert forget(state, node, "f") is None
    assert [str(command) for command in node.ran].count(FORGET) == 1
    journal = state.journal("chat")
    assert journal
    assert (journal.forgotten, journal.previous) == (True, None)
    assert state.events("chat")[-1]["text"] == "chat is forgotten: its names and port are free"
    assert isinstance(forget(state, node, "g"), NothingToDo)
    assert [str(command) for command in node.ran].count(FORGET) == 1


def test_a_gateway_that_does_not_forget_a_service_leaves_it_to_be_forgotten_again(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.write_journal(Journal("chat", "n1", revision=1, previous=RELEASE))
    before = state.journal("chat")

    with pytest.raises(SparkopsError, match="chat stays at the gateway: "):
        forget(state, RecordingNode("n1", exit_codes={FORGET: 1}), "f")

    assert state.journal("chat") == before
    assert forget(state, RecordingNode("n1"), "f") is None


def test_a_service_that_runs_stays_at_the_gateway(tmp_path: Path) -> None:
    state, node = State(tmp_path), RecordingNode("n1")
    state.write_journal(Journal("chat", "n1", revision=1, active=RELEASE))

    assert isinstance(forget(state, node, "f"), Refused)
    assert FORGET not in map(str, node.ran)


def test_an_intent_waits_for_the_first_reply_over_a_new_link(wire: Wire, request: pytest.FixtureRequest) -> None:
    """A guard that has joined has confirmed nothing yet; the intent would be refused, and accepted a second later."""
    wire.open.clear()
    leadership: Leadership = request.getfixturevalue("leadership")
    leadership.members.reach.wake()
    intent = {"kind": "hold", "id": "i", "revision": 1, "reason": ""}
    with ThreadPoolExecutor() as operator:
        reply = operator.submit(leadership.verbs()["intend"], {"service": "chat", "intent": intent})
        with pytest.raises(TimeoutError):
            reply.result(0.5)
        wire.open.set()

        assert reply.result(PATIENCE_S) == ACCEPTED


def test_a_leader_acts_on_a_report_that_brings_news_at_once(leadership: Leadership, wire: Wire) -> None:
    exchange(leadership, wire)
    lead = leadership.leads["chat"]
    until(lambda: "n2" in lead.fleet.reports)
    wire.boot = "another"
    leadership.members.reach.exchange(wire)

    until(lambda: lead.fleet.reports.get("n2") == Report("n2", "another", 1, 1))


def test_the_first_question_to_another_guard_is_about_every_service(leadership: Leadership, wire: Wire) -> None:
    """A reply confirms that this guard leads, for every service: so the other guard must have been asked about each."""
    leadership.members.reach.wake()
    until(lambda: wire.orders)

    assert set(wire.orders[0]) == {"chat", "other"}


def serving_on(node: str) -> Journal:
    """A service whose engine is on a node."""
    release = Deployment("q-1", Slot.BLUE, (Replica((RankSpec(node, "q-1-r0"),)),))
    return Journal("chat", "n1", ("n2",), revision=1, active=release)


def test_a_leader_keeps_the_guard_of_a_node_that_a_service_needs(leadership: Leadership) -> None:
    leadership.leads["chat"].lead(serving_on("n2"))
    request = {"peers": {"renamed": {"address": "127.0.0.1", "port": 1}}}

    with pytest.raises(PlanRefused, match="n2: chat runs there, and the inventory has no node of that name"):
        leadership.verbs()["peers"](request)

    assert leadership.leads["chat"].journal.peers == ("n2",)
    leadership.leads["chat"].lead(Journal("chat", "n1", ("n2",), revision=2))
    leadership.verbs()["peers"](request)
    assert leadership.leads["chat"].journal.peers == ("renamed",)


def test_a_boot_record_is_kept_while_its_release_is_on_a_node_that_the_leader_does_not_know() -> None:
    """The node may have been renamed: it must not stay down after its next boot."""
    journal = serving_on("former")
    assert journal.active
    [rank] = journal.active.ranks
    record = Record(term=1, copy=journal, armed=rank)
    engines = {rank.container: EngineState.HEALTHY}

    assert reconcile(order(journal, "n2", "b"), Local("b", record, engines)) is None
    known = replace(journal, peers=("former", "n2"))
    assert order(known, "n2", "b").armed == Armed()


def test_a_stop_on_a_node_that_left_the_fleet_ends_with_its_name(leadership: Leadership) -> None:
    stopped = serving_on("former").noted("s", "accepted", stopping=True).offline()
    leadership.leads["chat"].lead(stopped)

    state = service_state.read("chat", "n1", OperatorRequests(leadership).shown("chat"))

    assert "former" in state.missing
    assert unreported(state) == "former does not report: its guard stops q-1-r0 once the leader reaches it"


def test_a_leader_of_a_rebuild_gets_its_guards_although_a_swap_is_in_progress(
    leadership: Leadership,
) -> None:
    """The swap may wait for them. In place of others it needs those that it has."""
    chat = leadership.leads["chat"]
    chat.lead(Journal("chat", "n1", ("n2",), term=2).begun("i1", Mode.FIRST, RELEASE, automatic=True))
    n2, n3 = ({node: {"address": "127.0.0.1", "port": 1}} for node in ("n2", "n3"))
    with pytest.raises(Busy, match="a swap of chat is in progress"):
        leadership.verbs()["peers"]({"peers": n3})
    leadership.state.write_membership(Membership("n1", bytes(32), term=2))

    leadership.verbs()["peers"]({"peers": n2})

    assert [*leadership.members.own().peers] == ["n2"]
    assert chat.journal.peers == ("n2",)


@pytest.mark.parametrize("by", ["x" * 129, "ann\x1b[2J", "ann\nbob", "\u202enna"])
def test_a_sender_that_could_garble_what_others_read_is_refused(by: str) -> None:
    stop = {"kind": "stop", "id": "i", "revision": 1}

    with pytest.raises(ValueError, match="by: expected up to 128 printable characters"):
        INTENT.validate_python({**stop, "by": by})
    assert INTENT.validate_python(stop) == Stop("i", 1), "that of an older client has none"


def resigned(leadership: Leadership) -> None:
    leadership.verbs()["resign"]({"to": "n2"})


def test_a_leader_that_has_resigned_decides_nothing_and_keeps_its_journals(leadership: Leadership, wire: Wire) -> None:
    """Also where it was the only guard, which no other one must confirm, and after a restart of its process."""
    exchange(leadership, wire)
    lead = leadership.leads["chat"]
    alone = replace(lead.journal, peers=(), trouble="a switch failed", revision=5)
    lead.lead(alone)

    resigned(leadership)
    resigned(leadership)

    membership = leadership.state.membership()
    assert membership is not None
    assert (membership.leader, membership.peers, membership.key != bytes(32)) == ("n2", {}, True)
    with pytest.raises(SparkopsError, match="n1 does not lead this fleet: n2 does") as refused:
        leadership._intend(stop_request())
    assert "sparkops gateway move n2" in refused.value.next_step
    assert lead.intend(Forget("i", alone.revision)) == Refused("the guard of n2 leads", busy=True)
    again = Leadership(leadership.state, leadership.node, leadership.follower, leadership.link, print)
    for process in (leadership, again):
        process.over.set()
        led = process.leads.get("chat") or process._lead(alone)
        led.fleet = FleetState()
        assert led.turn() == led.idle_s
        assert led.trouble() == "the lead is handed over to n2\nnext: sparkops gateway move n2"
        assert process.led() == ()
    assert leadership.state.journal("chat") == alone


def stop_request() -> dict[str, Any]:
    return {"service": "chat", "intent": {"id": "s", "revision": 5, "kind": "stop"}}


def test_a_leader_does_not_resign_while_a_service_changes(leadership: Leadership) -> None:
    leadership.leads["chat"].lead(
        Journal("chat", "n1", ("n2",), term=2).begun("i1", Mode.FIRST, RELEASE, automatic=True)
    )

    with pytest.raises(Busy, match="a swap to q-1 is in phase 'prepare'"):
        resigned(leadership)

    assert leadership.members.leads


def test_the_wrong_address_of_a_node_that_the_operator_does_not_reach_replaces_no_known_one(
    leadership: Leadership,
) -> None:
    known, wrong = ({"n2": {"address": address, "port": 1}} for address in ("127.0.0.1", "10.9.9.9"))
    leadership.verbs()["peers"]({"peers": known})
    chat = leadership.leads["chat"]
    chat.lead(replace(chat.journal, term=2).begun("i1", Mode.FIRST, RELEASE, automatic=True))

    leadership.verbs()["peers"]({"peers": wrong, "unread": ["n2"]})

    assert leadership.members.own().peers["n2"].address == "127.0.0.1"
    with pytest.raises(Busy, match="a swap of chat is in progress"):
        leadership.verbs()["peers"]({"peers": wrong})


def test_a_leader_keeps_the_addresses_of_an_earlier_gateway_until_it_is_told_of_none(leadership: Leadership) -> None:
    peers = {"n2": {"address": "127.0.0.1", "port": 1}}
    reach = leadership.members.reach

    for gateway in (("10.0.0.1",), ()):
        leadership.verbs()["peers"]({"peers": peers, "gateway": list(gateway)})

        membership = leadership.state.membership()
        assert membership is not None
        assert membership.gateway == gateway
    assert leadership.members.reach is reach, "its guards stay confirmed"
