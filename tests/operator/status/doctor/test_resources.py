"""Weights that a node holds twice, and weights that cannot be read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.errors import NodeError
from sparkops.operator.build.weights.checkpoint import Checkpoint, ModelDirectory, Origin
from sparkops.operator.status.doctor import rules
from sparkops.operator.status.doctor.facts import NodeFacts
from tests.examples import CHECKPOINT
from tests.operator.status.doctor.test_rules import WELL, examined
from tests.sparks import spark

pytestmark = pytest.mark.local

MODEL, COMMIT = "Intel/Qwen3.5", "c0ffee"
CACHE = "/home/ops/.cache/huggingface/hub"


def holding(tmp_path: Path, *held: Checkpoint, cache: str = "") -> NodeFacts:
    directory = ModelDirectory(True, True, 10**12, 1000, 1000, {checkpoint.path: checkpoint for checkpoint in held})
    machine = replace(WELL, hub_cache={cache: 62.4} if cache else {})
    return replace(examined(tmp_path, "a", spark(1)), weights=directory, machine=machine)


def model(path: str, commit: str = COMMIT, steps: str | None = None) -> Checkpoint:
    return replace(CHECKPOINT, path=path, origin=Origin(MODEL, commit=commit, steps=steps), commit=commit)


def test_a_second_directory_of_the_same_commit_is_named_with_its_size(tmp_path: Path) -> None:
    [finding] = rules.weights_twice.findings(holding(tmp_path, model("q"), model("q-copy")))

    assert finding.code == "WEIGHTS_TWICE"
    assert finding.problem == f"{MODEL} exists twice: /srv/models/q and /srv/models/q-copy (0.0 GiB)"
    assert finding.next_step.endswith("rm -r /srv/models/q-copy")
    assert not finding.fixable


def test_the_hub_s_own_cache_is_a_second_copy(tmp_path: Path) -> None:
    cache = f"{CACHE}/models--Intel--Qwen3.5"

    [finding] = rules.weights_twice.findings(holding(tmp_path, model("q"), cache=cache))

    assert finding.problem == f"{MODEL} exists twice: /srv/models/q and {cache} (62.4 GiB)"


@pytest.mark.parametrize(
    "held",
    [
        (model("q"), model("r", "f00d")),  # two commits
        (model("q"), model("r", steps="0" * 64)),  # one was made out of the other
        (model("q"), replace(CHECKPOINT, path="r")),  # of unknown origin
        (model("q"), replace(model("q.partial"), identity="x")),  # another transfer
    ],
)
def test_other_weights_are_no_copy(tmp_path: Path, held: tuple[Checkpoint, ...]) -> None:
    assert [*rules.weights_twice.findings(holding(tmp_path, *held, cache=f"{CACHE}/models--other--model"))] == []


@pytest.mark.parametrize(
    ("paths", "place"),
    [(("a-link", "q"), "/srv/models/q"), (("q",), f"{CACHE}/models--Intel--Qwen3.5/snapshots/c0ffee")],
    ids=["in the model directory", "into the cache of the hub"],
)
def test_the_files_behind_a_link_are_no_copy_to_remove(tmp_path: Path, paths: tuple[str, ...], place: str) -> None:
    held = [replace(model(path), place=place) for path in paths]
    cache = f"{CACHE}/models--Intel--Qwen3.5" if place.startswith(CACHE) else ""

    assert [*rules.weights_twice.findings(holding(tmp_path, *held, cache=cache))] == []


def test_weights_that_cannot_be_read_are_a_finding(tmp_path: Path) -> None:
    unread = replace(holding(tmp_path), weights=NodeError("a", "/srv/models: Permission denied"))

    [finding] = rules.weights_unread.findings(unread)

    assert (finding.code, finding.problem) == ("WEIGHTS_UNREAD", "/srv/models: Permission denied")
    assert finding.next_step == "sparkops models list --node a"
