"""The spec of an engine: the same text gives the same container, and a label names it."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from sparkops.engines.launch import Seat
from sparkops.names import Slot
from sparkops.node.network.commands import RDMA_OPTIONS
from sparkops.serving import engine_spec
from sparkops.serving.engine_spec import HEAD_GRACE_S, LOAD_GRACE_S, SPEC_LABEL, WORKER_GRACE_S, EngineSpec
from sparkops.swap.model import RankSpec
from tests.examples import IMAGE_ID, INPUTS, recipe


@pytest.fixture
def spec() -> EngineSpec:
    data = recipe().model_dump(mode="json", exclude_defaults=True)
    node = {"transport": "local", "gpu": "none"}
    given = {"recipe": data, "inputs": INPUTS, "image": IMAGE_ID, "slot": Slot.BLUE, "index": 0, "node": node}
    return EngineSpec.model_validate({**given, "address": "10.0.0.1", "jobs": 2})


def test_the_container_is_labelled_with_the_digest_of_its_spec(spec: EngineSpec) -> None:
    rank = engine_spec.rank_spec(spec, "n1")
    command = engine_spec.of(rank).create("n1")
    assert command.argv[:3] == ("docker", "create", f"--label={SPEC_LABEL}={engine_spec.digest(rank)}")
    assert (command, command.changes) == (spec.create("n1"), True)


def test_the_digest_is_that_of_the_text_whoever_wrote_it(spec: EngineSpec) -> None:
    """Another version may write the same values in another way; its containers must not be taken for others."""
    text = spec.model_dump_json(indent=1)
    rank = engine_spec.rank_spec(spec, "n1")
    of_another_version = RankSpec(rank.node, rank.container, rank.claim_gib, text)
    label = engine_spec.of(of_another_version).create("n1").argv[2]
    assert label == f"--label={SPEC_LABEL}={hashlib.sha256(text.encode()).hexdigest()}"
    assert label.endswith(engine_spec.digest(of_another_version))
    assert engine_spec.digest(of_another_version) != engine_spec.digest(rank)


def test_an_engine_that_loads_has_no_request_to_finish() -> None:
    assert [engine_spec.grace_s(0, 1, given_s, loading=True) for given_s in (90, 2)] == [LOAD_GRACE_S, 2]
    assert engine_spec.grace_s(1, 2, 90, loading=True) == WORKER_GRACE_S


@pytest.mark.parametrize(
    ("index", "ranks", "given_s", "grace_s"),
    [(0, 1, 90, 90), (0, 2, 90, HEAD_GRACE_S), (1, 2, 90, WORKER_GRACE_S), (0, 2, 2, 2), (1, 2, 2, 2)],
)
def test_ranks_of_a_pair_wait_for_each_other_no_longer_than_seconds(
    spec: EngineSpec, index: int, ranks: int, given_s: int, grace_s: int
) -> None:
    serve = {**spec.recipe.get("serve", {}), "stop_grace_s": given_s, "tensor_parallel": ranks}
    rank = engine_spec.rank_spec(
        spec.model_copy(update={"index": index, "recipe": {**spec.recipe, "serve": serve}}), "n1"
    )

    assert engine_spec.stop(rank).argv == ("docker", "stop", f"--time={grace_s}", rank.container)


SEAT = Seat("10.0.0.1", "10.0.0.1")


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"image": "--privileged"}, "image: expected the ID of an image, sha256:..., got '--privileged'"),
        ({"image": "evil:latest"}, "image: expected the ID of an image, sha256:..., got 'evil:latest'"),
        ({"seat": replace(SEAT, options=("--privileged",))}, "seat: expected options among .*, got --privileged"),
        ({"seat": replace(SEAT, options=(*RDMA_OPTIONS, "--volume=/:/x"))}, "seat: expected .*, got --volume=/:/x"),
        ({"node": {"transport": "local", "model_dir": "/:/x"}}, "model_dir\n.*expected an absolute path without colon"),
        ({"callers": ("10.0.0.1", "x")}, "'x' does not appear to be an IPv4 or IPv6 address"),
        ({"seat": replace(SEAT, peers=("10.0.0.1", "x"))}, "'x' does not appear to be an IPv4 or IPv6 address"),
    ],
    ids=[
        "an option as image",
        "an image to fetch",
        "an option",
        "one option too many",
        "another mount",
        "a caller",
        "a peer",
    ],
)
def test_no_spec_gives_a_container_more_rights(spec: EngineSpec, changes: dict[str, Any], refused: str) -> None:
    """A spec comes from the leader's node, which is not to be root on the others."""
    text = spec.model_copy(update=changes).model_dump_json()

    with pytest.raises(ValueError, match=refused):
        engine_spec.of(RankSpec("n1", "q", spec=text)).create("n1")


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"model_dir": "/srv/models"}, ""),
        ({}, ""),
        ({"gpu": "devices", "gpu_devices": ["/dev/nvidia0"], "gpu_mounts": ["/usr/lib/nvidia"]}, ""),
        ({"model_dir": "/srv"}, "/srv"),
        ({"model_dir": "/srv/models/.."}, "/srv/models/.."),
        ({"model_dir": "/var/lib/docker/volumes/db/_data"}, "/var/lib/docker/volumes/db/_data"),
        ({"gpu": "devices", "gpu_devices": ["/dev/sda"]}, "/dev/sda"),
        ({"gpu": "devices", "gpu_devices": ["/dev/nvidia0"], "gpu_mounts": ["/home", "/"]}, "/, /home"),
    ],
)
def test_an_engine_gets_only_what_the_inventory_of_its_node_names(
    spec: EngineSpec, settings: dict[str, Any], refused: str
) -> None:
    text = spec.model_copy(update={"node": {"transport": "local", **settings}}).model_dump_json()
    named = {"/srv/models", "/dev/nvidia0", "/usr/lib/nvidia"}

    with pytest.raises(ValueError, match=f"^node: {refused}: not in the inventory") if refused else nullcontext():
        engine_spec.of(RankSpec("n1", "q", spec=text)).create("n1", named)


def test_a_rank_over_roce_gets_its_devices(spec: EngineSpec) -> None:
    pair = {**spec.recipe, "serve": {"tensor_parallel": 2, "executor": "mp"}}
    text = spec.model_copy(update={"recipe": pair, "seat": replace(SEAT, options=RDMA_OPTIONS)}).model_dump_json()

    assert {*RDMA_OPTIONS} < {*engine_spec.of(RankSpec("n1", "q", spec=text)).create("n1").argv}
