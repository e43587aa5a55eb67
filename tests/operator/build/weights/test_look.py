"""The program that looks at a model directory, and the one that gives a whole directory its name."""

from __future__ import annotations

import json
import os
import runpy
import struct
import subprocess
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.config import shipped
from sparkops.errors import NodeError, NotReady
from sparkops.operator.build.weights import commands, models
from sparkops.operator.build.weights.checkpoint import Checkpoint, problems
from tests import safetensors
from tests.node.recording import RecordingNode
from tests.operator.build.weights.places import member
from tests.safetensors import tensor, two_shards

FIRST, SECOND = "model-1-of-2.safetensors", "model-2-of-2.safetensors"
INDEX = "model.safetensors.index.json"


def look(root: Path, path: str = "q") -> Checkpoint:
    return models.look(member("n1", root), [path]).checkpoints[path]


def test_a_whole_checkpoint(tmp_path: Path) -> None:
    directory = two_shards(tmp_path / "q")
    listed = look(tmp_path)

    assert list(problems(listed)) == []
    assert listed.size == sum(file.stat().st_size for file in directory.iterdir())
    assert listed.files[FIRST] == ((directory / FIRST).stat().st_size, (directory / FIRST).stat().st_mtime_ns)


def cut(directory: Path) -> None:
    os.truncate(directory / SECOND, (directory / SECOND).stat().st_size - 5)


def lengthen(directory: Path) -> None:
    with (directory / FIRST).open("ab") as file:
        file.write(b"more")


def cut_header(directory: Path) -> None:
    os.truncate(directory / FIRST, 40)


def empty(directory: Path) -> None:
    (directory / FIRST).write_bytes(b"")


def other_content(directory: Path) -> None:
    (directory / FIRST).write_bytes(b"<html>not found</html>" * 10)


def remove(directory: Path) -> None:
    (directory / SECOND).unlink()


def forget_a_tensor(directory: Path) -> None:
    index = json.loads((directory / INDEX).read_text())
    del index["weight_map"]["layers.1.up.weight"]
    (directory / INDEX).write_text(json.dumps(index))


def name_too_much(directory: Path) -> None:
    index = json.loads((directory / INDEX).read_text())
    index["weight_map"]["mtp.weight"] = FIRST
    (directory / INDEX).write_text(json.dumps(index))


def lead_outside(directory: Path) -> None:
    (directory / INDEX).write_text('{"weight_map": {"a": "../../etc/passwd"}}')


def half_an_index(directory: Path) -> None:
    os.truncate(directory / INDEX, 30)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, f"{SECOND} is truncated: "),
        (lengthen, f"{FIRST} has "),
        (cut_header, f"{FIRST}: safetensors header truncated"),
        (empty, f"{FIRST}: safetensors header missing"),
        (other_content, f"{FIRST}: expected a safetensors header at the start"),
        (remove, f"{SECOND} is missing, but listed in {INDEX}"),
        (forget_a_tensor, f"{INDEX} lacks tensors of {FIRST}: layers.1.up.weight"),
        (name_too_much, f"{FIRST} lacks tensors of {INDEX}: mtp.weight"),
        (lead_outside, f"{INDEX}: expected an index of safetensors files"),
        (half_an_index, f"{INDEX}: expected an index of safetensors files"),
    ],
)
def test_damage_is_found_and_named(tmp_path: Path, damage: Callable[[Path], None], reason: str) -> None:
    damage(two_shards(tmp_path / "q"))

    assert next(problems(look(tmp_path))).startswith(reason)


DEEP = b"[" * 100_000


def deep_header(directory: Path) -> None:
    text = b'{"a":' + DEEP
    (directory / FIRST).write_bytes(struct.pack("<Q", len(text)) + text)


def large_header(directory: Path) -> None:
    (directory / FIRST).write_bytes(struct.pack("<Q", 2**24 + 1) + bytes(2**24 + 1))


def deep_index(directory: Path) -> None:
    (directory / INDEX).write_bytes(b'{"weight_map":' + DEEP)


def large_index(directory: Path) -> None:
    with (directory / INDEX).open("ab") as file:
        file.truncate(2**25 + 1)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (deep_header, f"{FIRST}: invalid safetensors header"),
        (large_header, f"{FIRST}: expected a safetensors header at the start, of up to 16 MiB"),
        (deep_index, f"{INDEX}: expected an index of safetensors files"),
        (large_index, f"{INDEX}: expected an index of safetensors files"),
    ],
)
def test_a_hostile_repository_does_not_hide_the_other_models(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    two_shards(tmp_path / "good")
    damage(two_shards(tmp_path / "hostile"))
    checkpoints = models.look(member("n1", tmp_path)).checkpoints

    assert list(problems(checkpoints["good"])) == []
    assert next(problems(checkpoints["hostile"])).startswith(reason)


def test_a_marker_of_a_repository_that_is_nested_too_deeply_is_none(tmp_path: Path) -> None:
    (two_shards(tmp_path / "q") / ".sparkops.json").write_bytes(DEEP)

    assert look(tmp_path).origin is None


def test_a_config_that_is_nested_too_deeply_is_an_error_of_its_model(tmp_path: Path) -> None:
    (two_shards(tmp_path / "q") / "config.json").write_bytes(DEEP)
    command = commands.describe(str(tmp_path / "q"))
    ran = subprocess.run(command.argv, input=command.stdin, capture_output=True, check=False)

    assert json.loads(ran.stdout) == {"error": "config.json: expected a JSON object"}


def test_the_headers_of_all_shards_are_not_in_memory_at_once(tmp_path: Path) -> None:
    """Python takes 13 times the size of a header, of memory that a Spark shares with its engine."""
    examine = runpy.run_path(str(shipped.PACKAGE.parent / "templates/node/checkpoint.py"))["examine"]
    peaks = []
    for shards in (1, 6):
        directory = tmp_path / str(shards)
        directory.mkdir()
        for number in range(shards):
            names = (f"layers.{number}.{name}" for name in range(2000))
            safetensors.shard(directory / f"model-{number}.safetensors", {name: tensor("F32", [0]) for name in names})
        tracemalloc.start()
        examine(str(directory))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()

    assert peaks[1] < 2 * peaks[0]


def test_a_single_file_needs_no_index(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q/config.json").write_text("{}")
    safetensors.shard(tmp_path / "q/model.safetensors", {"a": tensor("F32", [2])})

    assert look(tmp_path).complete


def test_files_are_seen_through_links_and_what_a_hub_keeps_is_passed(tmp_path: Path) -> None:
    blobs = two_shards(tmp_path / "blobs")
    (tmp_path / "q").mkdir()
    for file in blobs.iterdir():
        (tmp_path / "q" / file.name).symlink_to(file)
    note = tmp_path / "q/.cache/huggingface/download/config.json.metadata"
    note.parent.mkdir(parents=True)
    note.write_text("abc123\netag\n1.0\n")
    (tmp_path / "q/gone").symlink_to("nowhere")
    listed = look(tmp_path)

    assert listed.complete
    assert set(listed.files) == {file.name for file in blobs.iterdir()}
    assert listed.commit == "abc123"


def test_a_link_to_a_directory_has_the_place_of_that_directory(tmp_path: Path) -> None:
    directory = two_shards(tmp_path / "q")
    (tmp_path / "a-link").symlink_to(directory)

    assert look(tmp_path, "a-link").place == look(tmp_path).place == str(directory.resolve())


def test_what_other_users_cannot_read_is_told_with_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    directory = two_shards(tmp_path / "org/q")
    assert look(tmp_path, "org/q").closed == {}

    (directory / FIRST).chmod(0o640)
    (tmp_path / "org").chmod(0o750)
    assert look(tmp_path, "org/q").closed == {"org": 0o750, f"org/q/{FIRST}": 0o640}

    tmp_path.chmod(0o711)
    assert look(tmp_path, "org/q").closed["."] == 0o711


def test_every_model_is_listed_wherever_it_lies(tmp_path: Path) -> None:
    for path in ("a", "org/b", "deep/er/c", "far/too/deep/d"):
        two_shards(tmp_path / path)
    two_shards(tmp_path / "e").rename(tmp_path / "e.partial")
    (tmp_path / "notes").mkdir()
    directory = models.look(member("n1", tmp_path))

    assert set(directory.checkpoints) == {"a", "org/b", "deep/er/c", "e.partial"}
    assert (directory.exists, directory.writable, directory.user) == (True, True, os.getuid())


def test_a_model_directory_that_is_not_there_is_refused_with_the_command_that_makes_it(tmp_path: Path) -> None:
    node = member("n1", tmp_path / "m")
    (tmp_path / "m").rmdir()

    assert models.look(node).exists is False
    with pytest.raises(NotReady, match="m does not exist") as caught:
        models.room(node)
    assert caught.value.next_step == f"On n1: sudo install -d -o {os.getuid()} -g {os.getgid()} {tmp_path}/m"


def test_a_node_without_python_says_so(tmp_path: Path) -> None:
    node = RecordingNode("n1", exit_codes={"python3": 127})

    with pytest.raises(NotReady, match="python3 not found"):
        models.look(replace(member("n1", tmp_path), node=node))


def test_a_whole_directory_gets_its_name_and_takes_the_place_of_another(tmp_path: Path) -> None:
    node = member("n1", tmp_path)
    two_shards(tmp_path / "q", fill=1)
    two_shards(tmp_path / "q.partial", fill=2)
    (tmp_path / "q.partial/.sparkops-partial").write_text("copy x")
    models.publish(node, "q")

    assert [path.name for path in tmp_path.iterdir()] == ["q"]
    assert safetensors.read(tmp_path / "q" / FIRST)["layers.1.up.weight"][2][:1] == b"\x02"
    assert not (tmp_path / "q/.sparkops-partial").exists()


def test_a_directory_that_is_not_whole_does_not_get_its_name(tmp_path: Path) -> None:
    node = member("n1", tmp_path)
    cut(two_shards(tmp_path / "q.partial"))

    with pytest.raises(NodeError, match=f"q is incomplete: {SECOND} is truncated"):
        models.publish(node, "q")
    with pytest.raises(NodeError, match=r"r\.partial was removed"):
        models.publish(node, "r")
    assert [path.name for path in tmp_path.iterdir()] == ["q.partial"]


def test_a_replacement_that_was_interrupted_is_finished(tmp_path: Path) -> None:
    node = member("n1", tmp_path)
    two_shards(tmp_path / "q.replaced", fill=1)
    two_shards(tmp_path / "q.partial", fill=2)
    models.publish(node, "q")

    assert [path.name for path in tmp_path.iterdir()] == ["q"]


def test_the_look_takes_one_command(tmp_path: Path) -> None:
    node = RecordingNode("n1", answers={"python3": "nonsense"})

    with pytest.raises(NodeError, match="unexpected description of a model directory"):
        models.look(replace(member("n1", tmp_path), node=node))
    assert len(node.ran) == 1
    assert not node.ran[0].changes


def test_links_upwards_are_not_followed_for_ever(tmp_path: Path) -> None:
    """Three links to the directory itself are 3^40 paths for a walk that follows them until the kernel refuses."""
    directory = two_shards(tmp_path / "q")
    plain = look(tmp_path).files
    (directory / "deep").mkdir()
    for name in ("a", "b", "deep/c"):
        (directory / name).symlink_to(directory)

    assert look(tmp_path).files == plain


@pytest.mark.parametrize("link", ["q", "q.partial"])
def test_a_planted_link_is_removed_without_its_target(tmp_path: Path, link: str) -> None:
    """A user who may write beside a model replaces the old one, or an unfinished one, by a link to another place."""
    theirs = two_shards(tmp_path / "theirs")
    before = sorted(file.name for file in theirs.iterdir())
    (tmp_path / link).symlink_to(theirs)

    runpy.run_path(str(shipped.PACKAGE.parent / "templates/node/partial.py"))["discard"](str(tmp_path / link))

    assert not (tmp_path / link).is_symlink()
    assert sorted(file.name for file in theirs.iterdir()) == before
