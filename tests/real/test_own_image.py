"""A finished image out of a real registry: by digest, by a tag that `lock` pins, with a login, and once it is gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import bcrypt
import pytest
import yaml

from sparkops.config import assets, shipped
from sparkops.config.inventory import Fleet
from sparkops.operator.build.guard.image import DEBIAN
from sparkops.operator.build.images.build import BuildOrder, build_on
from sparkops.operator.deploy.agents.agents import guard_order
from sparkops.operator.fleet.connected import connect
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
LIST = """
import hashlib, json, sys, urllib.request
root, name, architectures = sys.argv[1], sys.argv[2], sys.argv[3:]
IMAGE, ALL = (f"application/vnd.docker.distribution.manifest.{kind}v2+json" for kind in ("", "list."))

def call(method, url, body=None, kind="application/octet-stream"):
    headers = {"Accept": IMAGE, "Content-Type": kind}
    return urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method))

def blob(content):
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    place = call("POST", f"{root}/{name}/blobs/uploads/", b"").headers["Location"]
    call("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest}", content)
    return {"digest": digest, "size": len(content)}

image = json.load(call("GET", f"{root}/{name}/manifests/own"))
config = json.load(call("GET", f"{root}/{name}/blobs/{image['config']['digest']}"))
listed = []
for architecture in architectures:
    changed = blob(json.dumps({**config, "architecture": architecture}).encode())
    body = json.dumps({**image, "config": {**image["config"], **changed}}).encode()
    digest = call("PUT", f"{root}/{name}/manifests/{architecture}", body, IMAGE).headers["Docker-Content-Digest"]
    platform = {"architecture": architecture, "os": "linux"}
    listed.append({"mediaType": IMAGE, "digest": digest, "size": len(body), "platform": platform})
body = json.dumps({"schemaVersion": 2, "mediaType": ALL, "manifests": listed}).encode()
print(call("PUT", f"{root}/{name}/manifests/all", body, ALL).headers["Docker-Content-Digest"])
"""
"""Makes a list of manifests of an image, which differ only in the architecture that they state. Prints its digest."""
CUTTER, CUT_PORT = (
    """
import http.client, itertools, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
host, cuts, done = sys.argv[1], int(sys.argv[2]), itertools.count()

class Cutter(BaseHTTPRequestHandler):
    def handle(self):
        if self.rfile.peek(1)[:1] == bytes([22]):  # a client that tries TLS first takes plain HTTP after this reply
            self.wfile.write(b"HTTP/1.0 400 Bad Request\\r\\n\\r\\n")
        else:
            super().handle()

    def do_GET(self):
        far = http.client.HTTPConnection(host, 5000)
        far.request(self.command, self.path, headers=self.headers)
        reply = far.getresponse()
        body = reply.read()
        cut = self.command == "GET" and len(body) > 2_000_000 and next(done) < cuts
        self.send_response(reply.status)
        for key, value in reply.getheaders():
            self.send_header(key, value)
        self.end_headers()
        resumed = "Range" in self.headers  # Docker resumes five times without progress
        self.wfile.write(body[: 0 if resumed else len(body) // 2] if cut else body)
        self.close_connection = True
    do_HEAD = do_GET

ThreadingHTTPServer(("127.0.0.1", 5001), Cutter).serve_forever()
""",
    "localhost:5001",
)
"""A registry whose connections end in the middle of a large layer, so often."""
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
        recipe = yaml.safe_load(((shipped.PACKAGE.parent / "recipes") / "stand-in.yaml").read_text())
        file = tmp_path / "own-image.yaml"
        changes = {"name": "own-image", "service": "own-image", "image": {"use": image, "disk_gib": 1}}
        repository = image.partition("@")[0].removesuffix(":1")
        changes["serve"] = {**recipe["serve"], "port": 9140, "allow": [repository]}
        file.write_text(yaml.safe_dump({**recipe, **changes}))
        return file

    return write


@pytest.mark.matrix
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


def test_the_image_of_an_agent_is_pulled_by_its_digest_and_built_where_it_is_of_another_version(
    fleet: Fleet, registry: Registry
) -> None:
    package = assets.load_package()
    changed = {**package, "guard/ask.py": package["guard/ask.py"] + f"# {time.time_ns()}\n".encode()}
    parent = fleet.build.parent(DEBIAN)
    wanted = guard_order(assets.load_templates(), changed, parent)
    told = list[str]()

    def build(order: BuildOrder) -> str:
        told.clear()
        with connect(fleet, ["node-1"]) as connected:
            member = connected.member("node-1")
            try:
                built = build_on(member, order, lambda event: told.append(event.text))
                assert built.new
                return built.image
            finally:
                registry.node.exec("docker", "rmi", order.tag)

    with connect(fleet, ["node-1"]) as connected:
        built = build_on(connected.member("node-1"), wanted, lambda _: None)
    digest = registry.push(wanted.tag, "owner/guard:1")
    registry.node.exec("docker", "rmi", wanted.tag)
    named = f"{REGISTRY}/owner/guard@{digest}"
    finished = replace(wanted, finished=named)

    assert build(finished) != built.image, "the pushed one, which has a label more"
    assert [line for line in told if line.startswith(("building", "pulling"))] == [f"pulling {named}"]
    assert named not in registry.node.exec("docker", "images", "--digests", "--format", "{{.Repository}}@{{.Digest}}")

    other = {**changed, "guard/ask.py": changed["guard/ask.py"] + b"#\n"}
    build(guard_order(assets.load_templates(), other, parent, named))
    assert any(line.startswith(f"{named} is of another version, so it is built: image ") for line in told)

    build(replace(wanted, finished=f"{REGISTRY}/owner/guard@sha256:{'0' * 64}"))
    assert any("cannot be pulled, so it is built: " in line for line in told)


@pytest.mark.usefixtures("registry")
def test_a_digest_that_the_registry_does_not_have_is_the_error(sparkops: Cli, owners: Callable[[str], Path]) -> None:
    gone = f"{REGISTRY}/owner/engine@sha256:{'0' * 64}"

    failed = sparkops("build", owners(gone), "--node", "node-1")

    assert failed.code != 0
    assert gone in failed.err
    assert "not found" in failed.err


@pytest.mark.matrix
def test_a_registry_with_a_login_takes_that_of_the_ssh_user(
    sparkops: Cli, engine: str, registry: Registry, owners: Callable[[str], Path], tmp_path: Path
) -> None:
    digest = registry.push(engine, "owner/private:1")
    registry.serve(login=True)
    file = owners(f"{REGISTRY}/owner/private@{digest}")

    refused = sparkops("build", file, "--node", "node-1")
    assert refused.code != 0
    login = ("node", "login", REGISTRY, "--user", "owner", "--password-file", str(tmp_path / "password"))
    assert f"sparkops node login {REGISTRY} --user" in refused.err, refused.err
    (tmp_path / "password").write_bytes(b"wrong")
    (tmp_path / "password").chmod(0o600)
    wrong = sparkops(*login, "--node", "node-1")
    assert (wrong.code, f"the login at {REGISTRY} failed" in wrong.err) == (1, True), wrong.err
    (tmp_path / "password").write_bytes(PASSWORD)
    assert sparkops(*login, "--node", "node-1").code == 0
    built = sparkops("build", file, "--node", "node-1")
    assert built.code == 0, built.err


@pytest.fixture
def open_registry(registry: Registry) -> Registry:
    registry.serve()
    return registry


@pytest.mark.matrix
def test_of_a_list_of_architectures_the_node_s_own_is_taken_and_without_it_those_are_named(
    sparkops: Cli, engine: str, open_registry: Registry, owners: Callable[[str], Path]
) -> None:
    node = open_registry.node
    own = node.exec("docker", "inspect", "--format", "{{.Architecture}}", engine).strip()
    foreign = "arm64" if own == "amd64" else "amd64"
    open_registry.push(engine, "owner/both:own")
    program = ("python3", "-c", LIST, f"http://{REGISTRY}/v2", "owner/both")

    both = node.exec(*program, foreign, own).strip()
    built = sparkops("build", owners(f"{REGISTRY}/owner/both@{both}"), "--node", "node-1", "--json")
    assert built.code == 0, built.err
    image = built.json["nodes"]["node-1"]["image"]
    assert node.exec("docker", "inspect", "--format", "{{.Architecture}}", image).strip() == own

    others = node.exec(*program, foreign, "ppc64le").strip()
    file = owners(f"{REGISTRY}/owner/both@{others}")
    for verb in (("build",), ("recipe", "lock", "--no-build")):
        refused = sparkops(*verb, file, "--node", "node-1")
        assert refused.code == 1
        expected = (
            f"{REGISTRY}/owner/both@{others} has no image for {own}; it has {', '.join(sorted([foreign, 'ppc64le']))}"
        )
        assert expected in refused.err, refused.err
    assert not file.with_suffix(".lock").exists()


@pytest.fixture
def cutter(nodes: RealFleet) -> Iterator[Callable[[int], FleetNode]]:
    """node-2, with a way to the registry of node-1 that cuts so many transfers of large layers."""
    node, stop = nodes.node("node-2"), "pkill -f [C]utter; sleep 0.2; true"

    def serve(cuts: int) -> FleetNode:
        node.exec("sh", "-c", stop)
        host = nodes.node("node-1").address
        script = f'program=$(cat); setsid python3 -c "$program" {host} {cuts} >/root/cutter.log 2>&1 &'
        node.exec("sh", "-c", script, stdin=CUTTER.encode())
        wait_for(lambda: "127.0.0.1:5001" in node.exec("sh", "-c", "ss -ltn"), 30.0)
        return node

    yield serve
    node.exec("sh", "-c", stop)
    remove = "docker images --quiet sparkops/own-image | sort -u | xargs --no-run-if-empty docker rmi --force"
    node.exec("sh", "-c", remove)


@pytest.mark.matrix
def test_a_pull_that_is_cut_in_a_layer_is_retried_within_bounds_and_tags_nothing(
    sparkops: Cli,
    engine: str,
    open_registry: Registry,
    owners: Callable[[str], Path],
    cutter: Callable[[int], FleetNode],
) -> None:
    node = open_registry.node
    lines = f"FROM {engine}\nRUN head -c 20000000 /dev/urandom > /tmp/random\n"
    node.exec("docker", "build", "--quiet", "--no-cache", "--tag=large:1", "-", stdin=lines.encode())
    digest = open_registry.push("large:1", "owner/large:1")
    node.exec("docker", "rmi", "large:1")
    file = owners(f"{CUT_PORT}/owner/large@{digest}")

    always = cutter(10**6)
    failed = sparkops("build", file, "--node", "node-2")
    assert failed.code == 1
    assert "the connection to the registry was cut off while the node pulled" in failed.err, failed.err
    assert failed.err.count("retrying after") == 2, "bounded"
    assert "Run the command again: layers that are complete are kept." in failed.err
    tags = always.exec("docker", "images", "--all", "--format", "{{.Repository}}:{{.Tag}}")
    assert "own-image" not in tags

    cutter(2)
    built = sparkops("build", file, "--node", "node-2")
    assert built.code == 0, built.err


@pytest.mark.matrix
def test_a_newer_digest_is_taken_only_after_what_it_changes_was_shown(
    sparkops: Cli, engine: str, open_registry: Registry, owners: Callable[[str], Path]
) -> None:
    name = f"{REGISTRY}/owner/moving:1"
    first = open_registry.push(engine, "owner/moving:1")
    file = owners(name)
    lock = ("recipe", "lock", file, "--node", "node-1", "--no-build")
    locked = sparkops(*lock, "--json")
    assert (locked.code, locked.json["lock"]["parent"]["digest"]) == (0, first), locked.err
    assert locked.json["update"] is None
    text = file.with_suffix(".lock").read_text()

    second = open_registry.push(engine, "owner/moving:1")
    declined = sparkops(*lock, "--update", "--json")
    assert (declined.code, file.with_suffix(".lock").read_text()) == (0, text), declined.err
    rows = {row["name"]: row for row in declined.json["update"]["changes"]}
    assert declined.json["update"]["taken"] is False
    assert (rows["digest"]["locked"], rows["digest"]["newest"]) == (first, second)
    assert rows["architecture"]["same"] is True
    assert [rows[name]["same"] for name in ("vLLM", "torch", "FlashInfer", "NCCL")] == [None] * 4
    assert f"digest: {first} -> {second}" in declined.err
    assert "torch: unknown -> unknown" in declined.err
    assert "pass --yes" in declined.err

    taken = sparkops(*lock, "--update", "--yes", "--json")
    assert taken.json["lock"]["parent"]["digest"] == second, taken.err
    assert taken.json["update"]["taken"] is True
    same = sparkops(*lock, "--update", "--json")
    assert (same.code, same.json["update"]) == (0, None), same.err


@pytest.mark.matrix
def test_a_lock_keeps_its_digest_where_only_the_recipe_has_changed(
    sparkops: Cli, engine: str, open_registry: Registry, owners: Callable[[str], Path]
) -> None:
    first = open_registry.push(engine, "owner/kept:1")
    file = owners(f"{REGISTRY}/owner/kept:1")
    lock = ("recipe", "lock", file, "--node", "node-1", "--no-build", "--json")
    assert sparkops(*lock).json["lock"]["parent"]["digest"] == first
    open_registry.push(engine, "owner/kept:1")
    recipe = yaml.safe_load(file.read_text())
    recipe["image"]["apt"] = ["tzdata"]
    file.write_text(yaml.safe_dump(recipe))

    assert sparkops(*lock).json["lock"]["parent"]["digest"] == first
