"""A new engine prints a line of 4 MiB that is slow to search: its guard leads on, and the swap ends as without it."""

from __future__ import annotations

import time
from subprocess import Popen

import pytest

from sparkops.node.docker.facts import Container
from sparkops.swap.model import Mode, Phase
from tests.fleet.node import FleetNode
from tests.real.endings import Look, at, good_end, looking
from tests.real.service import GATEWAY, Service, nothing_failed, unused

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]

BYTES = 4 * 2**20
PROGRESS, CREDENTIALS = "Loading pt:", "://a:"
"""What patterns of the progress and of credentials begin with: each place could be the start of a match."""


def prints(node: FleetNode, engine: Container, words: str) -> None:
    """Let an engine print a line of these words, over and over. It is stopped meanwhile: its own lines would end it."""
    _, *processes = node.exec("docker", "top", engine.name, "-o", "pid").split()
    node.exec("kill", "-STOP", *processes)
    line = f"yes '{words}' | tr -d '\\n' | head -c {BYTES}; echo"
    node.exec("sh", "-c", f"{{ {line}; }} >/proc/{processes[0]}/fd/1")
    node.exec("kill", "-CONT", *processes)


def longest_line(node: FleetNode, engine: Container) -> int:
    """The length of the longest line of its log, as Docker gives it."""
    return int(node.exec("sh", "-c", f"docker logs {engine.name} 2>&1 | wc --max-line-length"))


def slowest_turn_s(look: Look, deploy: Popen[str]) -> float:
    """The longest time for an answer of the leader until a deploy ends."""
    slowest_s = 0.0
    while deploy.poll() is None:
        asked_s = time.monotonic()
        look()
        slowest_s = max(slowest_s, time.monotonic() - asked_s)
        time.sleep(0.05)
    return slowest_s


@pytest.mark.parametrize(
    ("words", "ends", "crash"),
    [(PROGRESS, 0, {}), (CREDENTIALS, 1, {"CRASH_AT": "90"})],
    ids=["progress, a good start", "credentials, a failed start"],
)
def test_a_long_line_in_the_log_of_a_new_engine_delays_no_guard(
    stand_in: Service, words: str, ends: int, crash: dict[str, str]
) -> None:
    """The evidence of a failed start has the line too, without what looks like credentials."""
    stand_in.begin(name="", node=GATEWAY)
    node, (old,) = stand_in.nodes.node(GATEWAY), stand_in.running()
    beside = ("--mode", Mode.BESIDE, "--node", GATEWAY)
    with stand_in.load() as load, looking(stand_in) as look:
        load.wait_for(20)
        with at(stand_in, Phase.LOAD, *beside, name=unused(), START_S="20", **crash) as deploy:
            (new,) = (engine for engine in stand_in.running() if engine.name != old.name)
            prints(node, new, words)
            long = longest_line(node, new)
            slowest_s = slowest_turn_s(look, deploy)
            _, err = deploy.communicate()
        live = good_end(stand_in)
        load.wait_for(load.report().good + 50)
    print(f"\na line of {long} characters of {words!r}: the leader's slowest answer took {slowest_s:.2f} s")

    assert long >= BYTES
    assert (deploy.returncode, live) == (ends, old.release if ends else new.release), err
    nothing_failed(load)
