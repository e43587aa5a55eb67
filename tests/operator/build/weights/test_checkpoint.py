"""What a node says of its models, and why one is not complete."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkops.operator.build.weights import checkpoint
from sparkops.operator.build.weights.checkpoint import Checkpoint, ModelDirectory, Origin

ROOT = {"there": True, "writable": True, "free": 5 * 10**9, "user": [1000, 1000]}
FILES = {"config.json": [2, 7], "m-1.safetensors": [100, 8], "m-2.safetensors": [200, 9], "i.json": [30, 9]}
WHOLE: dict[str, Any] = {
    "path": "q",
    "files": FILES,
    "shards": {"m-1.safetensors": {"bytes": 100}, "m-2.safetensors": {"bytes": 200}},
    "index": {"file": "i.json", "shards": {"m-1.safetensors": 3, "m-2.safetensors": 4}, "absent": {}, "unnamed": {}},
    "marker": None,
    "revision": None,
    "identity": None,
    "closed": {},
    "place": "/srv/models/q",
    "id": [7, 1],
}


def parse(*models: dict[str, Any]) -> ModelDirectory:
    return checkpoint.parse(json.dumps({"root": ROOT, "models": models}))


def parsed(**changes: Any) -> Checkpoint:
    [only] = parse({**WHOLE, **changes}).checkpoints.values()
    return only


def without(name: str) -> dict[str, Any]:
    return {"files": {key: value for key, value in FILES.items() if key != name}}


def index(**changes: Any) -> dict[str, Any]:
    return {"index": {**WHOLE["index"], **changes}}


def test_a_whole_answer() -> None:
    directory = parse(WHOLE, {**WHOLE, "path": "org/r"})

    assert (directory.exists, directory.writable, directory.free, directory.user) == (True, True, 5 * 10**9, 1000)
    assert list(directory.checkpoints) == ["q", "org/r"]
    assert directory.checkpoints["q"].size == 332
    assert directory.checkpoints["q"].complete


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"root": {}, "models": []}', "python: not found"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unexpected description of a model directory"):
        checkpoint.parse(text)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x"])
def test_a_file_outside_its_directory_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unexpected description of a model directory"):
        parse({**WHOLE, "files": {**FILES, name: [1, 1]}})


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        (without("config.json"), ["no config.json"]),
        ({"files": {"config.json": [2, 7]}, "shards": {}, "index": None}, ["no weights"]),
        (
            {"shards": {**WHOLE["shards"], "m-1.safetensors": {"bytes": 150}}},
            ["m-1.safetensors is truncated: 100 of 150 bytes"],
        ),
        (
            {"shards": {**WHOLE["shards"], "m-1.safetensors": {"bytes": 60}}},
            ["m-1.safetensors has 100 bytes, expected 60 by its header"],
        ),
        (
            {"shards": {**WHOLE["shards"], "m-2.safetensors": {"error": "safetensors header missing"}}},
            ["m-2.safetensors: safetensors header missing"],
        ),
        (
            {**without("m-2.safetensors"), "shards": {"m-1.safetensors": {"bytes": 100}}},
            ["m-2.safetensors is missing, but listed in i.json"],
        ),
        (
            index(absent={"m-1.safetensors": {"count": 1, "first": ["a.weight"]}}),
            ["m-1.safetensors lacks tensors of i.json: a.weight"],
        ),
        (
            index(unnamed={"m-2.safetensors": {"count": 9, "first": ["a", "b", "c"]}}),
            ["i.json lacks tensors of m-2.safetensors: a, b, c and 6 more"],
        ),
        ({"index": {"file": "i.json", "error": "it is nothing"}}, ["i.json: it is nothing"]),
        (
            {"marker": {"model": "org/q", "files": {"config.json": 3, "vocab": 4, "m-1.safetensors": 100}}},
            [
                "config.json has 2 bytes, expected 3",
                "vocab is missing; it existed when the directory was created",
            ],
        ),
        ({"path": "q.partial"}, ["incomplete; repeat the command to resume"]),
        ({"path": "q.replaced"}, ["left over from an interrupted replacement"]),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], reasons: list[str]) -> None:
    changed = parsed(**changes)

    assert list(checkpoint.problems(changed)) == reasons
    assert not changed.complete


def test_a_file_that_somebody_added_is_no_problem() -> None:
    assert parsed(files={**FILES, "chat.jinja": [5, 5]}, marker={"model": "q", "files": {"config.json": 2}}).complete


def test_weights_of_another_format_cannot_be_checked_and_are_believed() -> None:
    assert parsed(files={"config.json": [2, 7], "pytorch_model.bin": [9, 9]}, shards={}, index=None).complete


def test_a_shard_that_no_index_names_is_pointed_out() -> None:
    extra = parsed(
        files={**FILES, "mtp.safetensors": [5, 5]}, shards={**WHOLE["shards"], "mtp.safetensors": {"bytes": 5}}
    )

    assert checkpoint.overlooked(extra) == ("mtp.safetensors",)
    assert extra.complete
    assert checkpoint.overlooked(parsed()) == ()


def test_a_numbered_shard_that_no_index_names_is_a_problem() -> None:
    """Its layers would not be loaded. A file with a name of its own may be for another engine."""
    names = ("m-1-of-2.safetensors", "m-2-of-2.safetensors", "other-2-of-2.safetensors")
    numbered = parsed(
        files={"config.json": [2, 7], **{name: [9, 9] for name in names}},
        shards={name: {"bytes": 9} for name in names},
        index={"file": "i.json", "shards": {names[0]: 1}, "absent": {}, "unnamed": {}},
    )

    assert list(checkpoint.problems(numbered)) == ["i.json lacks all tensors of m-2-of-2.safetensors"]
    assert checkpoint.overlooked(numbered) == names[1:]


def test_the_origin_is_what_sparkops_noted() -> None:
    marker = {"model": "org/q", "asked": "main", "commit": "abc", "files": {}}

    assert parsed(marker=marker).origin == Origin("org/q", "main", "abc")
    assert parsed(marker=marker).commit == "abc"
    assert parsed(revision="def").commit == "def"
    assert parsed(marker={"something": "else"}).origin is None


def test_hashes_and_how_far_they_are() -> None:
    assert checkpoint.bytes_read('{"bytes": 5}') == 5
    assert checkpoint.bytes_read('{"bytes": "abc", "x": "def"}') is None
    assert checkpoint.hashes('{"bytes": 5}\n{"a": "123"}\n') == {"a": "123"}


GGUF: dict[str, Any] = {"index": None, "shards": {}}
PARTS = {f"q-{number:05d}-of-00002.gguf": [9, 9] for number in (1, 2)}


def test_a_gguf_file_needs_no_config() -> None:
    assert parsed(**GGUF, files={"q-Q4.gguf": [9, 9]}).complete
    assert list(checkpoint.problems(parsed(**GGUF, files={"a.gguf": [9, 9], "b.bin": [9, 9]}))) == ["no config.json"]


def test_a_gguf_file_in_parts_needs_all_of_them() -> None:
    one, other = PARTS

    assert parsed(**GGUF, files=PARTS).complete
    assert list(checkpoint.problems(parsed(**GGUF, files={other: [9, 9]}))) == [
        f"{one} is missing: another part of it exists"
    ]
