"""The verb on a machine that is not suited, and its removal where nothing reads its messages."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sparkops.errors import NotReady, PlanRefused, UsageError
from sparkops.node.agents.commands import PEER_PORT
from sparkops.operator.cli import demo
from sparkops.operator.cli.terminal import say
from sparkops.operator.demo import record
from sparkops.operator.demo.machine import REMOVE, MachineFacts
from sparkops.operator.demo.record import DemoRecord
from sparkops.operator.demo.scene import NODE, STAND_IN, Ports
from sparkops.operator.demo.screen import opening
from sparkops.operator.deploy.prune.stored import Stored
from sparkops.operator.deploy.prune.uninstall import Installed, Uninstall
from tests.node.recording import RecordingNode


class Broken(StringIO):
    """A pipe without a reader."""

    encoding = "utf-8"

    def write(self, _: str) -> int:
        raise BrokenPipeError


def test_another_system_is_refused_before_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(demo, "_member", Mock(side_effect=AssertionError))

    with pytest.raises(NotReady, match="needs Linux, got darwin"):
        demo.demo(Mock(), yes=True)


@pytest.mark.parametrize("port", [PEER_PORT - 3, PEER_PORT])
def test_the_ports_must_not_include_that_of_the_guard(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_member", Mock(side_effect=AssertionError))

    with pytest.raises(UsageError, match=f"include {PEER_PORT}"):
        demo.demo(Mock(), port=port, yes=True)


def test_a_demonstration_is_removed_although_nothing_reads_stderr(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    removed: list[Path] = []

    def discard(place: Any, _: Any) -> None:
        say("removing")
        removed.append(place.directory)

    def perform(*_: Any) -> Any:
        monkeypatch.setattr(sys, "stderr", Broken())
        say("loading")

    monkeypatch.setattr(demo, "_member", Mock(return_value=Mock(__enter__=Mock(), __exit__=Mock(return_value=False))))
    monkeypatch.setattr(demo, "read", Mock(return_value=Installed(Stored("demo"))))
    monkeypatch.setattr(demo, "_discard", discard)
    monkeypatch.setattr(demo, "_perform", perform)
    context = Mock()
    context.obj.inventory = tmp_path / "none.yaml"

    with pytest.raises(BrokenPipeError):
        demo._run(context, demo.Place(tmp_path / "demo"), STAND_IN, Ports(), keep=False)

    assert removed == [tmp_path / "demo"]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], RecordingNode]:
    """This machine without containers, and with the given record of a demonstration in `tmp_path / "demo"`."""

    def prepare(printed: str) -> RecordingNode:
        node = RecordingNode(NODE, {str(record.READ): printed})
        member = Mock(node=node)
        member.engine.container.return_value = None
        opened = Mock(__enter__=Mock(return_value=member), __exit__=Mock(return_value=False))
        monkeypatch.setattr(demo, "_member", Mock(return_value=opened))
        return node

    monkeypatch.setattr(demo, "_directory", lambda: tmp_path / "demo")
    monkeypatch.setattr(demo, "_facts", Mock(return_value=MachineFacts("linux", present={"sparkops-guard"})))
    monkeypatch.setattr(demo, "LocalNode", Mock(return_value=RecordingNode(NODE)))
    monkeypatch.setattr(demo, "read", Mock(return_value=Installed(Stored(NODE))))
    monkeypatch.setattr(demo, "plan_discard", Mock(return_value=Uninstall(NODE)))
    monkeypatch.setattr(demo, "discard", Mock())
    return prepare


def recorded(directory: Path) -> str:
    """What Docker prints of the record of this user's demonstration."""
    kept = DemoRecord(str(directory), os.getuid(), created=(str(directory),)).keep()
    return kept.argv[3].partition("sparkops.demo=")[2]


@pytest.mark.parametrize("deleted", ["nothing", "its directory", "its record"])
def test_a_demonstration_is_removed_although_a_part_of_it_was_deleted(
    machine: Callable[[str], RecordingNode], tmp_path: Path, deleted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "demo"
    node = machine("" if deleted == "its record" else recorded(directory))
    if deleted != "its directory":
        (directory / "models").mkdir(parents=True)

    demo.demo(Mock(), remove=True, yes=True, json=True)

    assert json.loads(capsys.readouterr().out) == {"removed": True}
    assert not directory.exists()
    assert node.ran[-1] == record.FORGET, "the record is removed last, so that an interrupted removal can be repeated"


def test_without_record_and_directory_nothing_is_removed(
    machine: Callable[[str], RecordingNode], capsys: pytest.CaptureFixture[str]
) -> None:
    node = machine("")

    demo.demo(Mock(), remove=True, yes=True)

    assert "nothing to do" in capsys.readouterr().err
    assert record.FORGET not in node.ran


@pytest.mark.parametrize("option", [{"port": 9000}, {"vllm": True}, {"keep": True}])
def test_a_removal_refuses_options_of_a_demonstration(option: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_member", Mock(side_effect=AssertionError))

    with pytest.raises(UsageError, match="--remove: not with --port, --vllm or --keep") as refused:
        demo.demo(Mock(), remove=True, **option)

    assert refused.value.next_step == REMOVE


def test_a_second_demonstration_is_refused_although_the_directory_of_the_first_was_deleted(
    machine: Callable[[str], RecordingNode], tmp_path: Path
) -> None:
    machine(recorded(tmp_path / "demo"))

    with pytest.raises(PlanRefused, match="an earlier demonstration is still on this machine") as raised:
        demo.demo(Mock(), yes=True)

    assert raised.value.next_step == REMOVE


def test_podman_is_refused_before_its_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    podman = RecordingNode(NODE, {"docker --version": "podman version 5.4.2\n"})
    monkeypatch.setattr(demo, "LocalNode", Mock(return_value=podman))
    monkeypatch.setattr(demo, "_member", Mock(side_effect=AssertionError))

    with pytest.raises(NotReady, match="Podman"):
        demo.demo(Mock(), yes=True)


def test_every_act_of_root_is_named_before_consent(tmp_path: Path) -> None:
    shown = "\n".join(opening(demo._opening(demo.Place(tmp_path), STAND_IN, Ports(), keep=False)))

    assert {word for word in ("Docker's socket", "NET_ADMIN", "host's", "/run/sparkops") if word not in shown} == set()


def test_a_machine_without_docker_gets_the_next_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(NotReady, match="`docker` cannot be started on this machine: No such file") as raised:
        demo.demo(Mock(), yes=True)

    assert raised.value.next_step == "Install Docker Engine."


@pytest.mark.local
@pytest.mark.parametrize(
    ("words", "step"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "Add the user to the group `docker`"),
        ("Cannot connect to the Docker daemon. Is the docker daemon running?", "sudo systemctl start docker"),
    ],
)
def test_a_docker_that_does_not_let_the_user_in_gets_the_next_step(
    words: str, step: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "docker"
    program.write_text(f'#!/bin/sh\n[ "$1" = --version ] || {{ echo "{words}" >&2; exit 1; }}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    with pytest.raises(NotReady) as raised:
        demo.demo(Mock(), yes=True)

    assert step in raised.value.next_step
