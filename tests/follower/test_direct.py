"""A service without a gateway, from the intent to the stop: one guard leads and follows on this machine's Docker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import requests

from sparkops.deploy.deployment import limits
from sparkops.guard.daemon import link
from sparkops.guard.leadership import Leadership
from sparkops.guard.operator_requests import OperatorRequests
from sparkops.names import Slot
from sparkops.swap import wire
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.intents import Deploy, Intent, Stop
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode
from tests.fleet.shell import docker
from tests.follower.here import NODE, Here, inspect, recipe

pytestmark = pytest.mark.fleet
SERVICE = "direct"
SWAP = {"reserve_gib": 0.1, "bake_s": 1, "drain_s": 5}


@dataclass
class Led:
    """A guard that leads `SERVICE`. Every release of it has the same port."""

    guard: Here
    port: int = field(default_factory=lambda: recipe(SERVICE).serve.port)
    leadership: Leadership = field(init=False)

    def __post_init__(self) -> None:
        self.restart()
        self.ask("lead", copies=[], peers=[], direct=True)

    def restart(self) -> None:
        """A new process of the guard."""
        self.guard.restart()
        here = self.guard
        self.leadership = Leadership(here.state, here.node, here.follower, link(NODE), here.lines.append)
        self.leadership.start()
        here.turn()

    def ask(self, op: str, **words: Any) -> Any:
        verbs = {**self.leadership.verbs(), **OperatorRequests(self.leadership).verbs()}
        return verbs[op]({"op": op, "service": SERVICE, **words})

    @property
    def journal(self) -> Journal:
        state = self.ask("state")
        assert state["direct"] is True
        return wire.load_value(Journal, state["journal"])

    def send(self, intent: Intent) -> dict[str, Any]:
        reply = self.ask("intend", intent=wire.plain(type(intent), intent))
        assert isinstance(reply, dict)
        return reply

    def release(self, name: str, slot: Slot, **knobs: Any) -> Deployment:
        given = {"serve__port": self.port, "swap": SWAP, **knobs}
        candidate = recipe(SERVICE, RELEASE_NAME=name, **given)
        return replace(self.guard.deployment(candidate, slot=slot, callers=None, direct=True), limits=limits(candidate))

    def deploy(self, target: Deployment, mode: Mode) -> dict[str, Any]:
        """Deploy to the end; the event that ended it."""
        accepted = self.send(Deploy(uuid.uuid4().hex, self.journal.revision, target, mode))
        assert accepted["result"] == "accepted", accepted
        return self.ended(accepted["last"])

    def ended(self, since: int) -> dict[str, Any]:
        def last() -> list[dict[str, Any]]:
            return [event for event in self.ask("events", since=since) if event["kind"] in ("end", "trouble")]

        ends = self.guard.until(last)
        self.guard.until(lambda: self.journal.swap is None and not self.journal.stopping)
        assert isinstance(ends, list)
        return dict(ends[-1])

    def answer(self) -> str:
        """The name of the release that answers at the port of the service."""
        body = {"model": SERVICE, "messages": [{"role": "user", "content": "1"}], "max_tokens": 1}
        response = requests.post(f"http://127.0.0.1:{self.port}/v1/chat/completions", json=body, timeout=120)
        return response.headers["x-stand-in"]


def runs(deployment: Deployment) -> bool:
    return bool(inspect(next(deployment.ranks).container)["State"]["Running"])


@pytest.fixture
def led(guard: Here) -> Iterator[Led]:
    leader = Led(guard)
    yield leader
    leader.leadership.close()


@pytest.mark.matrix
def test_a_service_is_deployed_replaced_in_place_and_stopped(led: Led) -> None:
    first, second = led.release("first", Slot.BLUE), led.release("second", Slot.GREEN)

    assert led.deploy(first, Mode.FIRST)["result"] == "done"
    assert led.answer() == "first"
    policy = inspect(next(first.ranks).container)["HostConfig"]["RestartPolicy"]["Name"]
    assert (policy, led.guard.report(SERVICE).armed) == ("no", next(first.ranks).container)

    assert led.deploy(second, Mode.IN_PLACE)["result"] == "done"
    assert led.answer() == "second"
    assert not runs(first)

    led.restart()  # the map and the journal are on disk
    led.guard.is_(next(second.ranks), EngineState.HEALTHY)
    stopped = led.send(Stop("s1", led.journal.revision))
    assert led.ended(stopped["last"])["result"] == "stopped"
    assert not runs(second)
    assert led.guard.report(SERVICE).armed == ""


@pytest.mark.matrix
def test_a_release_that_fails_in_place_gives_it_back(led: Led) -> None:
    first = led.release("first", Slot.BLUE)
    bad = led.release("bad", Slot.GREEN, CRASH_AT="40")
    assert led.deploy(first, Mode.FIRST)["result"] == "done"

    end = led.deploy(bad, Mode.IN_PLACE)

    assert (end["result"], end["exit_code"], end["release"]) == ("reverted", 6, first.release)
    assert led.answer() == "first"


def test_an_engine_that_is_paused_is_stopped_all_the_same(led: Led) -> None:
    first = led.release("first", Slot.BLUE)
    assert led.deploy(first, Mode.FIRST)["result"] == "done"
    docker("pause", next(first.ranks).container)

    stopped = led.send(Stop("s1", led.journal.revision))

    led.guard.until(lambda: led.journal.stopped)
    docker("unpause", next(first.ranks).container)
    assert led.ended(stopped["last"])["result"] == "stopped"
    assert not runs(first)
