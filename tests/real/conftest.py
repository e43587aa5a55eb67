"""Real nodes for tests, and sparkops run as a user runs it: as a program."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import inventory
from sparkops.config.inventory import Fleet
from tests import checkpoints
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet

RECIPE = CHECKOUT / "recipes/tiny-qwen3-cpu.yaml"
SPARKOPS = Path(sys.executable).parent / "sparkops"


@dataclass(frozen=True)
class Ran:
    """How a run of sparkops ended. `took_s` is its whole wall time."""

    code: int
    out: str
    err: str
    took_s: float

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Cli:
    """sparkops with one inventory."""

    inventory: Path
    state: Path
    prefix: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *argv: str | Path, timeout: float = 600) -> Ran:
        began = time.monotonic()
        with self.start(*argv) as process:
            out, err = process.communicate(timeout=timeout)
        return Ran(process.returncode, out, err, time.monotonic() - began)

    def start(self, *argv: str | Path) -> subprocess.Popen[str]:
        words = [*self.prefix, str(SPARKOPS), "--inventory", str(self.inventory), *map(str, argv)]
        path = "/usr/bin:/bin:/usr/sbin:/sbin"
        env = {"PATH": path, "HOME": str(self.state), "XDG_STATE_HOME": str(self.state), **self.env}
        return subprocess.Popen(words, cwd=CHECKOUT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


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
        data = yaml.safe_load(nodes.inventory.read_text())
        data["known_hosts"] = str(nodes.home / "known_hosts")
        data["defaults"]["ssh_key"] = str(nodes.ssh_key)
        change(data)
        (tmp_path / "inventory.yaml").write_text(yaml.safe_dump(data))
        return Cli(tmp_path / "inventory.yaml", tmp_path / "state", **options)

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
    """The tag of the real vLLM image, built on every node."""
    ran = sparkops("build", RECIPE, "--json", timeout=900)
    assert ran.code == 0, ran.err
    return str(ran.json["tag"])


@pytest.fixture(scope="session")
def model(nodes: RealFleet, fleet: Fleet, built: str) -> str:
    """The tiny model, trained in the image and copied to every node."""
    made = checkpoints.make(fleet, "node-1", built, nodes.home / "checkpoints")
    for name in fleet.nodes:
        checkpoints.copy(fleet, name, made, "tiny-qwen3")
    return "tiny-qwen3"


@pytest.fixture
def untouched(nodes: RealFleet) -> Iterator[None]:
    """Holds that a test leaves containers and images of every node as they were."""
    before = [_things(node) for node in nodes.nodes]
    yield
    assert [_things(node) for node in nodes.nodes] == before


def _things(node: Any) -> tuple[str, str]:
    containers = node.exec("docker", "ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.State}}")
    images = node.exec("docker", "images", "--all", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}")
    return containers, images
