"""Prune on real nodes: what no journal names goes, what a journal names or a container uses stays."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fleet.node import FleetNode
from tests.real.service import SERVICES, Service, wait_for

pytestmark = [pytest.mark.fleet]

NODE = "node-2"
DATE = "/usr/local/bin/date"
LATER = "#!/bin/sh\nexec /usr/bin/date --date='+2 days' \"$@\"\n"
"""A clock by which every image of today is older than a day."""


@dataclass(frozen=True)
class Old:
    """What an old release leaves on a node: a stopped container, its image, its cache."""

    container: str
    image: str
    cache: str


def build(node: FleetNode, tag: str, inputs: str, base: str) -> None:
    """An image of sparkops with one layer of its own."""
    lines = (f"FROM {base}", f"RUN echo {secrets.token_hex(8)} > /own", f"LABEL sparkops.inputs={inputs}")
    node.exec("docker", "build", "--quiet", "--no-cache", f"--tag={tag}", "-", stdin="\n".join(lines).encode())


def leave(node: FleetNode, base: str, service: str = "stand-in") -> Old:
    """Another old release."""
    inputs, release = secrets.token_hex(32), f"{service}-{secrets.token_hex(5)}"
    old = Old(f"{release}-blue-r0", f"sparkops/{service}:{inputs[:12]}", f"sparkops-cache-{inputs[:12]}")
    build(node, old.image, inputs, base)
    labels = {"service": service, "release": release, "slot": "blue", "rank": "0", "port": "1", "inputs": inputs}
    options = (f"--label=sparkops.{key}={value}" for key, value in labels.items())
    node.exec(
        "docker", "create", f"--name={old.container}", *options, f"--volume={old.cache}:/cache", old.image, "true"
    )
    return old


def things(node: FleetNode) -> set[str]:
    """Names of all containers, images and volumes of a node."""
    containers = node.exec("docker", "ps", "--all", "--format", "{{.Names}}")
    images = node.exec("docker", "images", "--format", "{{.Repository}}:{{.Tag}}@{{.ID}}")
    volumes = node.exec("docker", "volume", "ls", "--format", "{{.Name}}")
    named = {line.partition("@")[2 if line.startswith("<none>") else 0] for line in images.split()}
    return {*containers.split(), *named, *volumes.split()}


@pytest.fixture
def node(service: Service) -> FleetNode:
    return service.nodes.node(NODE)


@pytest.fixture
def base(service: Service) -> str:
    """The image of the release that serves."""
    return str(service.cli("build", "stand-in", "--json").json["tag"])


@pytest.fixture
def swept(node: FleetNode) -> Iterator[None]:
    """Nothing that a test has left stays."""
    before = things(node)
    yield
    left = " ".join(things(node) - before)
    for remove in ("rm", "rmi", "volume rm"):  # each name is one of the three
        node.exec("sh", "-c", f"for name in {left}; do docker {remove} $name 2>/dev/null; done; true")


@pytest.fixture
def later(node: FleetNode) -> Iterator[None]:
    """Two days later on the node."""
    node.exec("sh", "-c", f"cat > {DATE} && chmod +x {DATE}", stdin=LATER.encode())
    yield
    node.exec("rm", DATE)


def due(pruned: Any) -> set[str]:
    """Names of what goes, or has gone, as --json tells it: the last words of each command."""
    words = [shlex.split(item["command"]) for item in pruned["nodes"][NODE]["remove"]]
    return {name for argv in words for name in argv[3 if argv[1] == "volume" else 2 :]}


def replace(service: Service) -> tuple[str, str]:
    """Deploy a release in place of the one that serves. Returns the containers of both."""
    (first,) = service.running()
    blue = service.deploy("--node", NODE, "--mode", "beside", name="second", swap__keep_old_s="0")
    assert blue.code == 0, blue.err
    wait_for(lambda: len(service.running()) == 1)
    (second,) = service.running()
    return first.name, second.name


@pytest.mark.usefixtures("swept", "later")
def test_what_no_journal_names_goes_and_everything_else_stays(service: Service, node: FleetNode, base: str) -> None:
    first, second = replace(service)
    others = things(node)
    older, old = leave(node, base), leave(node, base)
    build(node, "sparkops-candidate/stand-in:0123456789ab", "d" * 64, base)
    build(node, "mine:1", "e" * 64, base)
    node.exec("docker", "volume", "create", "sparkops-cache-0123456789ff")
    node.exec("docker", "volume", "create", "mine")
    before = things(node)
    shown = service.cli("prune", "--node", NODE, "--dry-run", "--json")
    assert shown.code == 0, shown.err
    assert things(node) == before
    unnamed = {"sparkops-cache-0123456789ff", "sparkops-candidate/stand-in:0123456789ab"}
    assert due(shown.json) - others == {*vars(older).values(), *vars(old).values(), *unnamed}
    assert not due(shown.json) & {first, second, base, "mine", "mine:1"}
    with service.untouched():
        result = service.cli("prune", "--node", NODE, "--yes", "--json")
    assert result.code == 0, result.err
    assert before - things(node) == due(result.json) == due(shown.json)
    assert all(item["removed"] for item in result.json["nodes"][NODE]["remove"])
    assert result.json["nodes"][NODE]["free_bytes_after"] > 0
    back = service.cli("rollback", "stand-in", "--allow-downtime")
    assert back.code == 0, back.err


@pytest.mark.usefixtures("swept")
def test_an_image_of_today_stays(service: Service, node: FleetNode, base: str) -> None:
    service.begin()
    build(node, "sparkops/stand-in:0123456789ab", "d" * 64, base)
    pruned = service.cli("prune", "--node", NODE, "--yes", "--json")
    assert pruned.code == 0, pruned.err
    assert "sparkops/stand-in:0123456789ab" in things(node)


@pytest.mark.usefixtures("swept")
def test_without_a_terminal_nothing_goes_unless_yes_was_said(service: Service, node: FleetNode, base: str) -> None:
    leave(node, base)
    before = things(node)
    refused = service.cli("prune", "--node", NODE)
    assert refused.code == 2
    assert "no terminal to confirm on: Remove " in refused.err
    assert things(node) == before


@pytest.mark.matrix
@pytest.mark.usefixtures("swept", "later")
def test_nothing_that_a_swap_in_progress_uses_goes(service: Service, node: FleetNode, base: str) -> None:
    service.begin()
    old = leave(node, base)
    slow = service.argv("--node", "node-1", "--mode", "across", name="slow", START_S="15")
    with service.cli.start(*slow) as deploy:
        wait_for(lambda: service.journal().swap)
        named = {engine.name for engine in service.containers()} - {old.container}
        busy = service.cli("prune", "--node", NODE, "--yes")
        during = service.cli("prune", "--node", NODE, "--yes", "--json", "--wait", "60")
        _, err = deploy.communicate(timeout=300)
    assert deploy.returncode == 0, err
    assert (busy.code, "node-2: the swap of stand-in to" in busy.err) == (4, True), busy.err
    assert during.code == 0, during.err
    assert not set(vars(old).values()) & things(node)
    assert not due(during.json) & {*named, base}


@pytest.mark.matrix
@pytest.mark.usefixtures("swept", "later")
def test_while_a_journal_cannot_be_read_nothing_goes(service: Service, node: FleetNode, base: str) -> None:
    service.begin()
    old = leave(node, base)
    node.exec("sh", "-c", f"mkdir -p {SERVICES}/broken && echo '{{' > {SERVICES}/broken/record")
    try:
        refused = service.cli("prune", "--node", NODE, "--yes")
    finally:
        node.exec("sh", "-c", f"rm -r {SERVICES}/broken")
    assert refused.code == 7
    assert "/var/lib/sparkops/v2/services/broken/record" in refused.err
    assert set(vars(old).values()) <= things(node)


@pytest.mark.matrix
@pytest.mark.usefixtures("swept", "later")
def test_while_a_guard_does_not_answer_nothing_goes(service: Service, node: FleetNode, base: str) -> None:
    service.begin()
    old = leave(node, base)
    node.exec("docker", "stop", "sparkops-guard")
    try:
        refused = service.cli("prune", "--node", NODE, "--yes")
    finally:
        node.exec("docker", "start", "sparkops-guard")
    assert refused.code != 0
    assert set(vars(old).values()) <= things(node)
