"""Faults of the first design in one guard: files and socket. Names are those of the reproductions.

The others are scenarios of the whole fleet: tests/swap/simulation/test_reproductions.py.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.errors import NeedsOperator, NotReady
from sparkops.guard.daemon import link
from sparkops.guard.disk.state import Membership, State
from sparkops.guard.environment import NodeClock
from sparkops.guard.follow.follower import Follower
from sparkops.guard.lead.gateway_front import GatewayContainer, GatewayFront
from sparkops.guard.lead.leadership import Leadership
from sparkops.guard.lead.operator_requests import OperatorRequests
from sparkops.guard.lead.operator_socket import ConnectionLeases, answer
from sparkops.names import Slot
from sparkops.node.docker.facts import Container
from sparkops.node.local import LocalNode
from sparkops.serving import engine_spec
from sparkops.swap import wire
from sparkops.swap.fleet_state import FleetState
from sparkops.swap.follower import Record
from sparkops.swap.intents import Deploy
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Answer, Deployment, Mode, Phase, RankSpec, Replica
from sparkops.swap.orders import order
from sparkops.swap.phases import RULES, drained
from tests import examples
from tests.node.recording import RecordingNode

BOOT = NodeClock(1.0, "boot")
OLD, NEW = (RankSpec("n1", name, 1.0, '{"a key of another version": 1}') for name in ("old-r0", "new-r0"))
RELEASES = {
    rank: Deployment(rank.container, slot, (Replica((rank,)),)) for rank, slot in zip((OLD, NEW), Slot, strict=True)
}
SERVING = Journal("chat", "n1", revision=5, active=RELEASES[OLD])


def begun(phase: Phase, mode: Mode = Mode.IN_PLACE) -> Journal:
    """A swap from OLD to NEW in a phase."""
    journal = SERVING.begun("i1", mode, RELEASES[NEW], automatic=False)
    while journal.swap and journal.swap.phase is not phase:
        journal = journal.advanced()
    return journal


def runs(rank: RankSpec) -> Container:
    """The container of a rank, which answers."""
    created = examples.container(examples.rank(), name=rank.container, spec=engine_spec.digest(rank), state="running")
    return replace(created, started_at=1.0)


@dataclass(frozen=True)
class FullDisk(State):
    """A disk that refuses one boot record of each of these ranks."""

    refused: list[RankSpec] = field(default_factory=list)

    def write_record(self, service: str, record: Record) -> None:
        if record.armed and record.armed in self.refused:
            self.refused.remove(record.armed)
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_record(service, record)


def follower(directory: Path, journal: Journal, *running: RankSpec, refused: Sequence[RankSpec] = ()) -> Follower:
    """A follower whose node has these engines running, all of them loaded."""
    made_follower = Follower(FullDisk(directory, lambda: BOOT, refused=list(refused)), LocalNode("n1"), print)
    with pytest.raises(NotReady):
        made_follower.handle("chat", order(journal, "n1", BOOT.boot))
    service = made_follower._by_name["chat"]
    service.update({rank.container: runs(rank) for rank in running}, 1.0)
    for item in service.containers.values():
        service.run(item).note_health(Answer.YES)
    return made_follower


def leadership(directory: Path, lines: list[str]) -> Leadership:
    """A leader of a fleet of one node, whose gateway shows nothing."""
    state = State(directory, lambda: BOOT)
    state.write_membership(Membership("n1", b"key"))
    follower = Follower(state, LocalNode("n1"), lines.append)
    return Leadership(state, RecordingNode("n1"), follower, link("n1"), lines.append)


def test_p11_an_unreadable_journal_stops_neither_its_guard_nor_another_service(tmp_path: Path) -> None:
    state = State(tmp_path)
    for service in ("broken", "chat"):
        state.write_journal(replace(SERVING, service=service))
    (tmp_path / "services/broken/journal").write_bytes(bytes(2**21))
    lines: list[str] = []
    leader = leadership(tmp_path, lines)
    intent = {"id": "i", "revision": 0, "kind": "stop"}

    leader.start()
    try:
        shown = OperatorRequests(leader).shown("broken")
        refused = answer(
            leader.verbs(),
            json.dumps({"op": "intend", "format": SCHEMA, "service": "broken", "intent": intent}).encode(),
            ConnectionLeases(),
        )
    finally:
        leader.close()

    assert set(leader.leads) == {"chat"}, lines
    assert (shown["journal"], OperatorRequests(leader).shown("chat")["journal"]["revision"]) == (None, SERVING.revision)
    file = f"{tmp_path}/services/broken/journal"
    damage = f"{file}: unreadable: both copies are damaged"
    assert (refused["error"], refused["exit_code"]) == (damage, NeedsOperator.exit_code)
    assert shown["needs_operator"] == (
        f"{damage}\nnext: To continue without it, on its node: docker exec sparkops-guard mv {file} {file}.bad"
    )


def test_an_unreadable_record_of_the_leader_is_named_and_moved_away_it_stops_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    leader = leadership(tmp_path, lines)
    leader.over.set()  # no turn but those below
    leader.state.write_journal(SERVING)
    record = tmp_path / "services/chat/record"
    record.write_bytes(bytes(2**21))
    leader.follower._reader.began_s = time.monotonic()
    lead = leader._lead(SERVING)

    lead.turn()
    shown = OperatorRequests(leader).shown("chat")
    record.rename(tmp_path / "record.bad")
    lead.turn()

    damage = f"{record}: unreadable: both copies are damaged"
    assert shown["needs_operator"].startswith(f"{damage}\nnext: ")
    assert f"mv {record} {record}.bad" in shown["needs_operator"]
    assert shown["journal"]["revision"] == SERVING.revision
    assert (OperatorRequests(leader).shown("chat")["needs_operator"], set(lead.fleet.reports)) == ("", {"n1"})


def test_p5_a_gateway_whose_haproxy_does_not_answer_is_not_drained() -> None:
    shown = {"files": {}, "loaded": True, "problem": "HAProxy has no worker", "ports": {"chat": 8000}, "map": ""}
    shown |= {"format": SCHEMA, "keys": [], "certificate": "", "aliases": {}, "holds": {}}
    slots = {f"be_chat_{slot}": {"release": "-", "servers": []} for slot in Slot}
    mute = RecordingNode("n1", {"docker exec sparkops-gateway": json.dumps({**shown, "slots": slots, "haproxy": None})})

    view = GatewayFront("chat", GatewayContainer(mute)).look(SERVING.deployments, swapping=True)

    assert view is None
    assert drained(RELEASES[OLD], FleetState(gateway=view)) is Answer.UNKNOWN


def test_a_promotion_waits_for_a_boot_record_that_could_not_be_written_and_the_next_order_writes_it(
    tmp_path: Path,
) -> None:
    guard_follower, journal = follower(tmp_path, begun(Phase.BAKE), NEW, refused=[NEW]), begun(Phase.PROMOTE)
    guard_follower._reader.began_s = time.monotonic()
    assert journal.swap is not None

    reports = [guard_follower.handle("chat", order(journal, "n1", BOOT.boot)) for _ in range(2)]

    assert [report.armed for report in reports] == ["old-r0", "new-r0"]
    fleets = [FleetState(reports={"n1": report}) for report in reports]
    assert [RULES[Phase.PROMOTE](journal, journal.swap, fleet) for fleet in fleets] == [Answer.NO, Answer.YES]


def test_a_service_whose_journal_was_moved_away_is_deployed_after_a_rebuild_only(tmp_path: Path) -> None:
    """As the refusal of an unreadable journal advises. The guard has a copy, and its engine still runs."""
    lines: list[str] = []
    leader = leadership(tmp_path, lines)
    State(tmp_path).write_record("chat", Record(copy=SERVING, term=SERVING.term))
    leader.follower._reader.began_s = time.monotonic()
    deploy = Deploy("i", 0, RELEASES[NEW], Mode.FIRST)

    leader.start()
    try:
        intent = wire.plain(Deploy, deploy)
        replied: Any = leader.verbs()["intend"]({"service": "chat", "intent": intent})
    finally:
        leader.close()

    assert isinstance(replied, dict)
    assert replied["why"] == "another guard has a newer journal than n1: sparkops gateway rebuild n1"
