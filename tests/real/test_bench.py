"""`sparkops bench` with the real vLLM: its own benchmark, through the gateway and without it."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.inventory import Fleet
from tests import checkpoints
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import RECIPE, Cli
from tests.real.service import GATEWAY, Service
from tests.real.weights import soon

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]

SETTINGS = {"swap.bake_s": "2", "swap.reserve_gib": "1", "probe.passes": "1"}
QUICK = ("--input-tokens", "32", "--output-tokens", "16", "--requests", "4")
RUNS = "/var/lib/sparkops/v2/bench"
TASK = "docker ps --quiet --filter label=sparkops.task=bench"


@pytest.fixture(scope="module")
def tiny(front: Cli, nodes: RealFleet, fleet: Fleet, built: str, model: str) -> Iterator[Service]:
    """The tiny model on node-2 behind the gateway of node-1, and another checkpoint of it."""
    checkpoints.provide(fleet, built, nodes.home / "checkpoints", "tiny-other", "--seed", "1")
    service = Service(front, nodes, str(RECIPE), "tiny", 8000, {**SETTINGS, "model.path": model})
    service.sweep()
    first = service.deploy("--node", "node-2")
    assert first.code == 0, first.err
    yield service
    service.sweep()


def kept(service: Service, name: str) -> Any:
    """A run as the leader's guard keeps it."""
    file = f"{RUNS}/{service.name}/{name}.json"
    return json.loads(service.nodes.node(GATEWAY).exec("docker", "exec", "sparkops-guard", "cat", file))


@pytest.mark.parametrize("options", [(), ("--direct",)], ids=["gateway", "engine"])
def test_the_tools_figures_are_those_that_are_kept(tiny: Service, options: tuple[str, ...]) -> None:
    ran = tiny.cli("bench", "tiny", "--concurrency", "1,2", *QUICK, *options, "--json")

    assert ran.code == 0, ran.err
    active = tiny.journal().active
    assert active
    run = ran.json
    assert (run["release"], run["node"]) == (active.release, "node-2")
    assert run["via"] == ("engine" if options else "gateway")
    assert run["image"].startswith("sha256:")
    assert run["tool"]["version"].startswith("0.32.0")
    assert run["start"]["took_s"] > 0
    for point in run["points"]:
        assert point["complete"]
        assert (point["result"]["completed"], point["result"]["failed"]) == (4, 0)
        assert point["result"]["total_output_tokens"] == 4 * 16
        assert point["result"]["output_throughput"] > 0
        assert point["result"]["median_ttft_ms"] > 0
    assert kept(tiny, f"{run['started']}-{run['release']}") == run
    assert tiny.nodes.node("node-2").exec("sh", "-c", TASK) == ""


def test_a_run_that_is_interrupted_leaves_no_container_and_continues(tiny: Service) -> None:
    node = tiny.nodes.node("node-2")
    with tiny.cli.start("bench", "tiny", "--concurrency", "1,2", *QUICK[:-1], "400") as running:
        assert soon(lambda: node.exec("sh", "-c", TASK) != "")
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=300)

    assert running.returncode == 130
    assert soon(lambda: node.exec("sh", "-c", TASK) == "")
    cut = tiny.cli("bench", "--list", "tiny", "--json").json["runs"][-1]
    assert [point["complete"] for point in cut["points"]] == [False, False]
    continued = tiny.cli("bench", "tiny", "--continue", "--json")
    assert continued.code == 0, continued.err
    assert continued.json["started"] == cut["started"]
    assert [point["result"]["completed"] for point in continued.json["points"]] == [400, 400]


def test_two_releases_compare_and_their_page_is_one_file(tiny: Service, tmp_path: Path) -> None:
    first = tiny.cli("bench", "tiny", "--concurrency", "1", *QUICK, "--json").json
    deployed = tiny.deploy("--node", "node-1", model__path="tiny-other")
    assert deployed.code == 0, deployed.err
    second = tiny.cli("bench", "tiny", "--concurrency", "1", *QUICK, "--json").json
    releases = (first["release"], second["release"])

    compared = tiny.cli("bench", "--compare", *releases, "--report", tmp_path / "page.html", "--json")

    assert compared.code == 0, compared.err
    row = compared.json["figures"][0]
    figures = [run["points"][0]["result"][row["figure"]] for run in (first, second)]
    assert [row["first"], row["second"]] == figures
    assert row["ratio"] == pytest.approx(figures[1] / figures[0])
    assert compared.json["differences"] == ["node: node-2 and node-1"]
    page = (tmp_path / "page.html").read_text()
    assert all(release in page for release in releases)


def test_a_server_that_refuses_each_request_is_a_failure_with_the_tools_words(tiny: Service) -> None:
    ran = tiny.cli("bench", "tiny", "--concurrency", "1", "--input-tokens", "900000", "--requests", "1")

    assert ran.code == 1
    assert "concurrency 1: " in ran.err
    assert "bench tiny --continue" in ran.err
