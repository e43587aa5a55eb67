"""`sparkops demo` from the wheel, as an owner tries it: Docker, no checkout, not root."""

from __future__ import annotations

import io
import json
import os
import platform
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.fleet import entering
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.real.program import Ran
from tests.real.test_uninstall import changes, state

pytestmark = pytest.mark.fleet

NAME = f"demo-{os.getpid()}"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
SITE = "/opt/sparkops"
INVENTORY = f"{SITE}/inventory.yaml"
USER = ("setpriv", "--reuid=ops", "--regid=ops", "--init-groups", "env", "--chdir=/home/ops")
ENVIRONMENT = ("HOME=/home/ops", f"PYTHONPATH={SITE}", "PYTHONDONTWRITEBYTECODE=1")
PID = "/home/ops/pid"
OTHERS = (".docker", "run/runc", PID.removeprefix("/"))
"""Files of Docker's client, of Docker's runtime (from its first container on) and of this test."""


@dataclass(frozen=True)
class Owner:
    """A machine with sparkops from its wheel, as an unprivileged user in the group docker."""

    node: FleetNode

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start sparkops; its process ID is in PID."""
        words = ("python3", "-m", "sparkops", "--inventory", INVENTORY, *argv)
        shell = ("sh", "-c", f'echo $$ > {PID}; exec "$@"', "sh")
        command = [*entering.prefix(self.node.container), *USER, *ENVIRONMENT, *shell, *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)

    def __call__(self, *argv: str) -> Ran:
        with self.start(*argv) as process:
            out, err = process.communicate(timeout=900)
        return Ran(process.returncode, out, err, 0.0)

    def changes(self, before: Mapping[str, frozenset[str]]) -> Mapping[str, set[str]]:
        """What differs from the state before, without what Docker and its client write for themselves."""
        found = changes(before, self.node)
        files = {line for line in found.get("files", ()) if not any(name in line for name in OTHERS)}
        others = {what: lines for what, lines in found.items() if what != "files"}
        return {**others, **({"files": files} if files else {})}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The wheel and its dependencies for Python 3.13 of the nodes, as a tar of the directory they are imported from."""
    dist, site = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("site")
    subprocess.run([*PIP, "wheel", "--no-deps", "--wheel-dir", dist, CHECKOUT], check=True)
    (wheel,) = dist.glob("*.whl")
    kinds = [f"--platform=manylinux_2_{minor}_{platform.machine()}" for minor in (17, 28, 34)]
    target = ("--python-version=3.13", "--only-binary=:all:", *kinds, "--target", str(site))
    subprocess.run([*PIP, "install", "--no-compile", *target, wheel], check=True)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for child in site.iterdir():  # not the directory itself, which nobody else may read
            archive.add(child, child.name)
    return packed.getvalue()


@pytest.fixture
def owner(nodes: RealFleet, packages: bytes) -> Iterator[Owner]:
    node = nodes.add(NAME)
    try:
        node.exec("mkdir", "-p", SITE)
        node.exec("tar", "-C", SITE, "-xf", "-", stdin=packages)
        node.exec("tee", INVENTORY, stdin=inventory(nodes, node).encode())
        yield Owner(node)
    finally:
        nodes.remove(NAME)


def inventory(nodes: RealFleet, node: FleetNode) -> str:
    """An inventory with the build settings of this fleet, whose certificates are copied to the node."""
    build = yaml.safe_load(nodes.inventory.read_text())["build"]
    certificates = [Path(path) for path in build.get("ca_certificates", ())]
    for file in certificates:
        node.exec("tee", f"{SITE}/{file.name}", stdin=file.read_bytes())
    kept = {key: value for key, value in build.items() if key in ("parent_images", "package_index")}
    data = {"nodes": {"other": {"address": "192.0.2.1"}}, "build": kept}
    data["build"]["ca_certificates"] = [file.name for file in certificates]
    return yaml.safe_dump(data)


def test_a_demo_from_the_wheel_loses_no_request_and_leaves_the_machine_as_it_was(owner: Owner) -> None:
    before = state(owner.node)
    denied = owner("demo")
    assert (denied.code, "Docker's socket" in denied.err) == (2, True), denied.err

    ran = owner("demo", "--yes", "--json")

    assert ran.code == 0, ran.err
    assert (ran.json["lost"], len(ran.json["releases"]), ran.json["kept"]) == (0, 2, False), ran.json
    for part in ("swap", "rollback"):
        requests = ran.json["requests"][part]
        assert (requests["lost"], requests["streams"] > 4, requests["answered"] > 50) == (0, True, True), ran.json
    assert owner.changes(before) == {}


@pytest.mark.matrix
def test_an_interrupted_demo_is_removed_and_a_kept_one_on_request_without_its_directory_too(owner: Owner) -> None:
    before = state(owner.node)
    with owner.start("demo", "--yes") as process:
        assert process.stderr
        shown = ""
        for line in process.stderr:
            shown += line
            if "loading" in line or "wait until ready" in line:
                break
        owner.node.exec("kill", "-INT", owner.node.exec("cat", PID).strip())
        rest = process.stderr.read()
    assert process.returncode == 130, shown + rest
    assert owner.changes(before) == {}

    kept = owner("demo", "--yes", "--keep")
    assert (kept.code, "sparkops demo --remove" in kept.out) == (0, True), kept.err
    owner.node.exec("rm", "-r", "/home/ops/.local/state/sparkops")
    again = owner("demo", "--yes")
    assert (again.code, "next: sparkops demo --remove" in again.err) == (5, True), again.err
    removed = owner("demo", "--remove", "--yes", "--json")
    assert (removed.code, json.loads(removed.out)) == (0, {"removed": True}), removed.err
    assert owner.changes(before) == {}


def test_a_machine_of_a_fleet_is_refused(owner: Owner) -> None:
    run = ("docker", "run", "--detach", "--label=sparkops.node=spark-1", "debian:trixie-slim", "sleep", "600")
    owner.node.exec(*run[:3], "--name=sparkops-guard", *run[3:])
    before = state(owner.node)

    refused, kept = owner("demo", "--yes"), owner("demo", "--remove")

    assert (refused.code, "belongs to a fleet: it has sparkops-guard" in refused.err) == (5, True), refused.err
    assert (kept.code, "node spark-1 of a fleet" in kept.err) == (5, True), kept.err
    assert owner.changes(before) == {}
