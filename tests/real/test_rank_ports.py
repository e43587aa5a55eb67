"""A container on a third node attacks a pair: nothing between the ranks answers to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from sparkops.node.agents.commands import PEER_PORT
from tests.fleet.fleet import Fleet
from tests.fleet.shell import FleetError
from tests.real import pairs
from tests.real.program import Cli
from tests.real.service import Service, write_inventory

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]  # it needs a third node

RENDEZVOUS_PORT = pairs.PORT + 3
SSH, FOR_ALL = 22, frozenset({22, PEER_PORT, pairs.PORT})
"""Ports that every address may reach: SSH, the guard and the service on the gateway."""
ATTACK_S = 90
LISTENING = (
    'awk \'$4 == "0A" && $2 !~ /0100007F:/ {print substr($2, index($2, ":") + 1)}\' /proc/net/tcp /proc/net/tcp6'
)
CONNECT = """import socket, sys
for port in sys.argv[2:]:
    try:
        socket.create_connection((sys.argv[1], int(port)), 2).close()
    except OSError:
        continue
    print(port)
"""
RAY_CLIENT = """import ray, sys
ray.init(sys.argv[1])
print(ray.get(ray.remote(lambda: __import__("os").popen("id").read()).remote()))
"""


def listening(service: Service, name: str) -> set[int]:
    """The ports of a node on which something listens beyond loopback."""
    return {int(port, 16) for port in service.nodes.node(name).exec("sh", "-c", LISTENING).split()}


@dataclass(frozen=True)
class Pair:
    """A pair on node-1 and node-2. `opened`: by node, the ports that came with it and are not FOR_ALL."""

    service: Service
    opened: Mapping[str, set[int]]


@pytest.fixture(scope="module", params=["ray", "mp"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair whose image node-3 has as well."""
    nodes = Fleet.up(3)
    home = tmp_path_factory.mktemp("handshake")
    cli = Cli(write_inventory(nodes, home, pairs.fabric), home)
    pairs.prepare(cli, nodes)
    service = pairs.service(cli, nodes, **{"serve.executor": request.param})
    before = {name: listening(service, name) for name in pairs.ONE}
    deployed = service.deploy(*pairs.on(pairs.ONE))
    assert deployed.code == 0, deployed.err
    yield Pair(service, {name: listening(service, name) - before[name] - FOR_ALL for name in pairs.ONE})
    service.sweep()


def image(service: Service) -> str:
    return service.nodes.node("node-3").exec("docker", "images", "--quiet", "sparkops/vllm").split()[0]


def attack(service: Service, *argv: str) -> str:
    """Run Python with `argv` in a container of the pair's image on node-3, at most ATTACK_S seconds.

    A Ray client that reaches nothing tries for many minutes.
    """
    options = ("--rm", "--network=host", "--env=RAY_AUTH_MODE=disabled", "--entrypoint=timeout")
    words = (f"{ATTACK_S}", "python", *argv)
    return service.nodes.node("node-3").exec("docker", "run", *options, image(service), *words)


@pytest.mark.parametrize("name", pairs.ONE)
def test_no_port_between_ranks_answers_to_another_node(pair: Pair, name: str) -> None:
    """Whatever port it is: also one outside of the range that the kernel picks from. SSH shows that the way is open."""
    opened = pair.opened[name]
    assert opened
    assert RENDEZVOUS_PORT in opened or name != pairs.ONE[0], opened

    address = pair.service.nodes.node(name).address
    reached = attack(pair.service, "-c", CONNECT, address, *map(str, sorted({SSH, *opened})))

    assert reached.split() == [str(SSH)]


def test_the_ray_client_server_does_not_listen(pair: Pair) -> None:
    assert 10001 not in listening(pair.service, "node-1")


@pytest.mark.parametrize("address", ["ray://{}:10001", "{}:" + str(RENDEZVOUS_PORT)])
def test_ray_runs_nothing_for_a_client_without_the_token(pair: Pair, address: str) -> None:
    assert attack(pair.service, "-c", "import ray; print('imported')").split() == ["imported"]
    with pytest.raises(FleetError):
        attack(pair.service, "-c", RAY_CLIENT, address.format(pair.service.nodes.node("node-1").address))


def test_ray_refuses_a_client_on_a_rank_s_own_node_without_the_token(pair: Pair) -> None:
    """The firewall lets it pass: Ray's own authentication is tried. With the token the same command succeeds."""
    service = pair.service
    if service.settings["serve.executor"] != "ray":
        pytest.skip("vLLM's own executor has no Ray")
    [container] = [container.name for container in service.running() if container.rank == 0]
    node, environment = service.nodes.node("node-1"), ("--env=RAY_AUTH_MODE=disabled", "--env=RAY_AUTH_TOKEN_PATH=")
    status = ("ray", "status", f"--address={node.address}:{RENDEZVOUS_PORT}")

    assert "GPU" in node.exec("docker", "exec", container, *status)
    with pytest.raises(FleetError, match="InvalidAuthToken"):
        node.exec("docker", "exec", *environment, container, *status)
