"""The last memory of a node beside an engine that serves, on real nodes. The test writes what the guard reads of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.service import GATEWAY, Service, enough, nothing_failed, wait_for
from tests.real.test_watch import findings
from tests.real.weights import resident

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]
SIZE = 64 << 20
FILES = f"mkdir -p /srv/models/stand-in && head -c {SIZE} /dev/urandom >/srv/models/stand-in/model.safetensors && sync"
FULL = "sed 's/^MemAvailable:.*/MemAvailable: 100000 kB/' /proc/meminfo >/tmp/meminfo"


def pid(node: FleetNode) -> str:
    """Return the process of the guard; 0 while it has none."""
    return node.exec("docker", "inspect", "--format", "{{.State.Pid}}", "sparkops-guard").strip()


@contextmanager
def full(node: FleetNode) -> Iterator[None]:
    """Let the guard of a node see 0.1 GiB of memory, as if another program had taken the rest."""
    node.exec("docker", "exec", "sparkops-guard", "sh", "-c", FULL)
    inside = ("nsenter", f"--target={pid(node)}", "--mount", "--pid", "--")
    node.exec(*inside, "mount", "--bind", "/tmp/meminfo", "/proc/meminfo")
    try:
        yield
    finally:
        node.exec(*inside, "umount", "/proc/meminfo")


def test_an_engine_that_serves_is_named_and_keeps_serving(stand_in: Service, nodes: RealFleet) -> None:
    engine = stand_in.anew("--node", GATEWAY, name="warned")
    node = nodes.node(engine.node)

    with stand_in.load() as load:
        load.wait_for(50)
        with full(node):
            (finding,) = wait_for(lambda: findings(stand_in))
            load.wait_for(load.report().good + 50)
        wait_for(lambda: not findings(stand_in))
        wait_for(lambda: enough(load))

    assert (finding["code"], finding["container"]) == ("LOW_MEMORY", engine.name)
    assert finding["detail"].startswith("0.1 GiB of memory left, floor ")
    assert [same.started_at for same in stand_in.running()] == [engine.started_at]
    assert "page cache dropped: " in node.exec("sh", "-c", "docker logs sparkops-guard 2>&1")
    events = stand_in.cli("history", "stand-in", "--json").json["events"]
    assert [event for event in events if event["kind"] == "finding" and event.get("evidence")]
    nothing_failed(load)


@pytest.fixture
def weights(nodes: RealFleet) -> Iterator[None]:
    """The stand-in's model as a file that was just written, so that the page cache has it."""
    node = nodes.node(GATEWAY)
    node.exec("sh", "-c", FILES)
    yield
    node.exec("rm", "-r", "/srv/models/stand-in")


@pytest.mark.usefixtures("weights")
def test_an_engine_whose_recipe_says_so_ends_and_starts_again_once_there_is_memory(
    stand_in: Service, nodes: RealFleet
) -> None:
    engine = stand_in.anew("--node", GATEWAY, name="yields", memory__at_floor="kill")
    node = nodes.node(engine.node)
    cached = resident(node, "stand-in")

    with full(node):
        wait_for(lambda: not stand_in.running())
        wait_for(lambda: "waiting for memory" in str(stand_in.state()["progress"]))
    (again,) = wait_for(stand_in.running)

    log = node.exec("sh", "-c", "docker logs sparkops-guard 2>&1")
    assert (cached, resident(node, "stand-in")) == (SIZE, 0)
    assert log.index("page cache dropped: 1 files, 0.1 GiB ") < log.index(
        f"{engine.name} killed (promoted, and started last)"
    )
    assert (again.name, again.started_at > engine.started_at) == (engine.name, True)
    wait_for(lambda: stand_in.status()["state"] == "healthy")
    assert stand_in.cli("probe", "stand-in").code == 0


def test_a_guard_that_is_killed_beside_it_does_not_take_it_for_one_that_loads(
    stand_in: Service, nodes: RealFleet
) -> None:
    """For the next guard the engine is unknown until it answers."""
    engine = stand_in.anew("--node", GATEWAY, name="survives")
    node = nodes.node(engine.node)

    with stand_in.load() as load:
        load.wait_for(50)
        before = pid(node)
        node.kill_container("sparkops-guard")
        wait_for(lambda: pid(node) not in ("0", before))
        with full(node):
            wait_for(lambda: findings(stand_in))
            load.wait_for(load.report().good + 100)
        wait_for(lambda: enough(load))

    assert [same.started_at for same in stand_in.running()] == [engine.started_at]
    nothing_failed(load)
