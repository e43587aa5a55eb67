"""Only the engine's own answers count: another user's program may listen on its port."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from sparkops.guard.disk.state import State
from sparkops.guard.follow.engine_port import EnginePort, users
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.local_service import LocalService
from sparkops.node.local import LocalNode
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.follower import Record, report
from sparkops.swap.model import Answer, Phase
from sparkops.swap.orders import order
from tests.guard.test_reproductions import BOOT, NEW, begun, runs
from tests.guard.test_restarted import engine, until
from tests.ports import free_port
from tests.serving.smoke.server import to

ME = os.geteuid()


def row(address: str, port: int, user: int, state: str = "0A") -> str:
    return f"  0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {user:5}  0 1 1 0"


V6, MAPPED = "0" * 32, "0000000000000000FFFF00000100007F"
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((), set()),
        ((row("00000000", 8001, 10841),), {10841}),
        ((row("0100007F", 8001, 1000), row("00000000", 8002, 10841)), {1000}),
        ((row("0100007F", 8001, 1000, "01"),), set()),
        ((row("0B01A8C0", 8001, 1000),), set()),
        ((row(V6, 8001, 1000),), {1000}),
        ((row(V6, 8001, 1000), row("00000000", 8001, 10841)), {10841}),
        ((row(MAPPED, 8001, 1000),), {1000}),
        ((row("00000000000000000000000001000000", 8001, 1000),), set()),
        ((row("0100007F", 8001, 1000), row("0100007F", 8001, 10841)), {1000, 10841}),
    ],
    ids=[
        "nothing", "the engine", "another port", "a connection", "another address", "both families", "IPv6 beside it",
        "mapped", "only IPv6", "two",
    ],
)  # fmt: skip
def test_the_kernel_s_table_names_the_user_that_takes_connections(rows: tuple[str, ...], expected: set[int]) -> None:
    assert users("\n".join((HEAD, *rows)), 8001) == expected


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_listener_of_this_machine_belongs_to_its_user(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=family is socket.AF_INET6) as server:
        own, other = (EnginePort(LocalNode("n1"), server.getsockname()[1], user) for user in (ME, ME + 1))

        assert (own.owned(), own.taken) == (Answer.YES, "")
        assert other.owned() is Answer.NO
        assert f"a program of user ID {ME} has it, expected the engine, user {ME + 1}" in other.taken


@dataclass(frozen=True)
class Shown(LocalNode):
    """A node whose kernel shows these sockets."""

    table: str = ""

    def sockets(self) -> str:
        return self.table


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((row("00000000", 8001, 10841), row("0100007F", 8001, 10841, "01")), Answer.YES),
        ((row("00000000", 8001, 10841), row("0100007F", 8001, 0, "01")), Answer.YES),
        ((row("00000000", 8001, 10841), row("0100007F", 8001, 1000, "01")), Answer.NO),
        ((row(V6, 8001, 10841), row(MAPPED, 8001, 1000, "01")), Answer.NO),
        ((row("0100007F", 8001, 10841, "01"),), Answer.UNKNOWN),
    ],
    ids=["its own", "not accepted yet", "another user's", "mapped", "without a listener"],
)
def test_a_connection_that_another_user_answers_is_not_the_engine_s(rows: tuple[str, ...], expected: Answer) -> None:
    """Where the firewall has no rules, the connection may have been opened before the engine listened."""
    assert EnginePort(Shown("n1", table="\n".join((HEAD, *rows))), 8001).owned() is expected


def test_a_port_without_a_listener_is_unknown() -> None:
    assert EnginePort(LocalNode("n1"), free_port()).owned() is Answer.UNKNOWN


def test_health_is_the_engine_s_own_answer() -> None:
    with engine() as port, to(port)() as asking:
        assert EnginePort(LocalNode("n1"), port, ME).health(asking) is Answer.YES
        assert EnginePort(LocalNode("n1"), port, ME + 1).health(asking) is Answer.NO


def watched(directory: Path, port: int, user: int) -> tuple[Follower, LocalService]:
    """A guard that has just started beside NEW, which runs in a swap; engines of this node run as `user`."""
    journal = begun(Phase.LOAD)
    follower = Follower(State(directory, lambda: BOOT), LocalNode("n1"), lambda _: None)
    follower.jobs.retry_s, follower.jobs.user = 0.01, user
    service = LocalService("chat", "n1", Record(term=1, copy=journal), frozenset(), 0.0)
    service.adopt(order(journal, "n1", BOOT.boot))
    service.update({NEW.container: replace(runs(NEW), port=port)}, 1.0)
    return follower, service


def test_an_answer_of_another_program_makes_no_engine_healthy(tmp_path: Path) -> None:
    with engine() as port:
        follower, service = watched(tmp_path, port, ME + 1)
        follower.jobs.watch_starts(service, BOOT.boot)
        until(lambda: service.start(NEW.container).run.loaded is not Answer.UNKNOWN)
        follower.close()

    assert service.start(NEW.container).run.loaded is Answer.NO


def test_an_engine_that_has_lost_its_port_is_not_healthy_any_more(tmp_path: Path) -> None:
    """Its server has ended, its container runs, and a user of the node has bound the port."""
    with engine() as port:
        follower, service = watched(tmp_path, port, ME)
        service.start(NEW.container).run.note_health(Answer.YES)
        follower.jobs.watch_starts(service, BOOT.boot)
        assert service.local(BOOT.boot).engines[NEW.container] is EngineState.HEALTHY

        follower.jobs.user = ME + 1
        follower.jobs.watch_starts(service, BOOT.boot)
        known = report("n1", service.order, service.local(BOOT.boot)).engine(NEW.container)
        follower.close()

    assert known.state is EngineState.LOADING
    assert f"port {port} is taken: a program of user ID {ME} has it" in known.problem
