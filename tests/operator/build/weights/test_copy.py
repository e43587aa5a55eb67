"""A checkpoint from node to node, and what verify says of it."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.errors import Interrupted, NodeError, NotReady, SparkopsError
from sparkops.node.progress import Event, silent
from sparkops.operator.build.weights import models
from sparkops.operator.build.weights.models import CopiedWeights
from sparkops.operator.build.weights.plan import RequiredModel
from sparkops.operator.fleet.connected import Connected
from tests import safetensors
from tests.examples import recipe
from tests.operator.build.weights.places import connected, member, processes_about
from tests.safetensors import tensor, two_shards

WANTED = RequiredModel("q", "org/q")
FIRST = "model-1-of-2.safetensors"
COMMIT = "c" * 40


@pytest.fixture
def fleet(tmp_path: Path) -> Connected:
    """Three nodes; the first one has the model."""
    nodes = connected(*(member(name, tmp_path / name) for name in ("n1", "n2", "n3")))
    two_shards(tmp_path / "n1/q")
    return nodes


def copy(fleet: Connected, model: RequiredModel = WANTED, **options: bool) -> dict[str, CopiedWeights]:
    return models.copy(fleet, model, "n1", silent, **options)


def only(fleet: Connected, *names: str) -> Connected:
    return replace(fleet, members={name: fleet.members[name] for name in names})


def contents(directory: Path) -> dict[str, bytes]:
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}


def mark(directory: Path, **marker: Any) -> None:
    sizes = {file.name: file.stat().st_size for file in directory.iterdir()}
    (directory / ".sparkops.json").write_text(json.dumps({"model": "org/q", "files": sizes, **marker}))


def test_all_targets_get_the_same_and_the_second_time_nothing(fleet: Connected, tmp_path: Path) -> None:
    size = sum(map(len, contents(tmp_path / "n1/q").values()))

    assert copy(fleet) == {"n2": CopiedWeights(size, size), "n3": CopiedWeights(size, size)}
    assert contents(tmp_path / "n1") == contents(tmp_path / "n2") == contents(tmp_path / "n3")
    assert copy(fleet) == {"n2": CopiedWeights(0, size), "n3": CopiedWeights(0, size)}
    assert copy(fleet, checksum=True) == {"n2": CopiedWeights(0, size), "n3": CopiedWeights(0, size)}


def test_a_wrong_file_is_replaced_and_what_the_target_added_stays(fleet: Connected, tmp_path: Path) -> None:
    copy(only(fleet, "n1", "n2"))
    target = tmp_path / "n2/q"
    (target / "tokenizer.json").write_text("{}")
    (target / "chat.jinja").write_text("mine")
    events: list[Event] = []
    copied = models.copy(only(fleet, "n1", "n2"), WANTED, "n1", events.append)

    assert copied["n2"].sent == len((tmp_path / "n1/q/tokenizer.json").read_bytes())
    assert contents(target) == {**contents(tmp_path / "n1/q"), "chat.jinja": b"mine"}
    assert "q: replacing files that differ: tokenizer.json" in [event.text for event in events]
    assert [path.name for path in (tmp_path / "n2").iterdir()] == ["q"]


def test_a_file_with_the_right_size_and_wrong_bytes_is_found_by_its_checksum(fleet: Connected, tmp_path: Path) -> None:
    copy(only(fleet, "n1", "n2"))
    shard = tmp_path / "n2/q" / FIRST
    served = shard.open("rb")
    wrong = shard.read_bytes()[:-1] + b"?"
    shard.write_bytes(wrong)

    assert copy(only(fleet, "n1", "n2"))["n2"].sent == 0
    assert copy(only(fleet, "n1", "n2"), checksum=True)["n2"].sent == len(wrong)
    assert contents(tmp_path / "n2/q") == contents(tmp_path / "n1/q")
    with served:
        assert served.read() == wrong  # an engine that reads it keeps the file that it has opened


def test_a_fine_tune_of_the_same_size_does_not_get_the_record_of_another(fleet: Connected, tmp_path: Path) -> None:
    shutil.copytree(tmp_path / "n1/q", tmp_path / "n3/q")
    two_shards(tmp_path / "n2/q", fill=9)
    mark(tmp_path / "n1/q", commit=COMMIT)
    record = (tmp_path / "n1/q/.sparkops.json").stat().st_size
    events: list[Event] = []
    copied = models.copy(fleet, WANTED, "n1", events.append)

    assert contents(tmp_path / "n2") == contents(tmp_path / "n1") == contents(tmp_path / "n3")
    assert copied["n2"].sent > copied["n3"].sent == record
    assert "q has no record of the same model: comparing the files by sha256" in [event.text for event in events]
    events.clear()
    models.copy(fleet, WANTED, "n1", events.append)
    assert [event.text for event in events] == ["q is up to date"] * 2


def test_a_source_that_is_not_whole_is_not_copied(fleet: Connected, tmp_path: Path) -> None:
    os.truncate(tmp_path / "n1/q" / FIRST, 100)

    with pytest.raises(
        NotReady, match=rf"n1: q cannot be copied from this node: {FIRST}: safetensors header truncated"
    ):
        copy(fleet)
    shutil.rmtree(tmp_path / "n1/q")
    with pytest.raises(NotReady, match="n1: q cannot be copied from this node: not found"):
        copy(fleet)
    assert not any((tmp_path / "n2").iterdir())


def test_another_revision_that_is_whole_is_not_replaced_without_being_asked(fleet: Connected, tmp_path: Path) -> None:
    two_shards(tmp_path / "n2/q", fill=9)
    mark(tmp_path / "n1/q", commit=COMMIT)
    mark(tmp_path / "n2/q", commit="d" * 40)
    before, model = contents(tmp_path / "n2"), replace(WANTED, revision=COMMIT)

    with pytest.raises(NotReady, match=f"n2: q has another model: it is revision {'d' * 40}") as caught:
        copy(only(fleet, "n1", "n2"), model)
    assert "--replace" in caught.value.next_step
    assert contents(tmp_path / "n2") == before

    copy(only(fleet, "n1", "n2"), model, replace_other=True)
    assert contents(tmp_path / "n2") == contents(tmp_path / "n1")


def test_one_node_that_fails_does_not_stop_the_other(fleet: Connected, tmp_path: Path) -> None:
    (tmp_path / "n3").rmdir()

    with pytest.raises(NotReady, match="n3 does not exist"):
        copy(fleet)
    assert contents(tmp_path / "n2") == contents(tmp_path / "n1")


def test_an_interrupted_copy_goes_on_where_it_was_and_leaves_nothing(fleet: Connected, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "n1/q")
    shards = {f"m-{number}.safetensors": {f"t{number}": tensor("F32", [1024, 16 * 1024])} for number in range(4)}
    safetensors.checkpoint(tmp_path / "n1/q", shards)
    pair, partial = only(fleet, "n1", "n2"), tmp_path / "n2/q.partial"

    def interrupt() -> None:
        while not (partial / "m-1.safetensors").exists():
            time.sleep(0.001)
        fleet.cancel.set()

    watching = threading.Thread(target=interrupt, daemon=True)
    watching.start()
    with pytest.raises(SparkopsError) as caught:
        models.copy(pair, WANTED, "n1", silent)
    assert isinstance(caught.value, Interrupted)
    assert [path.name for path in (tmp_path / "n2").iterdir()] == ["q.partial"]
    assert list(processes_about(str(tmp_path))) == []
    watching.join()

    fleet.cancel.clear()
    (partial / "m-3.safetensors").unlink(missing_ok=True)  # on a quick machine all has come before the end is noticed
    copied = copy(pair)["n2"]
    assert 0 < copied.sent <= copied.size - (tmp_path / "n1/q/m-0.safetensors").stat().st_size
    assert contents(tmp_path / "n2/q") == contents(tmp_path / "n1/q")


RECIPE = recipe()


def test_verify_names_what_is_wrong_on_each_node_that_has_it(fleet: Connected, tmp_path: Path) -> None:
    copy(fleet)
    os.truncate(tmp_path / "n2/q" / FIRST, 100)
    shutil.rmtree(tmp_path / "n3/q")

    assert models.verify(fleet, RECIPE, everywhere=False) == {
        "n1": "",
        "n2": f"{FIRST}: safetensors header truncated",
    }
    assert models.verify(fleet, RECIPE, everywhere=True)["n3"] == "not found"


def test_verify_finds_nodes_that_disagree(fleet: Connected, tmp_path: Path) -> None:
    copy(only(fleet, "n1", "n2"))
    (tmp_path / "n2/q/tokenizer.json").write_text("{}")
    problems = models.verify(only(fleet, "n1", "n2"), RECIPE, everywhere=True)

    assert set(problems) == {"n1", "n2"}
    assert set(problems.values()) == {"tokenizer.json differs between nodes: 8 bytes on n1, 2 bytes on n2"}


def test_a_full_disk_is_refused_before_anything_is_sent(fleet: Connected, tmp_path: Path) -> None:
    sparse = tmp_path / "n1/q/extra.bin"
    with sparse.open("wb") as file:
        file.truncate(10**13)

    with pytest.raises(NodeError, match=r"n2: [0-9.]+ GiB free, 9313\.2 GiB needed"):
        copy(only(fleet, "n1", "n2"))
    assert not any((tmp_path / "n2").iterdir())
