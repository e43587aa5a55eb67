"""The program that reads a node for status, on this machine with a `docker` program of the test."""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer

from sparkops.config import inventory, programs
from sparkops.engines.load import Load, Rates
from sparkops.errors import ConnectionLost, NotReady
from sparkops.names import Slot
from sparkops.node.host import Gpu
from sparkops.node.local import LocalNode
from sparkops.node.program import python
from sparkops.node.survey.commands import request
from sparkops.node.waiting import START_FAILED
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.status_output import show
from sparkops.operator.fleet.guards import replies
from sparkops.operator.status.observation import NodeReport, read, reported
from sparkops.operator.status.picture import Health
from sparkops.operator.status.read import Reader
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, RankSpec, Replica
from tests.docker_socket import docker_socket
from tests.fleet_unit.machine import inspect
from tests.guard_peer import Peer
from tests.places import ROOT

CAPTURED = ROOT / "tests/captured/vllm-0.32.0-cpu-metrics.txt"
BUSY = 'vllm:num_requests_running{engine="0"} 2.0\nvllm:generation_tokens_total{engine="0"} 1e+02\n'
LOG = "2026-11-21T00:00:01.0Z (EngineCore pid=1) INFO 11-21 00:00:01 [core.py:1] Initializing a V1 LLM engine\n"
DOCKER = """#!/bin/sh
echo "$*" >> {here}/ran
case "$*" in
*sparkops.node*) cat {here}/node; exit ;;
esac
case "$1 $2" in
"ps "*) cat {here}/ps; exit $(cat {here}/code) ;;
"inspect "*) cat {here}/inspects; cat {here}/gone >&2; test ! -s {here}/gone ;;
"logs "*) cat {here}/log ;;
"exec sparkops-gateway") cat {here}/gateway >&2; cp {here}/absent {here}/gateway; exit 1 ;;
"exec "*) test -d {here}/peer && exec env PYTHONPATH={root} {python} -m tests.guard_peer {here}/peer n1
  cat {here}/guard >&2; exit 1 ;;
esac
"""
SMI = """#!/bin/sh
for field in $(echo "${{1#--query-gpu=}}" | tr , ' '); do
  case $field in
{cases}
    *) echo '[Not Supported]' ;;
  esac
done | paste -s -d , | sed 's/,/, /g'
"""
GPU = {
    "utilization.gpu": "7",
    "power.draw": "55.10",
    "temperature.gpu": "48",
    "clocks.sm": "[N/A]",
    "memory.used": "4715",
    "memory.total": "81559",
}
STOPPED = "Error response from daemon: container 0a1b2c3d is not running\n"
TWO_ENGINES = """vllm:kv_cache_usage_perc{engine="1"} 0.25
vllm:kv_cache_usage_perc{engine="2"} 0.75
"""
Engine = ThreadingHTTPServer


@contextmanager
def engine(page: str) -> Iterator[int]:
    """Serve a healthy engine whose metrics are `page`; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page.encode() if self.path == "/metrics" else b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


class Docker:
    """A `docker` program whose replies are files of a directory."""

    def __init__(self, here: Path) -> None:
        self.here = here
        for name in ("ps", "inspects", "gone", "log", "ran", "node"):
            (here / name).write_text("")
        for name, container in (("absent", "gateway"), ("gateway", "gateway"), ("guard", "guard")):
            (here / name).write_text(f"Error response from daemon: No such container: sparkops-{container}\n")
        (here / "code").write_text("0")
        program = here / "docker"
        program.write_text(DOCKER.format(here=here, root=ROOT, python=sys.executable))
        program.chmod(0o755)

    def has(self, *containers: dict[str, Any]) -> None:
        """List and show these containers."""
        (self.here / "ps").write_text("".join(f"{container['Id']}\n" for container in containers))
        (self.here / "inspects").write_text("".join(f"{json.dumps(container)}\n" for container in containers))

    def report(self) -> NodeReport:
        """Read this machine."""
        command = python(programs.load_survey(), request())
        return read("n1", LocalNode("n1").run(command).stdout)

    @property
    def ran(self) -> list[str]:
        """The first word of each command that was run, sorted: some run at once."""
        return sorted(line.split()[0] for line in (self.here / "ran").read_text().splitlines())


def give_gpu(here: Path) -> None:
    """A `nvidia-smi` of one H100, which prints the fields that it is asked for."""
    cases = "\n".join(f"    {name}) echo '{figure}' ;;" for name, figure in GPU.items())
    program = here / "nvidia-smi"
    program.write_text(SMI.format(cases=cases))
    program.chmod(0o755)


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    return Docker(tmp_path)


def chat(name: str, port: int = 1, status: str = "running", **labels: str) -> dict[str, Any]:
    """The inspect of an engine of service chat."""
    values = {"service": "chat", "release": "r1", "slot": "blue", "port": str(port), **labels}
    return inspect(name, {f"sparkops.{key}": value for key, value in values.items()}, status)


def test_a_node_without_engines_takes_three_docker_commands(docker: Docker) -> None:
    report = docker.report()

    assert (report.ranks, report.gateway, report.states) == ((), None, ())
    assert report.host.memory_total_gib > 0
    assert docker.ran == ["exec", "exec", "ps"]


def test_an_idle_engine_is_read_once_and_a_busy_one_twice(docker: Docker) -> None:
    with engine(CAPTURED.read_text()) as idle, engine(BUSY) as busy:
        docker.has(chat("idle", idle), chat("busy", busy))
        first, second = docker.report().ranks

    assert (first.health, first.stage, first.load, first.rates.tok_s) == (Health.OK, "serving", Load(0, 0, 8), 0.0)
    assert (second.health, second.load, second.rates.tok_s) == (Health.OK, Load(2, 0, 100), 0.0)
    assert docker.ran == ["exec", "exec", "inspect", "ps"]


def test_the_figures_of_an_engine_are_read_from_its_metrics(docker: Docker) -> None:
    with engine(CAPTURED.read_text() + TWO_ENGINES) as port:
        docker.has(chat("c", port))
        [rank] = docker.report().ranks

    assert rank.rates == Rates(0.0, 0.03442192077636719, kv_use=0.75, prefix_hits=0.0)


def test_a_container_has_its_age_and_uptime_by_the_clock_of_its_node(docker: Docker) -> None:
    now = datetime.now(UTC).replace(tzinfo=None)
    running, stopped = chat("running"), chat("stopped", status="exited")
    running["Created"] = f"{(now - timedelta(hours=2)).isoformat()}Z"
    running["State"]["StartedAt"] = f"{(now - timedelta(hours=1)).isoformat()}Z"
    docker.has(running, stopped)

    first, second = docker.report().ranks

    assert (first.age_s or 0) >= 7200 > (first.up_s or 0) >= 3600
    assert second.age_s is second.up_s is None


def test_an_engine_without_metrics_of_vllm_has_no_load(docker: Docker) -> None:
    with engine("<html>not found</html>") as port:
        docker.has(chat("c", port))
        [rank] = docker.report().ranks

    assert (rank.health, rank.load) == (Health.OK, None)


def test_of_an_engine_that_loads_the_log_says_how_far_it_is(docker: Docker) -> None:
    docker.has(chat("c"))
    (docker.here / "log").write_text(LOG)

    [rank] = docker.report().ranks

    assert rank.health is Health.STARTING
    assert rank.stage
    assert docker.ran == ["exec", "exec", "inspect", "logs", "ps"]


def test_a_stopped_engine_and_a_further_rank_are_not_asked(docker: Docker) -> None:
    docker.has(chat("stopped", status="exited"), chat("second", rank="1", ranks="2"))

    stopped, second = docker.report().ranks

    assert stopped.health is Health.NONE
    assert (second.health, second.stage) == (Health.OK, "rank 1 of 2")
    assert docker.ran == ["exec", "exec", "inspect", "ps"]


def test_a_docker_that_listens_on_its_socket_is_read_without_its_program(docker: Docker) -> None:
    with docker_socket(docker.here / "docker.sock") as daemon, engine(CAPTURED.read_text()) as port:
        daemon.inspects, daemon.names, daemon.gone = [chat("c", port)], ["other"], ["removed"]
        report = docker.report()

    assert [(rank.container.name, rank.health) for rank in report.ranks] == [("c", Health.OK)]
    assert (report.gateway, report.states, docker.ran) == (None, (), [])


def test_gateway_and_guard_are_asked_where_docker_lists_them(docker: Docker) -> None:
    with docker_socket(docker.here / "docker.sock") as daemon:
        daemon.names = ["sparkops-gateway", "sparkops-guard"]
        docker.report()

    assert docker.ran == ["exec", "exec"]


def test_a_socket_of_docker_that_refuses_is_an_error(docker: Docker) -> None:
    with docker_socket(docker.here / "docker.sock") as daemon:
        daemon.refusal = "database is locked"
        with pytest.raises(NotReady, match="database is locked"):
            docker.report()


def test_a_container_that_is_removed_meanwhile_is_left_out(docker: Docker) -> None:
    docker.has(chat("kept", status="exited"))
    (docker.here / "ps").write_text("kept\nremoved\n")
    (docker.here / "gone").write_text("Error response from daemon: No such container: removed\n")

    assert [rank.container.name for rank in docker.report().ranks] == ["kept"]


@pytest.mark.parametrize("text", ["", "Error response from daemon: something else\n"])
def test_a_container_that_cannot_be_read_is_not_taken_for_removed(docker: Docker, text: str) -> None:
    docker.has(chat("kept", status="exited"))
    (docker.here / "ps").write_text("kept\nunread\n")
    (docker.here / "gone").write_text(text)

    with pytest.raises(NotReady, match="Docker does not answer"):
        docker.report()


def test_a_docker_that_refuses_is_an_error_with_the_next_step(docker: Docker) -> None:
    (docker.here / "ps").write_text("permission denied")
    (docker.here / "code").write_text("1")

    with pytest.raises(NotReady, match="the user has no access to Docker"):
        docker.report()


def test_a_node_without_docker_says_so(docker: Docker, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = docker.here / "tools"
    tools.mkdir()
    (tools / "python3").symlink_to(sys.executable)
    for name in ("sh", "uname", "date", "cat", "awk", "sed"):
        (tools / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(tools))

    with pytest.raises(NotReady, match="Docker is not installed"):
        docker.report()


def test_a_node_without_gateway_and_guard_is_no_error(docker: Docker) -> None:
    report = docker.report()

    assert (report.gateway, report.states) == (None, ())


def test_a_guard_that_does_not_reply_is_not_taken_for_none(docker: Docker) -> None:
    (docker.here / "guard").write_text("Error response from daemon: container 0a is paused, unpause it\n")

    report = docker.report()

    assert isinstance(report.guard_error, ConnectionLost)
    assert "the guard ended before it replied to `services`: " in report.guard_error.problem
    assert report.guard_error.next_step == "docker logs sparkops-guard, on n1"


def test_a_stopped_guard_hides_neither_its_node_nor_engines_and_gateway(docker: Docker) -> None:
    (docker.here / "guard").write_text(STOPPED)
    with engine(CAPTURED.read_text()) as port:
        docker.has(chat("c", port))
        report = docker.report()

    assert [(rank.container.name, rank.health) for rank in report.ranks] == [("c", Health.OK)]
    assert report.host.memory_total_gib > 0
    assert report.states == ()
    assert isinstance(report.guard_error, NotReady)
    assert (report.guard_error.problem, report.guard_error.next_step) == (
        "the guard is stopped",
        "docker start sparkops-guard, on n1",
    )


@pytest.mark.parametrize(("words", "code"), [("is not running", 7), ("is restarting, wait until it runs", 1)])
def test_the_exit_code_of_status_names_a_guard_that_cannot_be_read(
    docker: Docker, capsys: pytest.CaptureFixture[str], words: str, code: int
) -> None:
    (docker.here / "guard").write_text(f"Error response from daemon: container 0a1b {words}\n")
    file = docker.here / "inventory.yaml"
    file.write_text("nodes:\n  n1: {transport: local}\n")
    fleet = inventory.load(file)

    with closing(Reader(fleet, fleet.nodes)) as reader, pytest.raises(typer.Exit) as ended:
        show(Settings(file, verbose=False), reader, reader.read(), None, json=False)

    out = capsys.readouterr().out
    assert ended.value.exit_code == code
    assert "n1    guard silent" in out
    assert "no service known: not every node could be read" in out


def test_a_guard_reports_every_service_that_it_leads(docker: Docker) -> None:
    peer = Peer(docker.here / "peer", "n1", ("n1",))
    peer.directory.mkdir()
    journals = [Journal(name, "n1", active=deployed(f"{name}-1")) for name in ("chat", "code")]
    search = Journal("search", "n2", active=deployed("search-1"), revision=1)
    for journal in (*journals, search):
        peer.write(journal)

    report = docker.report()

    assert [state.journal for state in report.states] == journals
    assert report.copies == (search,)
    texts = [event.text for event in report.events["chat"]]
    assert texts == [next(replies.lines(event)) for event in peer.events("chat")]
    assert [question["service"] for question in peer.requests("state")] == ["chat", "code", "search"]


@pytest.mark.parametrize("listed", [True, False])
def test_a_node_has_the_name_by_which_its_guard_knows_it(docker: Docker, *, listed: bool) -> None:
    """Its containers, too: the journals of the fleet name them so."""
    docker.has(chat("c", status="exited"))
    (docker.here / "guard").write_text(STOPPED)
    (docker.here / "node").write_text("node-7\n")
    if listed:
        with docker_socket(docker.here / "docker.sock") as daemon:
            guard = {**inspect("sparkops-guard", {"sparkops.node": "node-7"}, "exited"), "Id": "g"}
            daemon.inspects = [chat("c", status="exited"), guard]
            report = docker.report()
    else:
        report = docker.report()

    assert (report.name, report.place) == ("n1", "node-7")
    assert [rank.container.node for rank in report.ranks] == ["node-7"]


def test_gpus_are_asked_by_a_command_more(docker: Docker) -> None:
    (docker.here / "inventory.yaml").write_text("nodes:\n  n1: {transport: local}\n")
    give_gpu(docker.here)
    fleet = inventory.load(docker.here / "inventory.yaml")

    with closing(Reader(fleet, fleet.nodes, gpus=True)) as reader:
        with_gpus = reported("n1", reader.read()["n1"])
    with closing(Reader(fleet, fleet.nodes)) as reader:
        without_gpus = reported("n1", reader.read()["n1"])

    assert isinstance(with_gpus, NodeReport)
    assert isinstance(without_gpus, NodeReport)
    assert with_gpus.gpus == (Gpu(0.07, 55.1, 48.0, None, 4715 / 1024, 81559 / 1024),)
    assert without_gpus.gpus == ()
    assert with_gpus.host.disk_free_gib is None or with_gpus.host.disk_free_gib > 0


def deployed(release: str) -> Deployment:
    """One rank on n1."""
    return Deployment(release, Slot.BLUE, (Replica((RankSpec("n1", f"{release}-r0"),)),))


def test_a_question_that_docker_could_not_begin_is_repeated(docker: Docker) -> None:
    (docker.here / "gateway").write_text(f"OCI runtime exec failed: {START_FAILED[0]}: {START_FAILED[1]}\n")
    file = docker.here / "inventory.yaml"
    file.write_text("nodes:\n  n1: {transport: local}\ngateway: {node: n1, address: 127.0.0.1}\n")

    fleet = inventory.load(file)
    with closing(Reader(fleet, fleet.nodes)) as reader:
        report = reported("n1", reader.read()["n1"])

    assert isinstance(report, NodeReport)
    assert report.gateway is None
    assert docker.ran.count("ps") == 2
