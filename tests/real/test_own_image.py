"""A finished image out of a real registry: by digest, by a tag that `lock` pins, with a login, and once it is gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import pytest
import yaml

from sparkops.config import shipped
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.program import Cli
from tests.real.service import wait_for

pytestmark = pytest.mark.fleet

REGISTRY = "localhost:5000"
"""Docker asks a registry of its own machine over HTTP."""
STORE = "/var/lib/docker-registry"
CONFIG = {
    "version": 0.1,
    "storage": {"filesystem": {"rootdirectory": STORE}, "delete": {"enabled": True}},
    "http": {"addr": ":5000"},
}
LOGIN = {"auth": {"htpasswd": {"realm": "sparkops", "path": "/root/htpasswd"}}}
PASSWORD = b"canary"


@dataclass
class Registry:
    """The registry of Debian on one node, with what that node pushes into it."""

    node: FleetNode

    def serve(self, *, login: bool = False) -> None:
        self.stop()
        config = yaml.safe_dump({**CONFIG, **(LOGIN if login else {})})
        self.node.exec("sh", "-c", "cat > /root/registry.yml", stdin=config.encode())
        self.node.exec(
            "sh", "-c", "cat > /root/htpasswd", stdin=b"owner:" + bcrypt.hashpw(PASSWORD, bcrypt.gensalt(5)) + b"\n"
        )
        self.node.exec("sh", "-c", "setsid docker-registry serve /root/registry.yml >/root/registry.log 2>&1 &")
        wait_for(lambda: "5000" in self.node.exec("sh", "-c", "ss -ltn || cat /proc/net/tcp6"), 30.0)

    def stop(self) -> None:
        self.node.exec("sh", "-c", "pkill docker-registry; sleep 0.5; true")

    def push(self, image: str, name: str) -> str:
        """Push an image of the node under a name, forget it there, and return its digest, which is new each time.

        BuildKit does not ask a registry for a digest that it has seen.
        """
        text = f"FROM {image}\nLABEL pushed={time.time_ns()}\n"
        self.node.exec("docker", "build", "--quiet", "--tag", f"{REGISTRY}/{name}", "-", stdin=text.encode())
        self.node.exec("docker", "push", "--quiet", f"{REGISTRY}/{name}")
        shown = json.loads(
            self.node.exec("docker", "inspect", "--format", "{{json .RepoDigests}}", f"{REGISTRY}/{name}")
        )
        self.node.exec("docker", "rmi", f"{REGISTRY}/{name}")
        return str(next(digest for digest in shown if digest.startswith(REGISTRY)).partition("@")[2])


@pytest.fixture(scope="module")
def registry(nodes: RealFleet) -> Iterator[Registry]:
    node = nodes.node("node-1")
    node.exec("sh", "-c", "apt-get -qq update && apt-get -qq install -y --no-install-recommends docker-registry")
    forget = (
        "docker ps --all --quiet --filter label=sparkops.service=own-image | xargs --no-run-if-empty docker rm --force;"
        "docker images --quiet sparkops/own-image | sort -u | xargs --no-run-if-empty docker rmi --force"
    )
    node.exec("sh", "-c", forget)
    logout = f"su - ops -c 'docker logout {REGISTRY}'"
    node.exec("sh", "-c", logout)
    made = Registry(node)
    made.serve()
    yield made
    node.exec("sh", "-c", logout)
    made.stop()
    node.exec("sh", "-c", forget)
    node.exec("sh", "-c", f"rm -rf {STORE}/* /root/htpasswd /root/registry.*")


@pytest.fixture(scope="module")
def engine(sparkops: Cli) -> str:
    """The stand-in's image on node-1, which the recipes below treat as a finished image."""
    built = sparkops("build", "stand-in", "--node", "node-1", "--json")
    assert built.code == 0, built.err
    return str(built.json["tag"])


@pytest.fixture
def owners(tmp_path: Path) -> Callable[[str], Path]:
    """Write a recipe that runs the stand-in from a finished image."""

    def write(image: str) -> Path:
        recipe = yaml.safe_load((shipped.directory("recipes") / "stand-in.yaml").read_text())
        file = tmp_path / "own-image.yaml"
        changes = {"name": "own-image", "service": "own-image", "image": {"use": image, "disk_gib": 1}}
        changes["serve"] = {**recipe["serve"], "port": 9140}
        file.write_text(yaml.safe_dump({**recipe, **changes}))
        return file

    return write


def test_a_finished_image_is_pulled_by_its_digest_gated_and_deployed(
    sparkops: Cli, engine: str, registry: Registry, owners: Callable[[str], Path]
) -> None:
    digest = registry.push(engine, "owner/engine:1")
    file = owners(f"{REGISTRY}/owner/engine@{digest}")

    built = sparkops("build", file, "--node", "node-1")
    assert built.code == 0, built.err
    assert "passed its gates" in built.err
    deployed = sparkops("deploy", file, "--node", "node-1")
    assert deployed.code == 0, deployed.err
    assert sparkops("stop", "own-image", "--forget").code == 0

    registry.node.exec("sh", "-c", f"rm -rf {STORE}/docker")
    assert sparkops("build", file, "--node", "node-1").code == 0, "what has passed its gate is not pulled again"


@pytest.mark.usefixtures("registry")
def test_a_digest_that_the_registry_does_not_have_is_the_error(sparkops: Cli, owners: Callable[[str], Path]) -> None:
    gone = f"{REGISTRY}/owner/engine@sha256:{'0' * 64}"

    failed = sparkops("build", owners(gone), "--node", "node-1")

    assert failed.code != 0
    assert gone in failed.err
    assert "not found" in failed.err


def test_a_registry_with_a_login_takes_that_of_the_ssh_user(
    sparkops: Cli, engine: str, registry: Registry, owners: Callable[[str], Path], nodes: RealFleet
) -> None:
    digest = registry.push(engine, "owner/private:1")
    registry.serve(login=True)
    file = owners(f"{REGISTRY}/owner/private@{digest}")

    refused = sparkops("build", file, "--node", "node-1")
    assert refused.code != 0
    assert f"docker login {REGISTRY}" in refused.err, refused.err
    user = nodes.node("node-1")
    user.exec("su", "-", "ops", "-c", f"docker login --username owner --password-stdin {REGISTRY}", stdin=PASSWORD)
    built = sparkops("build", file, "--node", "node-1")
    assert built.code == 0, built.err
