"""Text of others on a terminal: it commands nothing there."""

from __future__ import annotations

import os
import pty
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sparkops.errors import NodeError, UsageError
from sparkops.node.progress import Event
from sparkops.operator.cli import terminal
from sparkops.operator.cli.main import main
from sparkops.operator.cli.progress import progress

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


def test_lines_end_between_words_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "23")
    text = "\n  next: Set live-restore to true\nshort"

    with on_a_terminal(monkeypatch, "stdout"):
        assert terminal.folded(text) == "\n  next: Set\n    live-restore to\n    true\nshort"
    assert terminal.folded(text) == text


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


def test_a_message_is_a_line_of_its_own_above_live_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_a_terminal(monkeypatch, "stderr") as got, progress() as report:
        report(Event("n1", "opening the API", lasting=False))
        time.sleep(0.3)  # some frames
        terminal.say("chat: q-2 serves")
        report(Event("n1", "", lasting=False))
        time.sleep(0.3)

    before, _, after = got[0].decode().partition("chat: q-2 serves")
    assert "opening the API" in before
    assert "\x1b[1A\x1b[2K" in before.rpartition("\r\n")[2]  # the frame is erased, the cursor at its place
    assert "opening the API" not in after.rpartition("\x1b[?25h")[2]


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


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond that, as on a disk that fills."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    """A lock that was cut off at the end of a line is a lock, of fewer packages."""
    old, link, missing = (tmp_path / name for name in ("q.lock", "link.lock", "new.lock"))
    old.write_text("old")
    old.chmod(0o600)
    link.symlink_to(old)
    with files_of_at_most(100_000):
        for file in (old, link, missing):
            with pytest.raises(UsageError, match=f"{file} cannot be written: File too large"):
                terminal.write(file, "line\n" * 50_000)

    assert (old.read_text(), sorted(tmp_path.iterdir())) == ("old", [link, old])
    terminal.write(link, "new")
    assert (old.read_text(), old.stat().st_mode & 0o777, link.is_symlink()) == ("new", 0o600, True)


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        terminal.write(tmp_path / "pipe", "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
