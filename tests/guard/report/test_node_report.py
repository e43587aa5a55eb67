"""The report of a guard's node, with engines that answer HTTP on this machine and Docker's socket of the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import inventory
from sparkops.engines.load import Load
from sparkops.guard.report.node_report import IDLE_S, REQUESTED_S, Sampler, serve_reports
from sparkops.node.cordon import Cordon
from sparkops.node.local import LocalNode
from sparkops.node.survey.commands import FORMAT
from sparkops.operator.status.join import join
from sparkops.operator.status.observation import NodeReport, read, reported
from sparkops.operator.status.picture import Health
from sparkops.operator.status.read import Reader
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from tests.docker_socket import DockerSocket, docker_socket
from tests.fleet_unit.machine import inspect
from tests.guard_peer import Peer
from tests.http_server import Answer, Asked, answering
from tests.operator.deploy.states import deployed

pytestmark = pytest.mark.local


class Node:
    """A node with one engine of service chat, whose guard samples by the clock `now_s`."""

    def __init__(self, docker: DockerSocket, directory: Path) -> None:
        self.docker, self.now_s, self.generated, self.running, self.healthy = docker, 0.0, 100, 2, True
        self.pages: list[str] = []
        self.metrics = True
        peer = Peer(directory, "n1", ("n1",))
        peer.write(Journal("chat", "n1"))
        self.verbs: dict[str, Any] = {
            op: lambda request, op=op: json.loads(peer.reply(json.dumps({**request, "op": op})))["ok"] for op in OPS
        }
        self.sampler = Sampler(LocalNode("n1"), self.verbs, clock=lambda: self.now_s)

    def respond(self, request: Asked) -> Answer:
        self.pages.append(request.path)
        running = f'vllm:num_requests_running{{engine="0"}} {self.running}\n'
        text = f'{running}vllm:generation_tokens_total{{engine="0"}} {self.generated}\n'
        fails = not self.healthy or (request.path == "/metrics" and not self.metrics)
        return Answer(503 if fails else 200, text.encode())

    def has_engine(self, port: int, started: str = "2026-11-22T08:00:00Z") -> None:
        labels = {"service": "chat", "release": "r1", "slot": "blue", "port": str(port)}
        facts: dict[str, Any] = inspect("c", {f"sparkops.{key}": value for key, value in labels.items()}, "running")
        facts["State"]["StartedAt"] = started
        self.docker.inspects = [facts]

    def report(self) -> NodeReport:
        return read("n1", json.dumps(self.sampler.report()))


OPS = ("services", "state", "events")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    with docker_socket(tmp_path / "docker.sock") as docker:
        sampled_node = Node(docker, tmp_path)
        with answering(sampled_node.respond) as server:
            sampled_node.has_engine(server.port)
            yield sampled_node


def test_an_engine_that_ends_after_its_journal_was_read_is_no_engine_that_nobody_needs(node: Node) -> None:
    state = node.verbs["state"]

    def last_words(request: dict[str, Any]) -> Any:
        reply = state(request)
        [facts] = node.docker.inspects
        node.docker.inspects = [{**facts, "State": {**facts["State"], "Status": "exited", "Running": False}}]
        return reply

    node.verbs["state"] = last_words

    [rank] = node.report().ranks

    assert not rank.container.running


def test_two_samples_of_the_background_give_the_speed_without_a_wait(node: Node) -> None:
    node.running = 0
    node.sampler.look()
    node.running, node.generated, node.now_s = 2, 400, 15.0
    node.sampler.look()
    before = len(node.pages)
    node.now_s = 16.0

    [rank] = node.report().ranks

    assert (rank.health, rank.load, rank.rates.tok_s) == (Health.OK, Load(2, 0, 400), 20.0)
    assert rank.sampled_s == 1.0
    assert len(node.pages) == before


def test_an_old_sample_is_renewed_before_it_is_reported(node: Node) -> None:
    node.running = 0
    node.sampler.look()
    node.generated, node.now_s = 150, 10.0

    [rank] = node.report().ranks

    assert (rank.rates.tok_s, rank.sampled_s) == (5.0, 0.0)


def test_nodes_that_nobody_looks_at_are_sampled_seldom(node: Node) -> None:
    node.running = 0
    for second in range(0, 60, 2):
        node.now_s = float(second)
        node.sampler.look()
    seldom = node.pages.count("/health")
    node.report()
    for second in range(60, 120, 2):
        node.now_s = float(second)
        node.sampler.look()

    assert seldom == len(range(0, 60, int(IDLE_S) + 1))
    assert node.pages.count("/health") - seldom >= REQUESTED_S / 2 - 1


def test_an_engine_that_was_started_again_is_not_taken_for_the_sampled_one(node: Node) -> None:
    node.running = 0
    node.sampler.look()
    node.generated = 7
    node.has_engine(int(node.docker.inspects[0]["Config"]["Labels"]["sparkops.port"]), "2026-11-22T08:01:00Z")

    [rank] = node.report().ranks

    assert rank.load == Load(0, 0, 7)


def test_an_engine_that_did_not_answer_is_asked_again_for_each_report(node: Node, tmp_path: Path) -> None:
    node.running, node.healthy = 0, False
    (tmp_path / "docker").write_text("#!/bin/sh\n")
    (tmp_path / "docker").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        node.sampler.look()
        assert [rank.health for rank in node.report().ranks] == [Health.STARTING]
    node.healthy = True

    assert [rank.health for rank in node.report().ranks] == [Health.OK]


def test_a_container_that_is_gone_has_no_sample(node: Node) -> None:
    node.running = 0
    node.sampler.look()
    node.docker.inspects, node.docker.gone = [], ["c"]

    assert node.report().ranks == ()


def test_a_report_has_what_the_guard_leads_and_the_disk_of_docker(node: Node) -> None:
    node.running = 0
    report = node.report()

    assert [state.journal.service for state in report.states] == ["chat"]
    assert report.gateway is None
    assert report.host.memory_total_gib > 0


def test_status_reads_a_node_by_the_report_of_its_guard(node: Node, tmp_path: Path) -> None:
    node.running = 0
    (tmp_path / "inventory.yaml").write_text("nodes:\n  n1: {transport: local}\n")
    server = serve_reports(node.sampler.report, tmp_path / "status.sock", tmp_path / "docker.sock")
    fleet = inventory.load(tmp_path / "inventory.yaml")
    with closing(Reader(fleet, fleet.nodes, report=str(tmp_path / "status.sock"))) as reader:
        [text] = reader.read().values()
    server.shutdown()
    server.server_close()

    assert isinstance(text, str)
    assert json.loads(text)["format"] == FORMAT
    assert isinstance(reported("n1", text), NodeReport)


@pytest.mark.parametrize(("healthy", "health"), [(True, Health.OK), (False, Health.UNKNOWN)])
def test_a_container_that_docker_does_not_inspect_hides_neither_itself_nor_another(
    node: Node, healthy: bool, health: Health
) -> None:
    """The shim of a container may hang: Docker then lists it, and the engine in it answers by itself."""
    other = inspect("d", {"sparkops.service": "other", "sparkops.release": "r1", "sparkops.slot": "blue"}, "exited")
    node.docker.inspects.append(other)
    node.docker.hanging = {node.docker.inspects[0]["Id"]}
    node.healthy = healthy

    report = node.report()

    ranks = {rank.container.name: rank for rank in report.ranks}
    assert {name: (rank.listed, rank.health) for name, rank in ranks.items()} == {
        "c": (True, health),
        "d": (False, Health.NONE),
    }
    assert ranks["c"].up_s is None
    status = join(["n1"], {"n1": report})
    [row] = [row for row in status.drift if row.code == "NOT_INSPECTED"]
    assert (row.node, row.detail.split(":")[0]) == ("n1", "c")


def test_figures_for_prometheus_are_those_of_the_last_look_and_ask_no_engine(node: Node) -> None:
    assert node.sampler.engines()[1] == [{}]
    node.healthy = False
    node.sampler.look()
    before = len(node.pages)

    inspects, [engine], docker = node.sampler.engines()

    assert (engine["healthy"], docker["code"], [item["Name"] for item in inspects]) == (False, 0, ["/c"])
    assert len(node.pages) == before
    node.has_engine(1, started="2026-11-22T09:00:00Z")
    assert node.sampler.engines()[1] == [{}]


FOUND = {
    "code": "STALLED",
    "service": "chat",
    "node": "n1",
    "container": "chat-blue-r0",
    "since": 1000.0,
    "detail": "no engine step for 310 s",
    "next_step": "sparkops history chat",
}


def test_a_report_has_what_the_watch_has_found_and_status_shows_it(node: Node) -> None:
    node.sampler.verbs = {**node.sampler.verbs, "findings": lambda _: [{**FOUND, "of a newer guard": 1}]}

    status = join(["n1"], {"n1": node.report()})

    assert [asdict(finding) for finding in status.findings] == [FOUND]


def test_a_guard_that_refuses_the_request_has_found_nothing(node: Node) -> None:
    reply = json.loads(node.sampler.report()["guard"]["findings"])

    assert "does not understand" in reply["error"]
    assert node.report().findings == ()


def test_a_report_has_the_cordon_of_the_node_and_status_shows_it(node: Node) -> None:
    kept = Cordon("new driver, by ann@laptop").taken("chat", deployed())
    node.sampler.verbs = {**node.sampler.verbs, "cordon": lambda _: wire.plain(Cordon, kept)}

    (row,) = join(["n1"], {"n1": node.report()}).nodes

    assert (row.cordon, row.displaced) == ("new driver, by ann@laptop", ["chat"])


def test_a_cordon_that_the_guard_does_not_reply_is_unknown(node: Node) -> None:
    report = node.sampler.report()
    assert "does not understand" in json.loads(report["guard"]["cordon"])["error"]
    assert node.report().cordon == Cordon()
    assert node.report().cordon_error


def test_the_figures_of_an_engine_that_stopped_showing_them_are_unknown(node: Node) -> None:
    node.sampler.look()
    newest = node.sampler.newest("c")
    assert newest is not None
    assert newest.figures["vllm:num_requests_running"] == 2
    node.healthy, node.now_s = False, 15.0
    node.sampler.look()
    later = node.sampler.newest("c")
    assert later is not None
    assert (later.figures, node.sampler.newest("other")) == ({}, None)


def test_a_page_of_metrics_that_failed_once_makes_no_wrong_speed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparkops.node.survey.node_survey.RATE_S", 0.0)
    node.sampler.look()
    node.metrics, node.now_s, node.generated = False, 15.0, 700
    node.sampler.look()
    node.metrics, node.now_s = True, 20.0
    [rank] = node.report().ranks

    assert (rank.load, rank.rates.tok_s) == (Load(2, 0, 700), 0.0)


def test_a_cordon_that_cannot_be_read_is_no_open_node(node: Node) -> None:
    report = node.sampler.report()
    report["guard"]["cordon"] = '{"error": "cordon.json: unreadable", "exit_code": 7, "next_step": "mv it"}\n'

    found = read("n1", json.dumps(report))

    assert found.guard_error is None
    status = join(["n1"], {"n1": found})
    assert [row.cordon_unknown for row in status.nodes] == [True]
    assert [(row.code, row.next_step) for row in status.drift] == [("CORDON_UNREAD", "mv it")]
