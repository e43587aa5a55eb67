"""`docker container prune` after the end of a promoted engine, before its guard starts it again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.fleet.node import FleetNode
from tests.fleet.shell import FleetError
from tests.real.endings import good_end
from tests.real.service import Service, wait_for

pytestmark = pytest.mark.fleet

PRUNE = "docker container prune --force"
AFTER_BOOT = f"""
until [ "$(docker inspect --format '{{{{.State.Running}}}}' sparkops-guard)" = true ]; do sleep 0.02; done
{PRUNE}
"""
"""The guard runs, or it would be removed too."""


def crash(node: FleetNode, engine: str) -> str:
    """The engine ends while its guard is held, so that the prune is first. Returns what was removed."""
    node.exec("docker", "pause", "sparkops-guard")
    try:
        node.kill_container(engine)
        wait_for(lambda: state(node, engine) == "exited")
        return node.exec("sh", "-c", PRUNE)
    finally:
        node.exec("docker", "unpause", "sparkops-guard")


def boot(node: FleetNode, _: str) -> str:
    """The prune meets the first seconds of the guard. Returns what was removed."""
    node.reboot(graceful=False)
    return node.exec("sh", "-c", AFTER_BOOT)


def state(node: FleetNode, engine: str, field: str = ".State.Status") -> str:
    """A field of a container; empty while there is none."""
    try:
        return node.exec("docker", "inspect", "--format", f"{{{{{field}}}}}", engine).strip()
    except FleetError:
        return ""


@pytest.mark.parametrize("end", [crash, pytest.param(boot, marks=pytest.mark.matrix)])
def test_a_promoted_engine_that_was_pruned_is_created_and_starts(
    service: Service, end: Callable[[FleetNode, str], str]
) -> None:
    (engine,) = service.running()
    node = service.nodes.node(engine.node)
    first = state(node, engine.name, ".Id")
    with service.load(rate=5, streams=1) as load:
        load.wait_for(20)
        began = time.monotonic()
        removed = end(node, engine.name)
        assert first in removed, f"the guard was faster: {removed}"
        assert good_end(service) == engine.release
        took_s = time.monotonic() - began
        load.wait_for(load.report().good + 20)
    report = load.report()
    print(f"\npruned after {end.__name__}: {took_s:.0f} s; {report}")

    assert state(node, engine.name, ".Id") not in ("", first)
