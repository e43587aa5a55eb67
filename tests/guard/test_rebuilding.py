"""A guard takes the lead, joins another leader, and tells a former one of the newer term; over real connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path

import pytest

from sparkops.errors import ConnectionLost, NotReady, PlanRefused
from sparkops.guard import messages
from sparkops.guard.daemon import Daemon
from sparkops.guard.disk.state import Membership, Peer, State
from sparkops.guard.follow import listener
from sparkops.guard.follow.follower import Follower
from sparkops.guard.lead.leadership import CONFIRM_S, Leadership
from sparkops.guard.lead.membership import Members, RebuildRequests
from sparkops.guard.lead.peers import PeerLink, Reach, ServiceOrders
from sparkops.guard.messages import Envelope, Message, Orders, derive
from sparkops.node.local import LocalNode
from sparkops.operator.deploy.agents.rebuild_plan import plan, read
from sparkops.serving import engine_spec
from sparkops.swap import wire
from sparkops.swap.fleet_state import FleetState, GatewayView, Report
from sparkops.swap.follower import Record
from sparkops.swap.intents import Deploy, accept
from sparkops.swap.journal import Journal
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Mode
from tests.guard.promoted import promoted_rank
from tests.guard.test_reproductions import BOOT, NEW, OLD, RELEASES, SERVING
from tests.node.recording import RecordingNode

pytestmark = pytest.mark.local

OLD_KEY = b"o" * 32
COPY = Journal("chat", "n1", ("n2",), term=2, revision=9)


@dataclass
class Guard:
    """The guard of n2, whose leader n1 is lost."""

    state: State
    message_s: float | None = None
    node: str = "n2"

    @property
    def verbs(self) -> RebuildRequests:
        return RebuildRequests(self.state, self.node, lambda: self.message_s)

    def take(self, *journals: Journal, **request: object) -> None:
        self.verbs.verbs()["take"]({"journals": [wire.plain(Journal, journal) for journal in journals], **request})

    def join(self, leader: str, key: bytes, term: int = 0, **settings: object) -> None:
        reach = Reach((), lambda *_: {}, lambda: False, print)
        members = Members(self.state, self.node, lambda *_: pytest.fail("no link"), lambda _: reach, threading.RLock())
        members.join({"leader": leader, "key": key.hex(), "term": term, "gateway": ["10.0.0.1"], **settings})


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    state = State(tmp_path)
    state.write_membership(Membership("n1", derive(OLD_KEY, "n2")))
    state.write_record("chat", Record(term=2, copy=COPY))
    return Guard(state)


def test_copies_are_what_a_rebuild_is_planned_from(guard: Guard) -> None:
    guard.message_s = time.monotonic() - 60
    copies = read(guard.verbs.copies())

    assert (copies.leader, copies.journals, copies.copies) == ("n1", (), (COPY,))
    assert (copies.heard_ago_s or 0) >= 60
    assert plan("n2", {"n2": copies}, frozenset({"n1"})).journals[0].term == 3


def test_a_damaged_file_is_named_and_hides_no_other_service(guard: Guard) -> None:
    damaged = guard.state.directory / "services/broken/record"
    damaged.parent.mkdir()
    damaged.write_bytes(b"garbage")

    copies = read(guard.verbs.copies())

    assert copies.copies == (COPY,)
    assert "services/broken/record: unreadable" in copies.problems[0]


def test_a_guard_that_takes_the_lead_has_the_journals_and_a_new_key(guard: Guard) -> None:
    taken = replace(COPY, leader="n2", term=3, revision=10)

    guard.take(taken)

    membership = guard.state.membership()
    assert membership is not None
    assert guard.state.journal("chat") == taken
    assert (membership.leader, len(membership.key)) == ("n2", 32)
    assert membership.key not in (OLD_KEY, derive(OLD_KEY, "n2"))
    assert (membership.former, membership.term) == ({"n1": derive(OLD_KEY, "n2")}, 3)
    assert read(guard.verbs.copies()).journals == (taken,)


def receiver(state: State, node: str) -> listener.Receiver:
    """What receives messages for a guard."""
    process = Daemon(state, LocalNode(node))
    return listener.Receiver(node, process._keys, process.answer)


def accepts(receiving: listener.Receiver, fleet_key: bytes, sender: str) -> bool:
    """Whether a guard replies to messages that are signed with the key that derives from this fleet key."""
    key = derive(fleet_key, receiving.node)
    message = messages.pack(
        key, Envelope("order", sender, receiving.node, 0, 0, "link", "", "x"), wire.dump(Orders, Orders({}))
    )
    return receiving.receive(message)[0] == HTTPStatus.CONFLICT  # signed, and its challenge is old


def test_a_rebuild_on_the_leaders_own_node_replaces_a_stolen_key(tmp_path: Path) -> None:
    leader, follower = Guard(State(tmp_path / "n2")), Guard(State(tmp_path / "n3"), node="n3")
    stolen = b"s" * 32
    peers = {"n3": Peer("10.0.0.3", 10844)}
    leader.state.write_membership(Membership("n2", stolen, peers, {"n0": b"0", "n1": b"1"}, term=7))
    follower.state.write_membership(Membership("n2", derive(stolen, "n3"), {}, {"n0": b"0", "n1": b"1"}))
    receiving = receiver(follower.state, "n3")
    assert accepts(receiving, stolen, "n2")

    leader.take(former=["n1"])
    led = leader.state.membership()
    assert led is not None
    follower.join("n2", derive(led.key, "n3"), led.term, former=["n1"])

    assert led.key != stolen
    assert (led.leader, led.peers, led.former, led.term) == ("n2", peers, {"n1": b"1"}, 8)
    assert (accepts(receiving, stolen, "n2"), accepts(receiving, led.key, "n2")) == (False, True)
    followed = follower.state.membership()
    assert followed is not None
    assert followed.former == {"n1": b"1"}


def test_a_former_leader_that_follows_another_guard_leads_nothing(guard: Guard) -> None:
    """With the present leader's guard stopped, it would be taken for the leader, and the inventory for wrong."""
    terms = guard.verbs.verbs()["terms"]
    guard.take(replace(COPY, leader="n2", peers=("n1",), term=3))
    assert terms({}) == {"chat": 3}

    guard.join("n1", OLD_KEY, term=4)

    assert guard.state.journal("chat") is not None
    assert terms({}) == {}


@pytest.mark.parametrize("journal", [replace(COPY, leader="n2"), replace(COPY, term=3)], ids=["term", "leader"])
def test_an_old_journal_or_one_of_another_node_is_not_taken(guard: Guard, journal: Journal) -> None:
    with pytest.raises(PlanRefused, match="expected leader n2, term over 2"):
        guard.take(journal)

    membership = guard.state.membership()
    assert membership is not None
    assert (guard.state.journal("chat"), membership.leader) == (None, "n1")


def test_a_guard_that_joined_a_rebuild_takes_no_lead_of_the_same_term(guard: Guard) -> None:
    """The leader of that rebuild may have been lost before this guard had its journal."""
    guard.join("n3", b"new", term=3)

    assert read(guard.verbs.copies()).term == 3
    with pytest.raises(PlanRefused, match="expected leader n2, term over 3"):
        guard.take(replace(COPY, leader="n2", term=3))
    guard.join("n3", b"newer")
    assert read(guard.verbs.copies()).term == 3


def test_a_leader_gives_engines_of_another_node_nothing_that_no_inventory_has_named_for_it(guard: Guard) -> None:
    def create(model_dir: str) -> None:
        spec = engine_spec.of(promoted_rank().rank).model_copy(
            update={"node": {"address": "n2", "model_dir": model_dir}}
        )
        Follower(guard.state, LocalNode("n2", docker="/nowhere"), print).engines.create(
            engine_spec.rank_spec(spec, "n2")
        )

    with pytest.raises(NotReady):  # no container here, and no refusal: no inventory has named anything
        create("/etc")
    guard.join("n1", b"key", paths=["/srv/models"])
    guard.join("n1", b"key", paths=["/data"])

    for named in ("/srv/models", "/data"):
        with pytest.raises(NotReady):
            create(named)
    with pytest.raises(ValueError, match=r"^node: /etc: not in the inventory that this guard got"):
        create("/etc")
    guard.take(replace(COPY, leader="n2", term=3))
    with pytest.raises(NotReady):  # it is the operator's own word
        create("/etc")


def test_a_guard_that_takes_the_lead_admits_the_gateway_before_it(guard: Guard) -> None:
    """It still has requests in a planned move; the request `peers` ends that."""
    guard.join("n1", derive(OLD_KEY, "n2"))

    guard.take(replace(COPY, leader="n2", term=3))

    membership = guard.state.membership()
    assert membership is not None
    assert (membership.leader, membership.gateway) == ("n2", ("10.0.0.1",))


def test_joining_the_same_leader_again_writes_nothing(guard: Guard) -> None:
    guard.join("n3", b"new")
    file = guard.state.directory / "membership.json"
    before = file.stat().st_ino

    guard.join("n3", b"new")

    assert file.stat().st_ino == before
    membership = guard.state.membership()
    assert membership == Membership("n3", b"new", {}, {"n1": derive(OLD_KEY, "n2")}, ("10.0.0.1",))


@contextmanager
def daemon(state: State, node: str) -> Iterator[tuple[Daemon, int]]:
    """The receiving end of a guard."""
    process = Daemon(state, LocalNode(node))
    process.follower._reader.began_s = time.monotonic()  # its containers were read: there are none
    with listener.serve("127.0.0.1", 0, node, process._keys, process.answer) as port:
        yield process, port


def test_a_former_leader_is_told_of_the_newer_term_and_is_not_followed(guard: Guard) -> None:
    guard.state.write_record("chat", Record(term=3, copy=replace(COPY, leader="n2", term=3)))
    guard.take(replace(COPY, leader="n2", term=4, revision=10))
    with daemon(guard.state, "n2") as (received, port):
        former = PeerLink("n2", "127.0.0.1", port, derive(OLD_KEY, "n2"), "n1")

        reports = former.exchange({"chat": None})

        assert reports["chat"].term == 3
        assert received.message_s is None
        forged = PeerLink("n2", "127.0.0.1", port, derive(OLD_KEY, "n2"), "n2")
        with pytest.raises(ConnectionLost, match="another key"):
            forged.exchange({"chat": None})


def test_the_present_leader_is_heard(guard: Guard) -> None:
    with daemon(guard.state, "n2") as (received, port):
        PeerLink("n2", "127.0.0.1", port, derive(OLD_KEY, "n2"), "n1").exchange({"chat": None})
        assert received.message_s is not None


def test_a_leader_that_returns_after_a_rebuild_starts_no_engine(guard: Guard, tmp_path: Path) -> None:
    """At first it waits for an answer; then it knows the newer term."""
    guard.state.write_record("chat", Record(term=3, copy=replace(COPY, leader="n2", term=3)))
    guard.join("n3", b"new")
    with daemon(guard.state, "n2") as (_, port):
        state, node = State(tmp_path / "n1"), LocalNode("n1")
        state.write_membership(Membership("n1", OLD_KEY, {"n2": Peer("127.0.0.1", port)}))
        state.write_journal(COPY)

        def link(name: str, peer: Peer, membership: Membership) -> PeerLink:
            return PeerLink(name, peer.address, peer.port, derive(membership.key, name), "n1")

        leadership = Leadership(state, node, Follower(state, node, print), link, print)
        assert leadership.awaited() == "answer of another guard"
        leadership.start()
        end_s = time.monotonic() + 60
        while leadership.awaited() == "answer of another guard":
            assert time.monotonic() < end_s
            time.sleep(0.05)

        assert leadership.awaited() == "new leader of this fleet: the next deploy lets this node join it"
        leadership.close()


def test_a_leader_that_reaches_no_guard_starts_its_engines_after_a_while(tmp_path: Path) -> None:
    state, node = State(tmp_path), LocalNode("n1")
    state.write_membership(Membership("n1", OLD_KEY, {"n2": Peer("127.0.0.1", 9)}))
    leadership = Leadership(
        state, node, Follower(state, node, print), lambda *_: PeerLink("n2", "127.0.0.1", 9, b"", "n1"), print
    )
    assert leadership.awaited()

    leadership.members.reach.began_s -= CONFIRM_S

    assert leadership.awaited() == ""


@dataclass
class Met:
    """The link of n1, a former leader, to the guard of n2, which leads since a rebuild and has just started."""

    daemon: Daemon
    node: str = "n2"
    progress: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def exchange(self, orders: ServiceOrders) -> Mapping[str, Report]:
        return self.daemon.answer(Message("n1", orders)).reports


def test_a_guard_that_cannot_report_a_service_confirms_no_former_leader_of_it(tmp_path: Path) -> None:
    """In the first seconds after a boot, or while Docker hangs: it replies, and has read no container yet."""
    old = replace(SERVING, peers=("n2",))
    new = replace(old, leader="n2", peers=("n1",), term=2, revision=6)
    state = State(tmp_path / "n2", lambda: BOOT)
    state.write_membership(Membership("n2", b"new", {"n1": Peer("", 1)}, {"n1": b"old"}, term=2))
    state.write_record("chat", Record(term=2, copy=new))
    met = Met(Daemon(state, LocalNode("n2"), log=print))
    state = State(tmp_path / "n1", lambda: BOOT)
    state.write_membership(Membership("n1", b"old", {"n2": Peer("", 1)}))
    leadership = Leadership(state, RecordingNode("n1"), Follower(state, LocalNode("n1"), print), lambda *_: met, print)
    leadership.over.set()  # no turn but those below
    lead = leadership._lead(old)
    view = GatewayView(None, {RELEASES[OLD].slot: OLD.container}, {RELEASES[OLD].slot: Answer.YES})

    leadership.members.reach.exchange(met)

    fleet = FleetState({}, view, lead.contacts())
    assert leadership.awaited() == "answer of another guard"
    assert not fleet.confirmed(old)
    assert step(old, fleet) is None
    deploy = Deploy("i", old.revision, RELEASES[NEW], Mode.FIRST)
    assert not isinstance(accept(old, deploy, fleet), Journal)

    met.daemon.follower._reader.began_s = time.monotonic()  # Docker was read
    leadership.members.reach.exchange(met)

    assert lead.contacts() == frozenset()
    assert leadership.awaited() == "new leader of this fleet: the next deploy lets this node join it"


def test_a_guard_that_keeps_nothing_of_a_service_confirms_its_leader(tmp_path: Path) -> None:
    state = State(tmp_path / "n2", lambda: BOOT)
    state.write_membership(Membership("n1", b"key"))
    met = Met(Daemon(state, LocalNode("n2"), log=print))
    met.daemon.follower._reader.began_s = time.monotonic()
    state = State(tmp_path / "n1", lambda: BOOT)
    state.write_membership(Membership("n1", b"old", {"n2": Peer("", 1)}))
    leadership = Leadership(state, RecordingNode("n1"), Follower(state, LocalNode("n1"), print), lambda *_: met, print)
    leadership.over.set()
    lead = leadership._lead(replace(SERVING, peers=("n2",)))

    leadership.members.reach.exchange(met)

    assert lead.contacts() == {"n2"}
    assert leadership.awaited() == ""
