"""Nodes that were given up: only lost ones, and the leader among them is named."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from sparkops.config import inventory
from sparkops.errors import PlanRefused, SparkopsError, UsageError
from sparkops.node.member import Member
from sparkops.operator.build.weights import models
from sparkops.operator.deploy.prune import uninstalling
from sparkops.operator.deploy.prune.stored import Stored
from sparkops.operator.deploy.prune.uninstall import Extent, Installed
from sparkops.operator.deploy.prune.uninstalling import Target, prepare_uninstall, require_lost
from sparkops.operator.fleet.connected import Connected
from tests.operator.build.weights import places
from tests.safetensors import two_shards

INVENTORY = "nodes:\n  n1: {address: 10.0.0.1}\n  n2: {address: 10.0.0.2}\ngateway: {node: n2}\n"


def member(name: str, *, guarded: bool) -> Member:
    facts = {"State": {"Running": True}} if guarded else None
    return Member(name, Mock(), Mock(), Mock(container=Mock(return_value=facts)))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    return tmp_path / "inventory.yaml"


def connected(file: Path, guarded: Collection[str], lost: Collection[str] = ()) -> Connected:
    names = {"n1", "n2"} - {*lost}
    errors = {name: SparkopsError(f"{name}: no route", next_step="Start it.") for name in lost}
    return Connected(
        inventory.load(file), {name: member(name, guarded=name in guarded) for name in names}, dict(errors)
    )


def test_a_node_whose_guard_answers_is_not_lost(file: Path) -> None:
    with pytest.raises(UsageError, match="--without n2: its guard answers") as refused:
        prepare_uninstall(Target(connected(file, {"n1", "n2"}), "n1", Extent(), frozenset({"n2"})))

    assert refused.value.next_step == "Drop --without for this node."


def test_a_node_without_a_guard_and_an_unreachable_one_may_be_given_up(file: Path) -> None:
    require_lost(connected(file, {"n1"}), {"n2"})
    lost = connected(file, {"n1"}, {"n2"})
    require_lost(lost, {"n2"})

    assert Target(lost, "n1", Extent(), frozenset({"n2"})).leader is None


def test_the_error_of_a_lost_leader_names_the_option(file: Path) -> None:
    with pytest.raises(PlanRefused, match="n2: no route; its guard leads n1") as refused:
        prepare_uninstall(Target(connected(file, {"n1"}, {"n2"}), "n1", Extent()))

    assert refused.value.next_step == "Start it.\nIf n2 is lost: sparkops node uninstall n1 --without n2"


@pytest.fixture
def sharing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connected:
    """n1 and n2 with one file system behind a link, n3 with a copy, n4 that is lost; nothing else of sparkops."""
    two_shards(tmp_path / "n1/q")
    (tmp_path / "n1/q/.sparkops.json").write_text('{"model": "org/q"}')
    (tmp_path / "n2").symlink_to("n1")
    shutil.copytree(tmp_path / "n1", tmp_path / "n3")

    def read(member: Member) -> Installed:
        directory = str(tmp_path / member.name)
        return Installed(
            Stored(member.name), model_dir=directory, checkpoints=tuple(models.look(member).checkpoints.values())
        )

    monkeypatch.setattr(uninstalling, "read", read)
    engine = Mock(container=Mock(return_value=None))
    members = [replace(places.member(name, tmp_path / name), engine=engine) for name in ("n1", "n2", "n3")]
    return replace(places.connected(*members), unreachable={"n4": SparkopsError("n4: no route")})


@pytest.mark.local
def test_model_files_that_another_node_has_on_a_shared_file_system_stay(sharing: Connected, tmp_path: Path) -> None:
    planned = prepare_uninstall(Target(sharing, "n1", Extent(weights=True)))

    assert planned.removals == ()
    assert "n2 has it too, on a shared file system" in str(planned)
    assert "n4 does not answer: if it shares the model files, it loses them" in str(planned)
    assert "n3" not in str(planned)
    assert "shared" not in str(prepare_uninstall(Target(sharing, "n1", Extent())))
    [files] = prepare_uninstall(Target(sharing, "n3", Extent(weights=True))).removals
    assert files.argv[-1] == str(tmp_path / "n3/q")


@pytest.mark.local
def test_the_last_node_of_a_shared_file_system_takes_the_model_files_along(sharing: Connected, tmp_path: Path) -> None:
    alone = replace(sharing.only(["n2", "n3"]), unreachable={})

    [files] = prepare_uninstall(Target(alone, "n2", Extent(weights=True))).removals
    assert files.argv[-1] == str(tmp_path / "n2/q")
