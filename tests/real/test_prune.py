"""Prune on real nodes: what nothing needs goes, what a journal names or anybody uses stays, and no deploy is raced."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.node import FleetNode
from tests.real.service import SERVICES, Service, wait_for

pytestmark = pytest.mark.fleet

NODE = "node-2"
LAYER_MIB = 3
FILES = 64 * 1024  # containerd's store also counts the blocks of directories


@dataclass(frozen=True)
class Old:
    """What an old release leaves on a node: a stopped container, its image, its cache."""

    container: str
    image: str
    cache: str


def build(node: FleetNode, tag: str, inputs: str, base: str) -> None:
    """An image of sparkops with one layer of its own."""
    # Docker's history tells two layers apart by second and command; these may be made in one second.
    own = f"RUN head -c {LAYER_MIB}M /dev/urandom > /own && : {secrets.token_hex(8)}"
    lines = (f"FROM {base}", own, f"LABEL sparkops.inputs={inputs}")
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


def due(pruned: Any) -> set[str]:
    """Names of what goes, or has gone, as --json tells it."""
    return {item["name"] for item in pruned["nodes"][NODE]["remove"]}


def replace(service: Service) -> tuple[str, str]:
    """Deploy a release in place of the one that serves. Returns the containers of both."""
    (first,) = service.running()
    blue = service.deploy("--node", NODE, "--mode", "beside", name="second", swap__keep_old_s="0")
    assert blue.code == 0, blue.err
    wait_for(lambda: len(service.running()) == 1)
    (second,) = service.running()
    return first.name, second.name


@pytest.mark.usefixtures("swept")
def test_what_nothing_needs_goes_and_everything_else_stays(service: Service, node: FleetNode, base: str) -> None:
    first, second = replace(service)
    others = things(node)
    oldest, older, newest = (leave(node, base) for _ in range(3))
    build(node, "sparkops-candidate/stand-in:0123456789ab", "d" * 64, base)
    build(node, "mine:1", "e" * 64, base)
    node.exec("docker", "volume", "create", "sparkops-cache-0123456789ff")
    node.exec("docker", "volume", "create", "mine")
    before = things(node)
    shown = service.cli("prune", "--node", NODE, "--keep", "1", "--dry-run", "--json")
    assert shown.code == 0, shown.err
    assert things(node) == before
    expected = {*vars(oldest).values(), *vars(older).values(), "sparkops-cache-0123456789ff"}
    assert due(shown.json) - others == expected
    sizes = {item["name"]: item["bytes"] for item in shown.json["nodes"][NODE]["remove"]}
    assert sizes[older.image] == sizes[oldest.image]
    assert 0 <= sizes[older.image] - LAYER_MIB * 2**20 <= FILES
    why = {item["name"]: item["why"] for item in shown.json["nodes"][NODE]["keep"]}
    assert why[newest.container] == "one of the newest releases of stand-in"
    assert why[newest.image] == f"{newest.container} uses it"
    assert why["sparkops-candidate/stand-in:0123456789ab"] == "a build may use it"
    assert (why[first], why[second]) == ("the previous release of stand-in", "running")
    with service.untouched():
        result = service.cli("prune", "--node", NODE, "--keep", "1", "--yes", "--json")
    assert result.code == 0, result.err
    assert before - things(node) == due(result.json) == due(shown.json)
    assert all(item["removed"] for item in result.json["nodes"][NODE]["remove"])
    back = service.cli("rollback", "stand-in", "--allow-downtime")
    assert back.code == 0, back.err


@pytest.mark.usefixtures("swept")
def test_without_a_terminal_nothing_goes_unless_yes_was_said(service: Service, node: FleetNode, base: str) -> None:
    leave(node, base)
    leave(node, base)
    before = things(node)
    refused = service.cli("prune", "--node", NODE, "--keep", "1")
    assert "No terminal to confirm on; pass --yes." in refused.err
    assert things(node) == before


@pytest.mark.matrix
@pytest.mark.usefixtures("swept")
def test_what_a_service_in_a_swap_has_left_stays_until_the_swap_ends(
    service: Service, node: FleetNode, base: str
) -> None:
    own, _ = leave(node, base, "stand-in"), leave(node, base, "stand-in")
    free, _ = leave(node, base, "free"), leave(node, base, "free")
    slow = service.argv("--node", "node-1", "--mode", "across", name="slow", START_S="15")
    with service.cli.start(*slow) as deploy:
        wait_for(lambda: service.journal().swap)
        busy = service.cli("prune", "--node", NODE, "--keep", "1", "--yes")
        during = service.cli("prune", "--node", NODE, "--keep", "1", "--yes", "--wait", "60")
        _, err = deploy.communicate(timeout=300)
    assert deploy.returncode == 0, err
    assert (busy.code, "node-2: the swap of stand-in to" in busy.err) == (4, True), busy.err
    assert during.code == 0, during.err
    assert not set(vars(free).values()) & things(node)
    after = service.cli("prune", "--node", NODE, "--keep", "1", "--yes")
    assert after.code == 0, after.err
    assert not set(vars(own).values()) & things(node)


@pytest.mark.matrix
@pytest.mark.usefixtures("swept")
def test_a_service_on_hold_and_one_whose_journal_cannot_be_read_are_left_alone(
    service: Service, node: FleetNode, base: str
) -> None:
    own, broken, free, *_ = (leave(node, base, name) for name in ("stand-in", "broken", "free") * 2)
    node.exec("sh", "-c", f"mkdir -p {SERVICES}/broken && echo '{{' > {SERVICES}/broken/record")
    held = service.cli("hold", "stand-in", "-m", "a demo")
    assert held.code == 0, held.err
    try:
        result = service.cli("prune", "--node", NODE, "--keep", "1", "--yes", "--json")
    finally:
        service.cli("unhold", "stand-in")
        node.exec("sh", "-c", f"rm -r {SERVICES}/broken")
    assert result.code == 7
    assert "/var/lib/sparkops/v2/services/broken/record" in result.err
    assert set(vars(free).values()) <= due(result.json)
    assert {*vars(own).values(), *vars(broken).values()} <= things(node)
    assert not set(vars(free).values()) & things(node)


@pytest.mark.usefixtures("swept")
def test_no_more_goes_than_it_takes_to_have_room(service: Service, node: FleetNode, base: str) -> None:
    old, _ = leave(node, base), leave(node, base)
    enough = service.cli("prune", "--node", NODE, "--keep", "1", "--free", "0.001", "--yes", "--json")
    assert due(enough.json) == set()
    assert set(vars(old).values()) <= things(node)
    short = service.cli("prune", "--node", NODE, "--keep", "1", "--free", "100000", "--yes")
    assert short.code == 1
    assert "GiB free, expected 100000.00 GiB" in short.err
    assert not set(vars(old).values()) & things(node)


@pytest.mark.matrix
def test_the_build_cache_is_bounded(service: Service, node: FleetNode, tmp_path: Path) -> None:
    build(node, f"mine:{tmp_path.name}", "e" * 64, "debian:bookworm-slim")
    node.exec("docker", "rmi", f"mine:{tmp_path.name}")
    shown = service.cli("prune", "--node", NODE, "--build-cache", "0", "--dry-run", "--json").json["nodes"][NODE]
    [cache] = [item for item in shown["remove"] if item["kind"] == "build cache"]
    assert cache["bytes"] >= LAYER_MIB * 2**20
    result = service.cli("prune", "--node", NODE, "--build-cache", "0", "--yes")
    assert result.code == 0, result.err
    left = json.loads(node.exec("docker", "system", "df", "--format", "{{json .}}").splitlines()[-1])
    assert (left["Type"], left["Reclaimable"]) == ("Build Cache", "0B")
