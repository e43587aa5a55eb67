"""A gateway with keys and a certificate, used through the command line; and its secrets are seen nowhere."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from sparkops.config import assets
from sparkops.config.inventory import Fleet
from sparkops.errors import BuildFailed
from sparkops.node.docker import commands
from sparkops.node.progress import Event
from sparkops.operator.build.hub import pull
from sparkops.operator.build.images.build import BuildOrder, run_build
from sparkops.operator.build.render.archive import tar
from sparkops.operator.build.render.context import Context
from sparkops.operator.fleet.connected import connect
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.package_index import package_index
from tests.real.evidence import saved
from tests.real.program import Cli, Ran
from tests.real.service import GATEWAY, Service, wait_for, write_inventory

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]

KEY = "sk-canary-5f0d3c1b9a7e24680"
ASK = {"model": "stand-in", "messages": [{"role": "user", "content": "What is the capital of France?"}]}
# What is on a node: configuration and logs of containers, volumes, BuildKit's records, memory, daemons' logs and the
# histories of images; and of contexts and layers that Docker unpacks, all that was written in the last 10 min. The
# secret comes on stdin: as an argument it would itself be seen.
FIND = """
import pathlib, subprocess, sys, time
secret = sys.stdin.buffer.read()
def said(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout
for top in ("lib/docker/containers", "lib/docker/volumes", "lib/docker/buildkit", "log", "tmp", "../tmp",
            "../home", "../root", "../etc", "../dev/shm"):
    for file in pathlib.Path("/var", top).resolve().rglob("*"):
        if file.is_file() and not file.is_symlink() and secret in file.read_bytes():
            print(file)
stores = "overlay2/*/diff", "containerd/daemon/io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs"
for layer in (layer for store in stores for layer in pathlib.Path("/var/lib/docker").glob(store)):
    for file in layer.rglob("*"):
        new = not file.is_symlink() and file.is_file() and time.time() - file.stat().st_ctime < 600
        if new and file.stat().st_size < 64 * 1024 * 1024 and secret in file.read_bytes():
            print(file)
for image in set(said("docker", "images", "--quiet", "sparkops/*").decode().split()):
    if secret in said("docker", "history", "--no-trunc", image):
        print(said("docker", "inspect", "--format", "{{index .RepoTags 0}}", image).decode().strip())
for container in said("docker", "ps", "--all", "--quiet").decode().split():
    if secret in said("docker", "inspect", container):
        print(container)
"""
WATCH = """
import pathlib, sys, time
secrets = [line.strip().encode() for line in sys.stdin]
print("watching", flush=True)
while True:
    for file in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes()
        except OSError:
            continue
        if any(secret in words for secret in secrets):
            print(words.decode(errors="replace").replace(chr(0), " "), flush=True)
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def certificate(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for the gateway's address, and its private key."""
    address = nodes.node(GATEWAY).address
    out = tmp_path_factory.mktemp("tls") / "tls.pem"
    subject = ("-subj", "/CN=gateway", "-addext", f"subjectAltName=IP:{address}")
    pem = nodes.node(GATEWAY).exec(
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes"), *subject, "-keyout", "/dev/stdout", "-out", "-"
    )
    out.touch(mode=0o600)
    out.write_text(f"{pem}\n")
    return out


@pytest.fixture
def guarded(front: Cli, nodes: RealFleet, certificate: Path, tmp_path: Path) -> Iterator[Service]:
    """The stand-in behind a gateway that wants a key and speaks TLS."""
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(f"{KEY}\n")
    settings = {"node": GATEWAY, "api_keys": [str(key)], "tls_certificate": str(certificate)}
    cli = Cli(write_inventory(nodes, tmp_path, lambda data: data.update(gateway=settings)), tmp_path / "state")
    service = Service(cli, nodes)
    service.sweep()
    yield service
    service.sweep()
    assert Service(front, nodes).deploy("--node", "node-2", name="first").code == 0  # takes key and certificate away


def test_keys_and_certificate_work_from_end_to_end_and_are_seen_nowhere(guarded: Service, certificate: Path) -> None:
    url = f"https://{guarded.nodes.node(GATEWAY).address}:{guarded.port}/v1/chat/completions"
    private = certificate.read_text().split("PRIVATE KEY-----\n")[1].splitlines()[3]
    with watched(KEY, private) as leaks, requests.Session() as client:
        client.verify, client.trust_env = str(certificate), False
        ran = [
            guarded.cli("-v", *guarded.argv("--node", "node-2", name="first")),
            guarded.cli("-v", *guarded.argv("--node", "node-1", name="second")),
            guarded.cli("-v", *guarded.argv("--node", "node-2", name="bad", CRASH_AT="50")),
        ]
        without = client.post(url, json=ASK, timeout=120)
        with_key = client.post(url, json=ASK, timeout=120, headers={"Authorization": f"Bearer {KEY}"})
        words = (["probe", "stand-in", "--json", "--passes", "1"], ["status", "--json"], ["history", "stand-in"])
        ran += [guarded.cli("-v", *argv) for argv in (*words, ["rollback", "stand-in", "--json"])]
    assert [result.code for result in ran] == [0, 0, 1, 0, 0, 0, 0], [result.err for result in ran]
    assert (without.status_code, without.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (with_key.status_code, "Paris" in with_key.text) == (200, True)
    assert with_key.headers["x-sparkops-release"] == ran[1].json["release"]
    assert leaks == []
    assert saved(guarded.cli, "stand-in", {node.name: node for node in guarded.nodes.nodes}, "log.txt")
    for secret in (KEY, private):
        assert_in_no_output(guarded.cli, ran, secret)
        for node in guarded.nodes.nodes:
            kept = {"/var/lib/docker/volumes/sparkops-gateway/_data/tls.pem"} if secret == private else set()
            assert on_node(node, secret) - kept == set()


@contextmanager
def watched(*secrets: str) -> Iterator[list[str]]:
    """The command lines, of all processes on all nodes, that meanwhile held a secret. The nodes share our kernel."""
    leaks: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-c", WATCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as looking:
        assert looking.stdin
        assert looking.stdout
        looking.stdin.write("".join(f"{secret}\n" for secret in secrets))
        looking.stdin.close()
        assert looking.stdout.readline() == "watching\n"
        reading = threading.Thread(target=leaks.extend, args=(looking.stdout,))
        reading.start()
        try:
            yield leaks
        finally:
            looking.kill()
            reading.join()


def assert_in_no_output(cli: Cli, ran: list[Ran], secret: str) -> None:
    for result in ran:
        assert secret not in result.out + result.err
    assert [
        file for file in cli.state.rglob("*") if file.is_file() and secret in file.read_text(errors="replace")
    ] == []


def on_node(node: FleetNode, secret: str) -> set[str]:
    """Where on a node a secret is: files, and images or containers of ours."""
    return set(node.exec("python3", "-c", FIND, stdin=secret.encode()).splitlines())


def test_what_looks_for_a_secret_finds_one(nodes: RealFleet) -> None:
    """Else it proves nothing that nothing was found."""
    canary = "canary-planted-by-the-test"
    node = nodes.node("node-2")
    with watched(canary) as leaks, subprocess.Popen(["sh", "-c", "read _", canary], stdin=subprocess.PIPE):
        wait_for(lambda: leaks)
    assert any(canary in line for line in leaks)
    image = f"FROM debian:bookworm-slim\nRUN echo {canary} >/note\n"
    node.exec("docker", "build", "--quiet", "--tag=sparkops/planted", "-", stdin=image.encode())
    node.exec("sh", "-c", f"echo {canary} >/tmp/planted")
    send(node, f"{canary} {uuid4()}")
    try:
        where = on_node(node, canary)
        assert where >= {"/tmp/planted", "sparkops/planted:latest"}
        assert any(file.startswith("/var/lib/docker/") and file.endswith(("/diff/note", "/fs/note")) for file in where)
    finally:
        node.exec("sh", "-c", "rm /tmp/planted; docker rmi sparkops/planted")


def send(node: FleetNode, note: str) -> None:
    """Build with a context that holds a note; BuildKit keeps it. A note of its own, or an earlier context is used."""
    dockerfile = b"FROM debian:bookworm-slim\nRUN --mount=type=bind,target=/context ls /context\n"
    context = Context((("Dockerfile", dockerfile), ("note", note.encode())), {}, "")
    node.exec(*commands.build("noted", {}, {}).argv, stdin=b"".join(tar(context, lambda path: path.open("rb"))))
    node.exec("docker", "rmi", "noted")


@pytest.mark.parametrize("ends", ["well", "badly"])
def test_a_build_keeps_the_credentials_of_the_package_index_nowhere(
    nodes: RealFleet, fleet: Fleet, tmp_path: Path, ends: str
) -> None:
    canary, node = f"canary-{uuid4()}", nodes.node("node-2")
    host = str(next(ip_network(f"{node.address}/24", strict=False).hosts()))
    events: list[Event] = []
    with package_index(tmp_path, host) as index, connect(fleet, [node.name]) as connected, watched(canary) as leaks:
        sha256 = index.sha256 if ends == "well" else "0" * 64
        url = f"http://user:{canary}@{host}:{index.port}/simple"
        order = installing(f"tiny==1.0 --hash=sha256:{sha256}\n", url, fleet)
        with nullcontext() if ends == "well" else pytest.raises(BuildFailed, match="DO NOT MATCH THE HASHES"):
            run_build(connected.member(node.name), order, events.append)
            node.exec("docker", "rmi", order.candidate)
    assert any("pip install" in event.text for event in events), "it came to the installation"
    assert leaks == []
    assert canary not in repr(events)
    assert on_node(node, canary) == set()


def installing(requirement: str, url: str, fleet: Fleet) -> BuildOrder:
    """The build of the hub's image with one package from an index."""
    inputs = replace(assets.load_inputs(fleet), package_index=url)
    order = pull.hub_order(assets.load_templates(), requirement.encode(), inputs, fleet.build.parent(pull.IMAGE))
    return replace(order, name="canary")
