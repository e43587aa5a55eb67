"""The verb on a machine that is not suited, and its removal where nothing reads its messages."""

from __future__ import annotations

import sys
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from sparkops.cli import demo
from sparkops.cli.terminal import say
from sparkops.demo.scene import STAND_IN, Ports
from sparkops.errors import NotReady, UsageError
from sparkops.guard_client.commands import PEER_PORT
from sparkops.prune.retention import Stored
from sparkops.prune.uninstall import Installed


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

    def discard(place: Any) -> tuple[()]:
        say("removing")
        removed.append(place.directory)
        return ()

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
