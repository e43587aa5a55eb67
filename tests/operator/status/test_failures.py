"""Why a container does not work, and what to do about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.gateway.facts import ServiceFacts, SlotFacts
from sparkops.names import Slot, backend
from sparkops.operator.status import join
from sparkops.operator.status.observation import RankReport, ServiceReport
from sparkops.operator.status.picture import Health
from sparkops.serving.service_state import ServiceState
from sparkops.swap.fleet_state import EngineReport, EngineState, Report
from sparkops.swap.journal import Journal
from tests.examples import container, rank

NAME = container(rank()).name


def of(health: Health, states: tuple[ServiceState, ...] = (), **changes: Any) -> tuple[str, str]:
    report = RankReport(container(rank(), **changes), health)
    return join.why_failing(report, ServiceReport("chat", (report,), None, states))


@pytest.mark.parametrize(
    ("health", "changes", "problem"),
    [
        (Health.NONE, {"state": "exited", "exit_code": 3}, f"{NAME} exited with code 3"),
        (Health.NONE, {"state": "exited", "exit_code": 137, "oom_killed": True}, f"{NAME} was OOM-killed"),
        (Health.FAILING, {}, f"{NAME} runs, but /health does not answer"),
        (
            Health.STARTING,
            {"state": "restarting", "restarts": 4, "exit_code": 1},
            f"{NAME} is in a restart loop: 4 restarts, exit code 1",
        ),
    ],
)
def test_a_container_that_does_not_work_has_a_reason_and_a_next_command(
    health: Health, changes: dict[str, Any], problem: str
) -> None:
    assert of(health, **changes) == (problem, "sparkops logs chat")


@pytest.mark.parametrize(
    ("health", "changes"),
    [
        (Health.OK, {}),
        (Health.STARTING, {}),
        (Health.NONE, {"state": "exited", "exit_code": 0}),
        (Health.NONE, {"state": "exited", "exit_code": 143}),
    ],
)
def test_a_container_that_works_or_was_stopped_has_none(health: Health, changes: dict[str, Any]) -> None:
    assert of(health, **changes) == ("", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("stalled: no progress for 60 s", ("stalled: no progress for 60 s", "sparkops history chat")),
        ("stalled\n  likely cause: x\nnext: Do y.", ("stalled\n  likely cause: x", "Do y.")),
    ],
)
def test_what_the_guard_reports_of_a_start_comes_first(text: str, expected: tuple[str, str]) -> None:
    engine = EngineReport(NAME, EngineState.STOPPED, problem=text)
    state = ServiceState(Journal("chat", "n1"), reports={"n1": Report("n1", "b", 1, 1, engines=(engine,))})

    assert of(Health.NONE, (state,), state="exited", exit_code=1) == expected


def test_how_an_earlier_release_ended_is_history_while_another_one_works() -> None:
    live = rank(slot=Slot.GREEN)
    slot = SlotFacts("chat", Slot.GREEN, live.release.id, live.release.id, ("10.0.0.1:8002",))
    name = backend("chat", Slot.GREEN)
    front = ServiceFacts("chat", 8000, name, name, {Slot.GREEN: slot})
    ended = RankReport(container(rank(model={"revision": "old"}), state="exited", exit_code=1))
    works = RankReport(container(live), Health.OK)
    led = (ServiceState(Journal("chat", "n1")),)

    assert join.why_failing(ended, ServiceReport("chat", (ended, works), front, led)) == ("", "")
    assert (
        join.why_failing(ended, ServiceReport("chat", (ended,), front, led))[0]
        == f"{ended.container.name} exited with code 1"
    )


def test_progress_is_that_of_the_container_on_its_node() -> None:
    states = (ServiceState(Journal("chat", "n1"), progress={"n1": {NAME: "loading weights 40 %"}}),)

    assert join.awaited(container(rank()), states) == "loading weights 40 %"
    assert join.awaited(replace(container(rank()), node="n2"), states) is None
