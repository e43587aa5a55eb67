"""A model that only its hub has, described from a node by range requests."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkops.config.model import Weights
from sparkops.errors import NotReady, UsageError
from sparkops.node.member import Member
from sparkops.operator.build.hub.headers import HubHeaders, parse
from sparkops.operator.build.weights import commands
from sparkops.operator.build.weights.description import Description
from sparkops.operator.build.weights.models import describe
from tests import safetensors
from tests.hub_server import COMMIT, TOKEN, Hub, hub
from tests.operator.build.weights.places import member
from tests.safetensors import tensor

pytestmark = pytest.mark.local
MIB = 2**20
Q = Weights(id="org/q", path="q")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A checkpoint of two shards, one of them with a header of 100 KB and 8 MiB of a tensor."""
    many = {f"model.layers.{layer}.mlp.experts.0.up_proj.weight": tensor("BF16", [2]) for layer in range(1000)}
    shards = {
        "model-1.safetensors": {**many, "big": ("I32", [2 * MIB], bytes(8 * MIB))},
        "model-2.safetensors": {"lm_head.weight": tensor("F8_E4M3", [4, 4])},
    }
    directory = safetensors.checkpoint(tmp_path / "models/q", shards, {"num_hidden_layers": 900})
    safetensors.shard(directory / "consolidated.safetensors", {"x": tensor("BF16", [64])})
    return directory


@pytest.fixture
def served(model: Path) -> Iterator[Hub]:
    with hub({"org/q": model}) as serving:
        yield serving


@pytest.fixture
def node(tmp_path: Path) -> Member:
    """A node without the model."""
    return member("n1", tmp_path / "empty")


def read(node: Member, served: Hub, weights: Weights = Q) -> Description:
    return HubHeaders(endpoint=served.url).describe(node, weights)


def why(node: Member, served: Hub, weights: Weights = Q) -> NotReady:
    with pytest.raises(NotReady) as refused:
        read(node, served, weights)
    return refused.value


def test_it_is_that_of_the_files_for_a_small_part_of_their_bytes(
    node: Member, served: Hub, model: Path, tmp_path: Path
) -> None:
    described, local = read(node, served), describe(member("n2", model.parent), "q")

    assert local is not None
    assert (described.config, described.tensors, described.largest_bytes) == (
        local.config,
        local.tensors,
        local.largest_bytes,
    )
    assert described.origin == f"org/q at the hub, {COMMIT[:12]}"
    assert served.sent < MIB // 2 < described.largest_bytes
    assert not list((tmp_path / "empty").iterdir()), "nothing was written to the node's models"


def test_one_node_reads_for_all(node: Member, served: Hub, tmp_path: Path) -> None:
    at_hub = HubHeaders(endpoint=served.url)
    first = at_hub.describe(node, Q)
    asked = len(served.requests)

    assert at_hub.describe(member("n2", tmp_path / "other"), Q) is first
    assert len(served.requests) == asked


def test_a_hub_without_ranges_sends_little_more(node: Member, served: Hub) -> None:
    described = read(node, served)
    served.ranges, served.sent = False, 0

    assert read(node, served) == described


def test_the_token_is_given_to_the_hub_and_not_to_its_storage(node: Member, served: Hub, model: Path) -> None:
    """The program itself is run: HubHeaders sends no token to an unencrypted hub."""
    with hub({"org/q": model}) as storage:
        served.only_with_token, served.storage = True, storage.url
        answer = node.node.run(commands.describe_at_hub(Q, TOKEN, served.url, ())).stdout
        assert parse(answer, "org/q").config == {"num_hidden_layers": 900}

    assert set(served.tokens) == {f"Bearer {TOKEN}"}
    assert set(storage.tokens) == {""}
    assert len(storage.tokens) > 3


def test_a_certificate_of_the_inventory_is_trusted(node: Member, model: Path, tmp_path: Path) -> None:
    certificate = tmp_path / "hub.crt"
    subject = ("-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", *subject, "-keyout", certificate.with_suffix(".key"))
    subprocess.run([*made, "-out", certificate], check=True, capture_output=True)
    with hub({"org/q": model}, certificate=certificate) as serving:
        serving.only_with_token = True
        described = HubHeaders(TOKEN, serving.url, (certificate.read_bytes(),)).describe(node, Q)
        with pytest.raises(NotReady, match="does not trust the certificate"):
            HubHeaders(TOKEN, serving.url).describe(node, Q)

    assert described.config == {"num_hidden_layers": 900}


def test_a_token_is_not_sent_unencrypted(served: Hub) -> None:
    with pytest.raises(UsageError, match="the token would be sent unencrypted"):
        HubHeaders(TOKEN, served.url)


@pytest.mark.parametrize(
    ("weights", "problem", "step"),
    [
        ({"id": "org/other"}, "the hub does not have this model", "--token-file"),
        ({"revision": "f" * 40}, "the hub does not have this revision", "Correct model.revision"),
        ({"id": "a/b/c"}, "model.id is not the name of a model on a hub", "ORGANISATION/NAME"),
        ({"exclude": ["config.json"]}, "the hub's answer describes no model (config.json is missing)", "model.id"),
        ({"exclude": ["*.safetensors", "*.json"]}, "describes no model", "model.id"),
    ],
)
def test_what_a_hub_does_not_have_is_refused_with_its_reason(
    node: Member, served: Hub, weights: dict[str, object], problem: str, step: str
) -> None:
    refused = why(node, served, Q.model_copy(update=weights))

    assert problem in str(refused)
    assert step in refused.next_step


@pytest.mark.parametrize(("status", "problem"), [(429, "refuses requests for now"), (503, "fault of its own")])
def test_a_hub_that_fails_is_named(node: Member, served: Hub, status: int, problem: str) -> None:
    served.fail = status

    assert problem in str(why(node, served))


def test_a_hub_that_hides_the_model_asks_for_a_token(node: Member, served: Hub) -> None:
    served.only_with_token = True

    assert "hides it from this account" in str(why(node, served))


def test_a_hub_that_cannot_be_reached_is_no_guess(node: Member) -> None:
    with pytest.raises(NotReady) as refused:
        HubHeaders(endpoint="http://127.0.0.1:9").describe(node, Q)

    assert "org/q: the hub cannot be reached from this node" in str(refused.value)
    assert "--endpoint" in refused.value.next_step


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"\xff" * 16,
        (2).to_bytes(8, "little") + b"[]",
        (58).to_bytes(8, "little") + b'{"w": {"data_offsets": [0, 99999999999999999999999999999]}}'[:58],
        (62).to_bytes(8, "little") + json.dumps({"w": {"data_offsets": [0, 10**30]}}).ljust(62).encode(),
    ],
)
def test_a_shard_that_is_none_is_refused(node: Member, served: Hub, model: Path, content: bytes) -> None:
    (model / "model-2.safetensors").write_bytes(content)

    assert "model-2.safetensors: " in str(why(node, served))


def test_names_of_the_list_lead_nowhere_else(node: Member, served: Hub, model: Path) -> None:
    index = {"weight_map": {"w": "../../etc/passwd.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))

    assert "expected an index of safetensors files" in str(why(node, served))


def test_a_message_of_the_node_is_shown_on_one_line() -> None:
    with pytest.raises(ValueError, match="answer") as refused:
        parse('{"kind": "answer", "text": "a\\nb\\u001b[2J"}', "org/q")

    assert refused.value.args == ("answer", "a b\\x1b[2J")


def test_other_text_is_no_description() -> None:
    for text in ("", "[]", "null", '{"config": {}}'):
        with pytest.raises(ValueError, match=r"unexpected|Expecting|no description"):
            parse(text, "org/q")
