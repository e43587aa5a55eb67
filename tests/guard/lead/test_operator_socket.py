"""The socket of a guard, asked by the program that the operator's machine runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkops import __version__
from sparkops.errors import Busy, PlanRefused
from sparkops.guard.lead.operator_socket import open_socket
from sparkops.swap.journal import SCHEMA

pytestmark = pytest.mark.local


def refuse(question: Mapping[str, Any]) -> object:
    raise Busy(f"{question['service']} is busy", next_step="wait")


def fail(_: Mapping[str, Any]) -> object:
    raise OSError(28, "No space left on device")


@pytest.fixture
def guard_socket(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "guard.sock"
    server = open_socket({"echo": lambda question: question["word"], "refuse": refuse, "fail": fail}, file)
    yield file
    server.shutdown()
    server.server_close()


def ask(guard_socket: Path, *questions: object) -> list[dict[str, Any]]:
    """Ask with the format of this version, unless a question states another one."""
    known = [{"format": SCHEMA, **question} if isinstance(question, dict) else question for question in questions]
    text = "".join(f"{json.dumps(question)}\n" for question in known)
    completed = subprocess.run(
        [sys.executable, "-m", "sparkops.guard.ask"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "SPARKOPS_GUARD_SOCKET": str(guard_socket)},
    )
    return [json.loads(line) for line in completed.stdout.splitlines()]


def test_every_question_gets_its_answer_in_order(guard_socket: Path) -> None:
    questions = [{"op": "echo", "word": str(number)} for number in range(20)]

    assert ask(guard_socket, *questions) == [{"ok": str(number)} for number in range(20)]


def test_what_is_refused_comes_with_its_exit_code_and_next_step(guard_socket: Path) -> None:
    assert ask(guard_socket, {"op": "refuse", "service": "chat"}) == [
        {"error": "chat is busy", "next_step": "wait", "exit_code": Busy.exit_code}
    ]


def test_an_error_of_the_disk_is_an_answer(guard_socket: Path) -> None:
    (reply,) = ask(guard_socket, {"op": "fail"})

    assert "No space left on device" in reply["error"]


@pytest.mark.parametrize("question", [{"op": "unknown"}, {}, [1], {"op": "echo"}])
def test_what_it_does_not_understand_is_an_answer_and_the_next_question_too(
    guard_socket: Path, question: object
) -> None:
    broken, complete = ask(guard_socket, question, {"op": "echo", "word": "still here"})

    assert "does not understand" in broken["error"]
    assert complete == {"ok": "still here"}


@pytest.mark.parametrize(
    ("client", "step"),
    [
        (SCHEMA - 1, f"Update sparkops on this machine to version {__version__} or newer."),
        (
            SCHEMA + 1,
            f"With version {__version__}: sparkops stop SERVICE; sparkops node uninstall NODE. "
            "Then deploy with this one.",
        ),
    ],
)
def test_a_client_of_another_format_is_refused_and_learns_the_version_of_the_guard(
    guard_socket: Path, client: int, step: str
) -> None:
    (reply,) = ask(guard_socket, {"op": "echo", "word": "unread", "format": client})

    assert reply == {
        "error": f"the guard is of sparkops {__version__} and format {SCHEMA}; this client has format {client}",
        "next_step": step,
        "exit_code": PlanRefused.exit_code,
    }


def test_only_its_owner_may_use_it(guard_socket: Path) -> None:
    assert guard_socket.stat().st_mode & 0o777 == 0o600
