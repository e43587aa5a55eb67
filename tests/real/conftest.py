"""Real nodes for tests, and what lies on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import inventory
from sparkops.config.inventory import Fleet
from tests import checkpoints
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import RECIPE, Cli
from tests.real.service import Service, with_gateway, write_inventory


@pytest.fixture(scope="session")
def nodes() -> RealFleet:
    """The fleet of two; `make fleet` or an earlier run may have brought it up already."""
    return RealFleet.up(2)


@pytest.fixture(scope="session")
def sparkops(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(nodes.inventory, tmp_path_factory.mktemp("state"))


@pytest.fixture
def with_inventory(nodes: RealFleet, tmp_path: Path) -> Callable[..., Cli]:
    """sparkops with a changed copy of the fleet's inventory: `change` edits the data before it is written."""

    def make(change: Callable[[dict[str, Any]], None], **options: Any) -> Cli:
        return Cli(write_inventory(nodes, tmp_path, change), tmp_path / "state", **options)

    return make


@pytest.fixture
def variant(tmp_path: Path) -> Callable[..., Path]:
    """A changed copy of the tiny recipe: every `old: new` pair must be found in it."""

    def make(changes: dict[str, str]) -> Path:
        text = RECIPE.read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        file = tmp_path / RECIPE.name
        file.write_text(text)
        return file

    return make


@pytest.fixture(scope="session")
def fleet(nodes: RealFleet) -> Fleet:
    """The inventory as sparkops reads it."""
    return inventory.load(nodes.inventory)


@pytest.fixture(scope="session")
def built(sparkops: Cli) -> str:
    """The tag of the real vLLM image, built once for all nodes."""
    ran = sparkops("build", RECIPE, "--once", "--json", timeout=900)
    assert ran.code == 0, ran.err
    return str(ran.json["tag"])


@pytest.fixture(scope="session")
def model(nodes: RealFleet, fleet: Fleet, built: str) -> str:
    """The tiny model, trained in the image and copied to every node."""
    checkpoints.provide(fleet, built, nodes.home / "checkpoints", "tiny-qwen3")
    return "tiny-qwen3"


@pytest.fixture(scope="session")
def front(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """sparkops with a gateway on node-1, and the stand-in's image on both nodes."""
    yield from swept(nodes, tmp_path_factory.mktemp("front"))


def swept(nodes: RealFleet, home: Path) -> Iterator[Cli]:
    """Give sparkops with a gateway on node-1 and the stand-in's image, before and after without the stand-in."""
    cli = with_gateway(nodes, home)
    service = Service(cli, nodes)
    service.sweep()  # what an earlier run has left may run behind a gateway of another version
    yield cli
    service.sweep()


@pytest.fixture
def stand_in(front: Cli, nodes: RealFleet) -> Service:
    """The stand-in, as the last test has left it."""
    return Service(front, nodes)


@pytest.fixture
def service(stand_in: Service) -> Service:
    """The stand-in with one release on node-2, and nothing else of it anywhere."""
    stand_in.begin()
    return stand_in


@pytest.fixture
def anywhere(stand_in: Service) -> Service:
    """The stand-in with one release on either node, and nothing else of it anywhere."""
    stand_in.begin(name="", node="")
    return stand_in


@pytest.fixture
def untouched(nodes: RealFleet) -> Iterator[None]:
    """Holds that a test leaves containers and images of every node as they were."""
    before = [_things(node) for node in nodes.nodes]
    yield
    assert [_things(node) for node in nodes.nodes] == before


def _things(node: Any) -> tuple[str, str]:
    containers = node.exec("docker", "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.State}}")
    images = node.exec("docker", "images", "--all", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}")
    return containers, "\n".join(sorted(images.splitlines()))  # Docker's order changes for images of one second
