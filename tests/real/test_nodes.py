"""Nodes of the fleet start on a machine that cannot give every capability."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import RIGHTS, FleetNode, capabilities
from tests.fleet.shell import FleetError, client, docker, pipe

pytestmark = pytest.mark.fleet

HOME = "/run/without-sys-resource"
SOCKET = f"unix://{HOME}/docker.sock"
# In a network namespace of its own: with --bridge=none an engine deletes the docker0 that it finds.
ENGINE = (
    *("setsid", "unshare", "--net", "setpriv", "--bounding-set=-sys_resource"),
    *("dockerd", f"--host={SOCKET}", f"--pidfile={HOME}/pid", f"--data-root={HOME}/data", f"--exec-root={HOME}/exec"),
    *("--bridge=none", "--iptables=false"),
)
PATIENCE_S = 300
SYS_RESOURCE = 1 << 24
IMAGE = "debian:trixie-slim"


@pytest.fixture
def limited(nodes: RealFleet) -> Iterator[FleetNode]:
    """A node with a second engine that lacks SYS_RESOURCE, whatever this machine has."""
    node = nodes.nodes[0]
    # With the node's own capabilities: FleetNode.exec has those of this machine.
    docker("exec", node.container, "sh", "-c", f"mkdir {HOME} && {' '.join(ENGINE)} </dev/null >{HOME}/log 2>&1 &")
    try:
        wait(node)
        enter = (client(), "exec", "--interactive", node.container, "docker", "--host", SOCKET, "load", "--quiet")
        pipe((client(), "exec", node.container, "docker", "save", IMAGE), enter)
        yield node
    finally:
        node.exec("sh", "-c", f"kill $(cat {HOME}/pid); while [ -e {HOME}/pid ]; do sleep 0.1; done; rm -r {HOME}")


def wait(node: FleetNode) -> None:
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            node.exec("docker", "--host", SOCKET, "version")
        except FleetError:
            assert time.monotonic() < end, node.exec("tail", "-n", "20", f"{HOME}/log")
            time.sleep(0.2)
        else:
            return


def test_an_engine_without_sys_resource_starts_a_container_with_the_rights_of_a_node(limited: FleetNode) -> None:
    engine = ("docker", "--host", SOCKET)
    rights = (*capabilities(limited.exec(*engine, "version", "--format", "{{.Server.Version}}")), *RIGHTS)

    status = ("grep", "CapBnd", "/proc/1/status")
    given = limited.exec(*engine, "run", "--rm", "--network=none", *rights, IMAGE, *status)

    assert bits(given) == bits(limited.exec(*status)) & ~SYS_RESOURCE


def bits(line: str) -> int:
    """Return the set of capabilities in a line of /proc/PID/status."""
    return int(line.split()[1], 16)
