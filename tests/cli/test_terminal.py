"""Text of others on a terminal: it commands nothing there."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sparkops.cli import terminal
from sparkops.cli.main import main
from sparkops.cli.progress import progress
from sparkops.errors import NodeError
from sparkops.nodes.progress import Event

EVIL = "a\x1b]0;title\x07b\x1b[2J\rc\x9bd\u202ee\x00\x7f\ud800"
SHOWN = r"a\x1b]0;title\x07b\x1b[2J\rc\x9bd\u202ee\x00\x7f\ud800"


def read(master: int) -> bytes:
    """All that is in the buffer, which comes in pieces."""
    data = b""
    with suppress(BlockingIOError):
        while piece := os.read(master, 65536):
            data += piece
    return data


@contextmanager
def on_a_terminal(monkeypatch: pytest.MonkeyPatch, *names: str) -> Iterator[list[bytes]]:
    """Let these streams of `sys` be a real terminal. What it got is in the list at the end."""
    master, slave = pty.openpty()
    got: list[bytes] = []
    with monkeypatch.context() as patch, os.fdopen(slave, "w", encoding="utf-8") as stream:
        for name in names:
            patch.setattr(sys, name, stream)
        yield got
        stream.flush()
        os.set_blocking(master, False)
        got.append(read(master))
    os.close(master)


def test_lines_are_cut_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    lines = ["0123456789", "0123456789a"]

    with on_a_terminal(monkeypatch, "stdout"):
        assert terminal.fitted(lines) == ["0123456789", "0123456..."]
    assert terminal.fitted(lines) == lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (EVIL, SHOWN),
        ("two\nlines\tand a tab, \u00fc, \u65e5\u672c, \U0001f469\u200d\U0001f680", None),
        ("\x1b[1;36m(EngineCore pid=1)\x1b[0;0m INFO", "(EngineCore pid=1) INFO"),
        ("https://u:s\x1bx@h", "https://***@h"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str | None) -> None:
    assert terminal.visible(text) == (text if shown is None else shown)


def test_a_message_is_escaped_wherever_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say(EVIL)
    with progress() as report:
        report(Event("n1", EVIL))

    first, second = capsys.readouterr().err.splitlines()
    assert first == SHOWN
    assert second.endswith(f"n1: {SHOWN}")


def test_own_colors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    with on_a_terminal(monkeypatch, "stderr") as got:
        terminal.say(EVIL, fg="red")

    assert got[0].startswith(b"\x1b[31m")
    assert got[0].decode().endswith(f"{SHOWN}\x1b[0m\r\n")


def test_data_is_escaped_on_a_terminal_and_whole_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.data("a\x07b\x9bc\u202ed")
    assert capsys.readouterr().out == "a\x07b\x9bc\u202ed\n"

    with on_a_terminal(monkeypatch, "stdout") as got:
        terminal.data(EVIL)
    assert got[0].decode() == f"{SHOWN}\r\n"


def test_live_progress_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_a_terminal(monkeypatch, "stderr") as got, progress() as report:
        report(Event("n1", EVIL, lasting=True))

    assert b"title" in got[0]
    assert not [
        sequence
        for sequence in (b"\x1b]0;", b"\x1b[2J", b"\x07", "\x9b".encode(), "\u202e".encode())
        if sequence in got[0]
    ]


def test_an_error_that_quotes_a_node_is_escaped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.yaml").write_text('model: a/b\nruntime: "\\e[2Jx"\ncommand: vllm serve a/b\n')
    monkeypatch.setattr(sys, "argv", ["sparkops", "import", str(tmp_path / "a.yaml")])
    with pytest.raises(SystemExit):
        main()
    terminal.say(str(NodeError("n1", EVIL, next_step=EVIL)))

    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert r"\x1b[2J" in err


def test_a_foreign_recipe_is_escaped_on_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text('model: a/b\n"\\u202ekey": 1\ncommand: vllm serve a/b\n')
    monkeypatch.setattr(sys, "argv", ["sparkops", "import", str(tmp_path / "a.yaml")])
    with on_a_terminal(monkeypatch, "stdout", "stderr") as got, pytest.raises(SystemExit):
        main()

    assert r"\u202ekey: not imported" in got[0].decode()
    assert "\u202e" not in got[0].decode()
