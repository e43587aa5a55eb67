"""Guards and gateways that do not run or do not answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.errors import ConnectionLost, NotReady, SparkopsError
from sparkops.gateway.facts import GatewayFacts
from sparkops.node.network.finding import Finding, Severity
from sparkops.operator.build.weights.checkpoint import ModelDirectory
from sparkops.operator.status.doctor import rules
from sparkops.operator.status.doctor.facts import NodeFacts
from sparkops.operator.status.observation import NodeReport
from sparkops.operator.status.picture import Drift, NodeRow
from sparkops.serving.watch.finding import EngineFinding
from tests.examples import HOST
from tests.operator.status.doctor.test_rules import examined
from tests.sparks import spark

pytestmark = pytest.mark.local

RUN = {"sparkops-guard": "running", "sparkops-gateway": "running"}
WELL = NodeReport("a", HOST, gateway=GatewayFacts(services={}, files={}, loaded=True, problem=""))


@pytest.fixture
def node(tmp_path: Path) -> NodeFacts:
    return replace(examined(tmp_path, "a", spark(1)), agents=RUN)


def found(node: NodeFacts, report: NodeReport | SparkopsError, drift: Sequence[Drift] = ()) -> list[Finding]:
    """What is said of the agents of one node."""
    return [*rules.examine(node), *rules.reached([node], {"a": report}, drift)]


def test_agents_that_answer_are_no_finding(node: NodeFacts) -> None:
    assert found(node, WELL) == []


def test_before_the_first_deploy_there_are_no_agents(node: NodeFacts) -> None:
    assert found(replace(node, agents={}), replace(WELL, gateway=None)) == []


@pytest.mark.parametrize(
    ("state", "step", "fixable"),
    [
        ("exited", "docker start sparkops-guard", True),
        ("restarting", "docker logs --tail 50 sparkops-guard", False),
    ],
)
def test_a_guard_that_does_not_run_is_one_problem(node: NodeFacts, state: str, step: str, fixable: bool) -> None:
    silent = replace(WELL, guard_error=NotReady("a", "the guard is stopped"))

    [finding] = found(replace(node, agents={**RUN, "sparkops-guard": state}), silent)

    assert (finding.code, finding.problem) == ("GUARD_DOWN", f"the container sparkops-guard is {state}")
    assert (finding.next_step, finding.fixable) == (step, fixable)


def test_a_guard_that_runs_and_does_not_answer_is_not_restarted(node: NodeFacts) -> None:
    silent = ConnectionLost("a", "no answer to services", next_step="docker logs sparkops-guard, on a")

    [finding] = found(node, replace(WELL, guard_error=silent))

    assert (finding.code, finding.problem, finding.fixable) == ("GUARD_SILENT", "no answer to services", False)
    assert finding.next_step == "docker logs sparkops-guard, on a"


def test_another_error_of_status_is_not_blamed_on_the_guard(node: NodeFacts) -> None:
    [finding] = found(node, NotReady("a", "the log of x cannot be read"))

    assert finding.code == "STATUS_FAILED"


def test_a_gateway_that_does_not_run_can_be_started(node: NodeFacts) -> None:
    [finding] = found(replace(node, agents={**RUN, "sparkops-gateway": "exited"}), WELL)

    assert (finding.code, finding.next_step, finding.fixable) == ("GATEWAY_DOWN", "docker start sparkops-gateway", True)


def test_a_gateway_that_runs_and_does_not_answer_shows_why(node: NodeFacts) -> None:
    ill = replace(WELL, gateway=GatewayFacts(services={}, files={}, loaded=False, problem="no socket"))

    [finding] = found(node, ill)

    assert (finding.code, finding.problem) == ("GATEWAY_DOWN", "sparkops-gateway does not answer: no socket")


def test_a_service_that_needs_an_operator_is_a_problem_with_the_step_of_status() -> None:
    drift = [Drift(code="NEEDS_PERSON", node="a", detail="chat: q does not answer", next_step="sparkops logs chat")]

    [finding] = rules.unresolved([*drift, Drift(code="ORPHAN", node="b", detail="x runs")])

    expected = ("NEEDS_PERSON", "a", "chat: q does not answer", "sparkops logs chat")
    assert (finding.code, finding.node, finding.problem, finding.next_step) == expected


@pytest.mark.parametrize("code", ["GATEWAY_NODE", "NODE_NAME"])
def test_an_inventory_that_contradicts_the_fleet_is_the_first_problem(node: NodeFacts, code: str) -> None:
    drift = [Drift(code=code, node="", detail="it is wrong", next_step="Correct it.")]
    down = replace(node, agents={**RUN, "sparkops-guard": "exited"})

    diagnosis = rules.diagnose({"a": down}, (), [*rules.unresolved(drift)])

    assert [finding.code for finding in diagnosis.findings] == [code, "GUARD_DOWN"]
    assert (diagnosis.findings[0].problem, diagnosis.findings[0].next_step) == ("it is wrong", "Correct it.")


@pytest.mark.parametrize("exists", [True, False])
def test_a_model_directory_that_does_not_exist_is_a_problem_with_its_command(node: NodeFacts, *, exists: bool) -> None:
    directory = ModelDirectory(exists, writable=exists, free=10**12, user=1000, group=100, checkpoints={})

    found_there = [*rules.examine(replace(node, weights=directory))]

    expected = ("the model directory /srv/models does not exist", "sudo install -d -o 1000 -g 100 /srv/models")
    problems = [(finding.problem, finding.next_step) for finding in found_there if finding.code == "NO_MODEL_DIR"]
    assert problems == ([] if exists else [expected])


def test_a_guard_that_its_leader_does_not_reach_is_a_problem(node: NodeFacts) -> None:
    drift = [
        Drift(code="GUARD_NOT_REACHED", node="b", detail="chat: a cannot reach the guard of b"),
        Drift(code="ORPHAN", node="b", detail="x runs"),
    ]

    [finding] = found(node, WELL, drift)

    assert (finding.code, finding.node, finding.problem) == ("GUARD_NOT_REACHED", "b", drift[0].detail)


def test_what_the_watch_has_found_is_a_warning_with_the_step_of_status() -> None:
    names = {"code": "STALLED", "service": "chat", "node": "a", "container": "chat-blue-r0"}
    found = EngineFinding(**names, since=1000.0, detail="no engine step for 310 s", next_step="sparkops history chat")

    [finding] = rules.watched([found])

    expected = ("STALLED", "a", "chat-blue-r0: no engine step for 310 s", "sparkops history chat", Severity.WARNING)
    assert (finding.code, finding.node, finding.problem, finding.next_step, finding.severity) == expected


def test_a_cordon_and_services_that_have_not_returned_are_warnings() -> None:
    rows = [
        NodeRow(name="a", reachable=True, error=None, memory=None, cordon="fan, by ann", displaced=["chat"]),
        NodeRow(name="b", reachable=True, error=None, memory=None),
    ]

    [finding] = rules.cordoned(rows)

    expected = ("CORDONED", "a", "cordoned: fan, by ann; chat not returned", "sparkops node return a", Severity.WARNING)
    assert (finding.code, finding.node, finding.problem, finding.next_step, finding.severity) == expected
