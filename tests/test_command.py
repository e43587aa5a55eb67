"""Commands as values, and the one quoting function."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkops.command import Command, Completed, quote

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


def seen_by_a_shell(line: str) -> list[str]:
    """The arguments that a program gets when a POSIX shell reads `line`."""
    ran = subprocess.run(["sh", "-c", f'set -- {line}; printf "%s\\0" "$@"'], capture_output=True, check=True)
    return ran.stdout.decode().split("\0")[:-1]


@given(st.lists(WORDS, min_size=1, max_size=5))
@example(["", "two\nlines", "it's", '"', "$(id)", "${HOME}", "`id`", "\\", "*", "~", "-n", "#", "ü€😀", "\r\t\x1b"])
def test_a_shell_reads_back_exactly_what_was_quoted(argv: list[str]) -> None:
    assert seen_by_a_shell(quote(*argv)) == argv


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (("docker", "ps", "--all"), "docker ps --all"),
        (("printf", "a b", "it's"), "printf 'a b' 'it'\"'\"'s'"),
        (("echo", "$(id)", ""), "echo '$(id)' ''"),
    ],
)
def test_a_command_prints_the_line_that_runs(argv: tuple[str, ...], line: str) -> None:
    assert str(Command(argv)) == line


def test_a_command_changes_nothing_and_takes_a_minute_unless_it_says_so() -> None:
    assert Command(("ls",)) == Command(("ls",), stdin=b"", timeout_s=60.0, changes=False)


def test_what_goes_to_stdin_is_never_shown() -> None:
    command = Command(("docker", "login", "--password-stdin"), stdin=b"hunter2")

    assert "hunter2" not in f"{command} {command!r}"


@pytest.mark.parametrize(
    ("stdout", "stderr", "last"),
    [
        ("out\n", "err\n", "err"),
        ("out\n", "  \n", "out"),
        ("", "".join(f"{n}\n" for n in range(12)), "2\n3\n4\n5\n6\n7\n8\n9\n10\n11"),
        ("", "", ""),
    ],
)
def test_the_last_lines_are_those_of_stderr_unless_it_is_empty(stdout: str, stderr: str, last: str) -> None:
    assert Completed("n1", Command(("x",)), 1, stdout, stderr).last_lines == last
