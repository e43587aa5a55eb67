"""Leases over the real socket: they end with their connection or without a word, and exclude loads and intents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.errors import Busy
from sparkops.guard.disk.state import Membership, State
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.local_service import LocalService
from sparkops.guard.follow.tasks import Measure
from sparkops.guard.lead.leadership import Leadership
from sparkops.guard.lead.leases import Leases
from sparkops.guard.lead.operator_requests import OperatorRequests
from sparkops.guard.lead.operator_socket import open_socket
from sparkops.names import Slot
from sparkops.node.local import LocalNode
from sparkops.swap.follower import Record
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.model import Deployment, Phase, RankSpec, Replica
from sparkops.swap.orders import order
from tests.guard.test_reproductions import BOOT, NEW, OLD, SERVING, begun, follower, runs

pytestmark = pytest.mark.local

HOLDER = "build of image x by ann@laptop"
RELEASE = Deployment("q-2", Slot.GREEN, (Replica((RankSpec("n1", "q-2-r0"),)),))


@contextmanager
def served(leases: Leases, file: Path, lease_s: float = 60.0) -> Iterator[None]:
    """A socket whose verb `lease` adds to `leases`."""

    def lease(request: Any) -> object:
        leases.add(request["holder"])
        return leases.until_end(request["holder"])

    server = open_socket({"lease": lease, "held": lambda _: leases.text}, file, lease_s)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def client(file: Path) -> Iterator[subprocess.Popen[str]]:
    """The program that passes an operator's requests on."""
    env = {**os.environ, "SPARKOPS_GUARD_SOCKET": str(file)}
    argv = [sys.executable, "-m", "sparkops.guard.ask"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def ask(process: subprocess.Popen[str], **question: str) -> Any:
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps({**question, "format": SCHEMA}) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def until_free(leases: Leases, patience_s: float = 10.0) -> None:
    end_s = time.monotonic() + patience_s
    while leases.text:
        assert time.monotonic() < end_s, leases.text
        time.sleep(0.02)


def test_a_lease_lasts_as_long_as_its_connection_and_a_renewal_is_no_second_one(tmp_path: Path) -> None:
    leases = Leases()
    with served(leases, tmp_path / "guard.sock"), client(tmp_path / "guard.sock") as process:
        for _ in range(3):
            assert ask(process, op="lease", holder=HOLDER) == {"ok": None}
        assert ask(process, op="held") == {"ok": HOLDER}

        process.kill()

        until_free(leases)


def test_a_client_that_falls_silent_loses_its_lease(tmp_path: Path) -> None:
    leases = Leases()
    with served(leases, tmp_path / "guard.sock", lease_s=0.5), client(tmp_path / "guard.sock") as process:
        ask(process, op="lease", holder=HOLDER)
        until_free(leases)
        assert process.poll() is None, "its process lives on"


def test_requests_renew_a_lease(tmp_path: Path) -> None:
    leases = Leases()
    with served(leases, tmp_path / "guard.sock", lease_s=0.6), client(tmp_path / "guard.sock") as process:
        for _ in range(6):
            ask(process, op="lease", holder=HOLDER)
            time.sleep(0.2)
        assert leases.text == HOLDER


def test_several_works_share_a_node_and_a_change_of_agents_is_alone() -> None:
    leases = Leases()
    leases.add("prune by bob@desk")
    leases.add(HOLDER)
    assert leases.text == f"prune by bob@desk; {HOLDER}"
    assert leases.add_alone("change of agents by eve@desk") == "prune by bob@desk"
    leases.remove(HOLDER)
    leases.remove("prune by bob@desk")
    assert leases.add_alone(HOLDER) == ""
    assert leases.text == HOLDER


@pytest.fixture
def leadership(tmp_path: Path) -> Iterator[Leadership]:
    """A leader of one service on this machine, which has neither gateway nor engines."""
    state, node = State(tmp_path), LocalNode("n1")
    state.write_membership(Membership("n1", b"k" * 32))
    state.write_journal(Journal("chat", "n1", revision=3, active=RELEASE))
    leader = Leadership(state, node, Follower(state, node, print), lambda *_: pytest.fail("no peers"), print)
    leader.start()
    yield leader
    leader.close()


def intend(leadership: Leadership, kind: str, **more: object) -> Any:
    revision = leadership.leads["chat"].journal.revision
    intent = {"kind": kind, "id": f"i{revision}", "revision": revision, **more}
    return leadership.verbs()["intend"]({"service": "chat", "intent": intent})


def test_intents_are_refused_while_agents_change_and_accepted_afterwards(leadership: Leadership) -> None:
    lease = OperatorRequests(leadership).verbs()["lease"](
        {"kind": "agents", "holder": "change of agents by ann@laptop"}
    )

    with lease:  # type: ignore[attr-defined]
        refused = intend(leadership, "hold", reason="")
        with pytest.raises(Busy, match="change of agents by ann@laptop is in progress"):
            OperatorRequests(leadership).verbs()["lease"]({"kind": "agents", "holder": "another"})

    assert (refused["result"], refused["code"]) == ("refused", 4)
    assert refused["why"] == "no intent is accepted during the change of agents by ann@laptop"
    assert intend(leadership, "stop")["result"] == "accepted"


def test_agents_do_not_change_while_a_service_does(leadership: Leadership) -> None:
    assert intend(leadership, "stop")["result"] == "accepted"

    with pytest.raises(Busy, match="chat is being stopped") as caught:
        OperatorRequests(leadership).verbs()["lease"]({"kind": "agents", "holder": HOLDER})

    assert caught.value.next_step == "sparkops status chat --follow"
    assert leadership.agents.text == ""


def test_of_two_deploys_of_a_service_one_is_refused_before_it_checks_anything(leadership: Leadership) -> None:
    lease, work = OperatorRequests(leadership).verbs()["lease"], "chat: deploy of q-3 by ann@laptop"

    with lease({"kind": "deploy", "holder": work, "service": "chat"}):  # type: ignore[attr-defined]
        with pytest.raises(Busy, match=work) as caught:
            lease({"kind": "deploy", "holder": "chat: deploy of q-4 by bob@desk", "service": "chat"})
        with lease({"kind": "deploy", "holder": "code: deploy of c-1 by bob@desk", "service": "code"}):  # type: ignore[attr-defined]
            assert intend(leadership, "hold", reason="")["result"] == "nothing", "it refuses no intent"

    assert caught.value.next_step == "`--wait 10m` retries."
    with lease({"kind": "deploy", "holder": "chat: deploy of q-4 by bob@desk", "service": "chat"}):  # type: ignore[attr-defined]
        pass


@pytest.fixture
def ended(tmp_path: Path) -> Follower:
    """A follower whose engine served and has crashed: a restart is due."""
    made = follower(tmp_path, SERVING, OLD)
    made.state.write_record("chat", Record(term=1, copy=SERVING, armed=OLD))
    service = made._by_name["chat"]
    service.record = made.state.record("chat")
    made._reader.began_s = time.monotonic()
    return made


def crash(made: Follower) -> LocalService:
    service = made._by_name["chat"]
    service.update({OLD.container: replace(runs(OLD), state="exited", exit_code=139)}, 2.0)
    service.run(service.containers[OLD.container]).checked = True  # no operator stopped it
    return service


def test_an_engine_that_served_is_restarted_beside_a_build(ended: Follower) -> None:
    with ended.lease(HOLDER):
        service = crash(ended)
        assert ended._next_task(service) == Measure(OLD.container)
        assert not service.start(OLD.container).progress
        with pytest.raises(Busy, match="old-r0 is about to start"):
            ended.lease("prune by bob@desk")


def test_an_engine_that_served_waits_where_another_guard_may_lead_by_now(ended: Follower) -> None:
    service, ended.leases.superseded = crash(ended), "answer of another guard"

    assert ended._next_task(service) is None
    assert service.start(OLD.container).progress == "waiting for the answer of another guard"


def test_a_new_release_waits_for_the_end_of_a_build(ended: Follower) -> None:
    with ended.lease(HOLDER):
        service = ended._by_name["chat"]
        service.adopt(order(begun(Phase.START), "n1", BOOT.boot))
        service.record = replace(service.record, copy=begun(Phase.START), boot=BOOT.boot, down=frozenset({"old-r0"}))
        service.update({NEW.container: replace(runs(NEW), state="created")}, 2.0)
        assert ended._next_task(service) is None
        assert service.start(NEW.container).progress == f"waiting for the {HOLDER}"
    assert ended._next_task(service) == Measure(NEW.container)


def test_an_unknown_kind_of_lease_is_no_lease(leadership: Leadership) -> None:
    with pytest.raises(KeyError):
        OperatorRequests(leadership).verbs()["lease"]({"kind": "all", "holder": HOLDER})
