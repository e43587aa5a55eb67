"""A promoted engine that waits for its turn keeps its memory: beside it nothing new takes it, in guard and plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

from sparkops.guard.daemon import link
from sparkops.guard.disk.state import State
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.local_service import LocalService
from sparkops.guard.follow.next_task import Moment, next_task
from sparkops.guard.follow.tasks import Measure, MeasuredRoom
from sparkops.guard.lead.gateway_front import GatewayFront
from sparkops.guard.lead.lead import Lead
from sparkops.guard.lead.leadership import Leadership
from sparkops.names import Slot
from sparkops.node.docker.facts import Container
from sparkops.node.local import LocalNode
from sparkops.operator.deploy.preconditions import Current
from sparkops.swap.effects import MarkRestart
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, Phase, RankSpec, Replica
from sparkops.swap.orders import order
from tests.examples import release
from tests.guard.test_reproductions import BOOT, runs
from tests.operator.deploy.swaps import on, plan, refusal
from tests.operator.deploy.swaps import runs as container_of

CHAT, AGENT = RankSpec("n1", "chat-r0", 80.0, '{"x": 1}'), RankSpec("n1", "agent-r0", 80.0, '{"x": 2}')
SERVING = Deployment("chat-1", Slot.BLUE, (Replica((CHAT,)),))
NEW = Deployment("agent-1", Slot.BLUE, (Replica((AGENT,)),))


def starting() -> Journal:
    journal = Journal("agent", "n1").begun("i", Mode.FIRST, NEW, automatic=True)
    while journal.swap and journal.swap.phase is not Phase.START:
        journal = journal.advanced()
    return journal


def services(directory: Path) -> tuple[Follower, dict[str, LocalService]]:
    """A guard after a boot: chat is promoted and down, agent is ordered to start."""
    journal, state = starting(), State(directory, lambda: BOOT)
    state.write_record("chat", Record(copy=Journal("chat", "n1", revision=3, active=SERVING), armed=CHAT))
    state.write_record("agent", Record(copy=journal))
    follower = Follower(state, LocalNode("n1"), print)
    stopped: Mapping[str, Container] = {
        rank.container: replace(runs(rank), state=state_) for rank, state_ in ((CHAT, "exited"), (AGENT, "created"))
    }
    known = {name: follower._service(name) for name in follower._services()}
    for service in known.values():
        service.update(stopped, 1.0)
        service.run(stopped["chat-r0"]).checked = True  # no operator has stopped it
    known["agent"].adopt(order(journal, "n1", BOOT.boot))
    return follower, known


def test_a_new_release_leaves_the_memory_of_a_promoted_engine_that_is_down(tmp_path: Path) -> None:
    _, known = services(tmp_path)
    agent, chat = known["agent"], known["chat"]
    moments = {
        "agent": Moment(BOOT.boot, False, -math.inf, 10.0, chat.reserved_gib),
        "chat": Moment(BOOT.boot, False, -math.inf, 10.0, agent.reserved_gib),
    }
    assert (chat.reserved_gib, agent.reserved_gib) == (80.0, 0.0), "agent is not promoted"

    for name, service in known.items():
        reserved_gib = moments[name].reserved_gib
        container = f"{name}-r0"
        assert next_task(service, moments[name]) == Measure(container, reserved_gib)
        service.start(container).room = MeasuredRoom(110.0, 9.0, 10.0)

    assert next_task(agent, moments["agent"]) is None, "30 GiB are left beside chat"
    assert next_task(chat, moments["chat"]) == MarkRestart("chat-r0")
    agent.start("agent-r0").room = MeasuredRoom(160.0, 9.0, 10.0)
    assert next_task(agent, moments["agent"]) is not None, "there is room for both"


def test_a_running_engine_and_one_that_an_operator_stopped_reserve_nothing(tmp_path: Path) -> None:
    _, known = services(tmp_path)
    chat = known["chat"]
    chat.by_hand = frozenset({"chat-r0"})
    assert chat.reserved_gib == 0.0

    chat.by_hand = frozenset()
    chat.update({"chat-r0": replace(runs(CHAT), state="running")}, 2.0)
    assert chat.reserved_gib == 0.0

    chat.update({}, 3.0)
    assert chat.reserved_gib == 80.0, "it was removed, and is created again"


def test_a_guard_reports_the_promoted_engine_that_starts_before_a_new_release(tmp_path: Path) -> None:
    follower, known = services(tmp_path)

    assert follower._load_beside(known["agent"]) == "chat-r0"
    known["chat"].update({"chat-r0": replace(runs(CHAT), state="running")}, 2.0)
    known["chat"].run(known["chat"].containers["chat-r0"]).checked = True
    assert follower._load_beside(known["agent"]) == "chat-r0", "whether it has loaded is unknown"
    known["chat"].by_hand = frozenset({"chat-r0"})
    known["chat"].update({"chat-r0": replace(runs(CHAT), state="exited")}, 3.0)
    assert follower._load_beside(known["agent"]) == ""


def test_a_promoted_engine_that_waits_for_another_load_says_so_until_a_stop(tmp_path: Path) -> None:
    follower, known = services(tmp_path)
    chat, loads = known["chat"], {**known["agent"].containers, "agent-r0": replace(runs(AGENT), state="running")}
    for service in known.values():
        service.update(loads, 2.0)

    assert follower._next_task(chat) is None
    assert follower.progress("chat") == {"chat-r0": "waiting for the load of agent"}

    chat.adopt(order(Journal("chat", "n1", revision=4, active=SERVING, stopping=True).offline(), "n1", BOOT.boot))
    assert follower.progress("chat") == {}


def test_the_plan_leaves_the_memory_of_a_promoted_engine_that_is_down() -> None:
    chat = release(memory={"claim_gib": 80.0})
    waits = container_of(chat, Slot.BLUE, gib=80.0, state="exited")
    agent = release(name="a", service="agent", memory={"claim_gib": 80.0})
    rank = RankSpec("n1", waits.name, 80.0)

    lines = str(refusal(Current(promoted=(rank,)), of=agent, n1=on(110.0, waits)))

    assert (
        f"110.0 GiB available - 15 reserved - 80 for {waits.name}, which starts again - 80 claimed: 65.0 GiB short"
        in lines
    )
    assert plan(Current(promoted=(rank,)), of=agent, n1=on(175.0, waits)).mode is Mode.FIRST
    assert plan(Current(), of=agent, n1=on(110.0, waits)).mode is Mode.FIRST, "it is not promoted"
    running = replace(waits, state="running")
    assert plan(Current(promoted=(rank,)), of=agent, n1=on(100.0, running)).mode is Mode.FIRST, "it has its memory"


def test_a_leader_names_the_promoted_engines_of_its_other_services(tmp_path: Path) -> None:
    state = State(tmp_path, lambda: BOOT)
    lead = Lead(
        Journal("chat", "n1", revision=3, active=SERVING),
        state,
        cast("GatewayFront", None),
        dict,
        frozenset,
        lambda _: None,
    )

    node = LocalNode("n1")
    leadership = Leadership(state, node, Follower(state, node, print), link("n1"), print)
    leadership.leads["chat"] = lead

    assert [*leadership.promoted(besides="agent")] == [replace(CHAT, spec="")]
    assert [*leadership.promoted(besides="chat")] == []
