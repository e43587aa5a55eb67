"""Starts on a real node with the stand-in engine: what is told of them, and what is left of one that fails."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.evidence import saved
from tests.real.program import Cli, Ran

pytestmark = pytest.mark.fleet

NODE = f"reports-{os.getpid()}"
QUICK = {
    "env.STAND_IN_START_S": "4",
    "env.STAND_IN_TOK_S": "2000",
    "env.STAND_IN_TTFT_S": "0.005",
    "swap.bake_s": "1",
    "swap.keep_old_s": "0",
    "swap.reserve_gib": "1",
    "swap.drain_s": "5",
    "probe.passes": "1",
    "probe.smoke.text.enabled": "false",
}


SERVICES = ("first", "crashes", "learns", "late", "swapped", "crawls")
"""Each test has a service of its own: it has no past starts, and a port of its own at the gateway."""


@dataclass(frozen=True)
class Desk:
    """sparkops with one node that has a gateway and a guard."""

    cli: Cli
    node: FleetNode

    def argv(self, service: str, *argv: str, **knobs: str) -> list[str]:
        changes = {key.replace("__", "."): value for key, value in knobs.items() if not key.isupper()}
        knobs = {f"env.STAND_IN_{key}": value for key, value in knobs.items() if key.isupper()}
        port = 9600 + 10 * SERVICES.index(service)
        values = {**QUICK, "service": service, "serve.port": str(port), **changes, **knobs}
        return ["deploy", "stand-in", *argv, *(w for key, value in values.items() for w in ("--set", f"{key}={value}"))]

    def deploy(self, service: str, *argv: str, **knobs: str) -> Ran:
        return self.cli(*self.argv(service, *argv, **knobs))

    def saved(self, service: str, file: str) -> str:
        """A file of a service's newest evidence."""
        return saved(self.cli, service, {self.node.name: self.node}, file)


@pytest.fixture(scope="module")
def desk(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    try:
        node = nodes.add(NODE)
        home = tmp_path_factory.mktemp("reports")
        file = nodes.write_inventory(home / "inventory.yaml", [node])
        desk = Desk(Cli(file, home), node)
        built = desk.cli("build", "stand-in")
        assert built.code == 0, built.err
        # The first deploy behind the gateway brings the guard, which remembers.
        first = desk.deploy("first", "--blue-green", START_S="1")
        assert first.code == 0, first.err
        yield desk
    finally:
        nodes.remove(NODE)


@pytest.fixture(autouse=True)
def swept(desk: Desk) -> Iterator[None]:
    """No engine is left for the next test."""
    yield
    desk.node.exec("sh", "-c", "docker ps --quiet --filter label=sparkops.service | xargs -r docker rm --force")


@pytest.mark.matrix
def test_a_crash_is_told_and_everything_of_it_is_saved(desk: Desk) -> None:
    knobs = {"CRASH_AT": "80", "MEMORY_MIB": "400", "START_S": "8", "memory__claim_gib": "1"}

    failed = desk.deploy("crashes", **knobs)

    reason = "RuntimeError: the stand-in crashes at 80 % of the weights"
    assert (failed.code, reason in failed.err) == (1, True), failed.err
    assert "no progress for" not in failed.err
    header, *rows = desk.saved("crashes", "memory.csv").splitlines()
    assert header == "time_s,available_gib,container_gib"
    held = [float(row.split(",")[2]) for row in rows]
    assert max(held) - held[0] > 0.25, "300 MiB were loaded"
    assert "the stand-in crashes" in desk.saved("crashes", "log.txt")


@pytest.mark.matrix
def test_the_next_start_is_told_with_what_the_last_ones_took(desk: Desk) -> None:
    runs = []
    for version in ("a", "a", "b"):
        runs.append(desk.deploy("learns", RELEASE_NAME=version).err)
        assert desk.cli("stop", "learns").code == 0

    sources = ["from the recipe", "from 1 past start", "from 2 past starts of other settings"]
    for output, source in zip(runs, sources, strict=True):
        assert f"left, {source}\n" in output, output
    assert re.search(r"loading weights( \d+ %)?, about \d+ s left, from 1 past start\n", runs[1]), runs[1]


@pytest.mark.matrix
def test_a_start_that_takes_longer_than_usual_shows_by_how_much(desk: Desk) -> None:
    ran = desk.deploy("late", START_S="8", expected__cold_start_s="1", expected__tok_s="1")

    assert ran.code == 0, ran.err
    assert re.search(r", \d+ s over the estimate from the recipe\n", ran.err), ran.err


@pytest.mark.matrix
def test_in_place_a_crash_is_told_and_the_old_release_serves_again(desk: Desk) -> None:
    first = desk.deploy("swapped", "--blue-green", RELEASE_NAME="first")
    assert first.code == 0, first.err

    argv = ("--blue-green", "--mode", "in-place", "--allow-downtime")
    failed = desk.deploy("swapped", *argv, RELEASE_NAME="second", CRASH_AT="50")

    assert failed.code == 6, failed.err
    reason = "RuntimeError: the stand-in crashes at 50 % of the weights"
    assert 0 <= failed.err.find(reason) < failed.err.find("; rolling back"), failed.err
    assert "no progress for" not in failed.err


@pytest.mark.matrix
def test_a_green_that_is_too_slow_is_told_with_both_speeds(desk: Desk) -> None:
    failed = desk.deploy("crawls", TOK_S="50", expected__tok_s="500", probe__smoke__speed__enabled="true")

    assert failed.code == 1, failed.err
    assert "the engine is too slow, as with a fallback kernel" in failed.err
    assert re.search(r"expected at least 250\.0 tok/s, 50% of the recipe's 500; got \d+\.\d tok/s", failed.err)
    assert "speed" in desk.saved("crawls", "probe.json")
