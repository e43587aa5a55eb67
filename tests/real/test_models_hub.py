"""Weights that a node fetches from a hub on this machine, and weights that are made by a recipe's steps.

The hub's own library runs, in our image for it. The directories of these tests are their own.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import safetensors
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.hub_server import COMMIT, TOKEN, Hub, hub
from tests.real.program import RECIPE, Cli, Ran
from tests.real.weights import OURS, digest, list_ours, sent, soon, sweep
from tests.safetensors import tensor, two_shards

pytestmark = pytest.mark.fleet

MIB = 1024 * 1024
Fetch = Callable[..., Ran]


@pytest.fixture
def clean(nodes: RealFleet) -> Iterator[None]:
    """Nothing of ours is there before or after."""
    sweep(nodes)
    yield
    sweep(nodes)


def here(nodes: RealFleet) -> str:
    """The address of this machine, as nodes reach it."""
    return str(next(ip_network(f"{nodes.node('node-1').address}/24", strict=False).hosts()))


@pytest.fixture
def served(nodes: RealFleet, authority: Path, tmp_path: Path) -> Iterator[Hub]:
    """A hub on this machine that the nodes reach, with three models."""
    host = here(nodes)
    base = {
        "model-1.safetensors": {"layers.1.up.weight": tensor("BF16", [4, 8]), "layers.1.q": tensor("I32", [4])},
        "model-2.safetensors": {"layers.2.q": ("I32", [MIB], os.urandom(4 * MIB))},
    }
    donor = {
        "a.safetensors": {
            "layers.1.up.weight": tensor("F8_E4M3", [4, 8], 9),
            "layers.1.up.weight_scale_inv": tensor("F32", [1, 1], 8),
            "mtp.fc.weight": tensor("BF16", [2], 7),
        }
    }
    models = {
        "org/q": two_shards(tmp_path / "hub/q"),
        "org/base": safetensors.checkpoint(tmp_path / "hub/base", base),
        "org/donor": safetensors.checkpoint(tmp_path / "hub/donor", donor),
    }
    (models["org/q"] / "big.bin").write_bytes(os.urandom(MIB))
    (models["org/q"] / "original").mkdir()
    (models["org/q"] / "original/weights.pth").write_bytes(b"x")
    with hub(models, host, authority) as serving:
        yield serving


@pytest.fixture(scope="module")
def authority(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of this machine's address, signed by itself; its key lies beside it. One, so one image for it."""
    host, certificate = here(nodes), tmp_path_factory.mktemp("authority") / "hub.crt"
    subject = ("-subj", "/CN=hub", "-addext", f"subjectAltName=IP:{host}", "-days", "2", "-nodes")
    argv = (
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        *subject,
        "-keyout",
        certificate.with_suffix(".key"),
        "-out",
        certificate,
    )
    subprocess.run(argv, check=True, capture_output=True)
    return certificate


@pytest.fixture
def pulling(with_inventory: Callable[..., Cli], served: Hub, authority: Path) -> Cli:
    """sparkops with an inventory that trusts that hub."""
    assert served.url.startswith("https://")

    def trust(data: dict[str, Any]) -> None:
        data.setdefault("build", {}).setdefault("ca_certificates", []).append(str(authority))

    return with_inventory(trust)


@pytest.fixture
def asking(variant: Callable[..., Path]) -> Path:
    """A recipe whose model is org/q."""
    plain = "id: sparkops/tiny-qwen3\n  path: tiny-qwen3"
    return variant({plain: f"id: org/q\n  path: {OURS}\n  exclude: [original/*]"})


@pytest.fixture
def fetching(asking: Path, served: Hub, pulling: Cli) -> Fetch:
    """`models pull` of it to node-1 from that hub."""

    def pull(*options: str | Path, endpoint: str = served.url) -> Ran:
        return pulling("models", "pull", asking, "--node", "node-1", "--endpoint", endpoint, *options)

    return pull


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.mark.usefixtures("clean", "built")
def test_a_model_is_fetched_once_and_is_what_the_hub_has(fetching: Fetch, nodes: RealFleet, served: Hub) -> None:
    fetched = fetching("--json")
    assert fetched.code == 0, fetched.err
    size = sum(file.stat().st_size for name, file in served.files("org/q").items() if "original" not in name)
    assert fetched.json == {
        "node": "node-1",
        "models": [{"path": OURS, "bytes": pytest.approx(size, abs=2000), "revision": COMMIT}],
    }
    node = nodes.node("node-1")
    assert list_ours(node) == [OURS]
    assert "original" not in node.exec("ls", f"/srv/models/{OURS}")
    assert set(node.exec("sh", "-c", f"stat -c %U /srv/models/{OURS} /srv/models/{OURS}/*").split()) == {"ops"}
    served.requests.clear()
    assert f"node-1: {OURS} is up to date" in fetching().err
    assert served.requests == []


@pytest.mark.matrix
@pytest.mark.usefixtures("clean", "built")
def test_an_interrupted_fetch_goes_on_and_shows_its_token_to_nobody(
    asking: Path, pulling: Cli, nodes: RealFleet, served: Hub, token_file: Path
) -> None:
    node = nodes.node("node-1")
    served.only_with_token = True
    served.gate.clear()  # the large file begins, and does not end
    argv = ("models", "pull", asking, "--node", "node-1", "--endpoint", served.url, "--token-file", token_file)
    with pulling.start(*argv) as running:
        assert soon(lambda: any("big.bin" in request for request in served.requests))  # its image is built before
        small = f"find /srv/models/{OURS}.partial -name tokenizer.json"
        assert soon(lambda: node.exec("sh", "-c", small) != "")
        processes = node.exec(
            "sh", "-c", "ps axww -o args; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"
        )
        inspected = node.exec("sh", "-c", "docker inspect $(docker ps -q --filter label=sparkops.task=pull)")
        ran_in = json.loads(inspected)[0]["Image"]
        image = json.loads(node.exec("docker", "image", "inspect", ran_in))[0]
        left = node.exec("sh", "-c", f"grep -rl {TOKEN} /srv/models /tmp /home || true")
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=300)

    assert image["Config"]["Labels"]["sparkops.recipe"] == "hub"
    assert TOKEN not in processes + inspected + left
    assert running.returncode == 130
    assert list_ours(node) == [f"{OURS}.partial"]
    served.gate.set()
    served.requests.clear()
    resumed = pulling(*argv)
    assert resumed.code == 0, resumed.err
    fetched = [request for request in served.requests if request.startswith("GET") and "resolve" in request]
    assert [request.rpartition("/")[2] for request in fetched if "original" not in request] == ["big.bin"]
    assert list_ours(node) == [OURS]


@pytest.mark.matrix
@pytest.mark.usefixtures("clean", "built")
def test_a_fetch_that_fails_says_why_and_what_to_do(
    fetching: Fetch, nodes: RealFleet, served: Hub, token_file: Path
) -> None:
    def refused(*options: str | Path, **changes: str) -> str:
        ran = fetching(*options, **changes)
        assert (ran.code, ran.out) == (1, ""), ran.err
        return str(ran.err)

    plain = fetching("--token-file", token_file, endpoint=served.url.replace("https", "http"))
    assert plain.code == 2
    assert "the token would be sent unencrypted to http://" in plain.err
    unreachable = refused(endpoint="http://127.0.0.1:9")
    assert "node-1: org/q: the hub cannot be reached from this node" in unreachable
    assert "then: sparkops models copy" in unreachable
    served.fail = 416
    anonymous = refused()
    assert "416, Range Not Satisfiable: its storage limits requests without a token" in anonymous
    assert "pass --token-file" in anonymous
    assert "its storage limits" not in refused("--token-file", token_file)
    served.fail, served.only_with_token = None, True
    hidden = refused()  # to the hub's library, 401 without a token is a model that does not exist
    assert "or hides it from this account" in hidden
    assert "pass --token-file" in hidden
    served.only_with_token = False
    served.models.clear()
    assert "the hub does not have this model" in refused()
    assert list_ours(nodes.node("node-1")) in ([], [f"{OURS}.partial"])


@pytest.mark.usefixtures("clean", "built")
def test_another_revision_is_refused_by_deploy_and_not_replaced_unasked(
    fetching: Fetch, sparkops: Cli, variant: Callable[..., Path], nodes: RealFleet
) -> None:
    assert fetching().code == 0
    before = digest(nodes.node("node-1"))
    other = "f" * 40
    file = variant({"id: sparkops/tiny-qwen3\n  path: tiny-qwen3": f"id: org/q\n  revision: {other}\n  path: {OURS}"})
    reason = f"it is revision {COMMIT}, the recipe needs {other}"

    assert f"the weights in /srv/models/{OURS}: {reason}" in sparkops("plan", file, "--node", "node-1").err
    taken = sparkops("models", "pull", file, "--node", "node-1")
    assert taken.code == 5
    assert f"node-1: {OURS} has another model: {reason}" in taken.err
    assert digest(nodes.node("node-1")) == before


MADE = f"""\
model:
  id: org/made
  path: {OURS}
  sources:
    - {{id: org/base, path: {OURS}-base}}
    - {{id: org/donor, path: {OURS}-donor}}
  steps:
    - script: replace-tensors
      inputs: {{base: {OURS}-base, donor: {OURS}-donor}}
      output: {OURS}-hybrid
      args: {{tensors: 'up\\.weight$', with: [weight_scale_inv], count: 1}}
      disk_gb: 0.1
    - script: add-tensors
      inputs: {{base: {OURS}-hybrid, donor: {OURS}-donor}}
      output: {OURS}
      disk_gb: 0.1
"""


@pytest.mark.matrix
@pytest.mark.usefixtures("clean", "built")
def test_a_model_is_made_by_its_steps_in_the_recipes_image(
    sparkops: Cli, pulling: Cli, variant: Callable[..., Path], served: Hub, nodes: RealFleet, tmp_path: Path
) -> None:
    plain = yaml.safe_load(RECIPE.read_text())["model"]
    file = variant({f"model:\n  id: {plain['id']}\n  path: {plain['path']}\n": MADE})
    node = nodes.node("node-1")
    on = ("--node", "node-1")

    refused = sparkops("plan", file, *on)
    assert refused.code == 5
    assert "needs: weights" in refused.err
    assert "next: sparkops up tiny-qwen3-cpu --node node-1" in refused.err
    early = sparkops("models", "prepare", file, *on)
    assert early.code == 5
    assert f"{OURS}-base is unusable: not found" in early.err
    assert "next: sparkops models pull tiny-qwen3-cpu --node node-1" in early.err
    pulled = pulling("models", "pull", file, *on, "--endpoint", served.url)
    assert pulled.code == 0, pulled.err
    shown = sparkops("models", "prepare", file, *on, "--dry-run")
    assert (shown.code, shown.out.count("$ docker run --rm")) == (0, 2)
    assert list_ours(node) == [f"{OURS}-base", f"{OURS}-donor"]

    prepared = sparkops("models", "prepare", file, *on)
    assert prepared.code == 0, prepared.err
    assert sparkops("plan", file, *on).code == 0
    assert "nothing to do" in sparkops("models", "prepare", file, *on).err
    local = tmp_path / "fetched"
    fetch(node, local)
    assert safetensors.read_all(local) == {
        **safetensors.read_all(served.models["org/base"]),
        **safetensors.read_all(served.models["org/donor"]),
    }

    changed = file.with_name("changed") / file.name
    changed.parent.mkdir()
    changed.write_text(file.read_text().replace("count: 1", "count: 1, config: {a: 1}"))
    assert "it was made by other steps than the recipe's" in sparkops("plan", changed, *on).err
    sent(sparkops("models", "copy", file, "--from", "node-1", "--json"))
    assert digest(node) == digest(nodes.node("node-2"))


def fetch(node: FleetNode, to: Path, path: str = OURS) -> None:
    """Bring a model of a node here."""
    to.mkdir()
    packed = subprocess.run(
        ["docker", "exec", node.container, "tar", "-C", f"/srv/models/{path}", "-cf", "-", "."],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    subprocess.run(["tar", "-C", str(to), "-xf", "-"], input=packed, check=True)


@pytest.fixture
def stopped(sparkops: Cli) -> Iterator[None]:
    """The service of the recipe is stopped afterwards."""
    yield
    assert sparkops("stop", "tiny").code == 0


@pytest.mark.matrix
@pytest.mark.usefixtures("clean", "model", "stopped")
def test_up_brings_what_is_missing_and_deploys_it(
    sparkops: Cli, variant: Callable[..., Path], nodes: RealFleet, tmp_path: Path
) -> None:
    plain = yaml.safe_load(RECIPE.read_text())["model"]
    fetch(nodes.node("node-1"), tmp_path / "whole", plain["path"])
    file = variant({f"id: {plain['id']}\n  path: {plain['path']}": f"id: org/tiny\n  path: {OURS}"})
    with hub({"org/tiny": tmp_path / "whole"}, here(nodes)) as served:
        argv = ("up", file, "--node", "node-1", "--endpoint", served.url)
        shown = sparkops(*argv, "--dry-run")
        assert shown.code == 0, shown.err
        assert shown.out.startswith("weights: download org/tiny to node-1\nservice tiny, "), shown.out
        deployed = sparkops(*argv)
        assert deployed.code == 0, deployed.err
        answer = subprocess.run(shlex.split(deployed.out), capture_output=True, text=True, check=True)
        assert json.loads(answer.stdout)["choices"][0]["message"]["content"]

        served.requests.clear()
        repeated = sparkops(*argv)
        assert (repeated.code, repeated.out) == (0, deployed.out), repeated.err
        assert "nothing to do" in repeated.err
        assert served.requests == []
