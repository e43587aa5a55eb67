"""Exit codes and messages of the error tree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkops import errors
from sparkops.command import Command, Completed
from sparkops.errors import (
    CommandFailed,
    ConfigError,
    HostKeyRefused,
    NodesFailed,
    NotReachable,
    NotReady,
    PlanRefused,
    SparkopsError,
)

CLASSES = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, SparkopsError)]
DRAWN = dict(re.findall(r"(\w+) (\d*) ?·", errors.__doc__ or ""))


def test_the_tree_in_the_docstring_names_every_error_with_its_exit_code() -> None:
    codes = {error_class.__name__: str(error_class.exit_code) for error_class in CLASSES}

    assert {**codes, "NodesFailed": ""} == DRAWN


def test_a_config_error_says_file_line_field_and_problem() -> None:
    assert str(ConfigError(Path("r.yaml"), 3, "serve.port", "expected a number")) == (
        "r.yaml:3: serve.port: expected a number"
    )
    assert str(ConfigError(Path("r.yaml"), 1, "", "the file is empty")) == "r.yaml:1: the file is empty"


@pytest.mark.parametrize(("stderr", "shown"), [("no such image\n", "no such image"), ("", "no output")])
def test_a_failed_command_shows_its_line_its_code_and_what_it_said(stderr: str, shown: str) -> None:
    error = CommandFailed(Completed("n1", Command(("docker", "start", "a b")), 125, "", stderr))

    assert str(error) == f"n1: `docker start 'a b'` exited with code 125: {shown}"
    assert (error.node, error.exit_code) == ("n1", 1)


def test_a_failed_command_shows_its_likely_cause_last() -> None:
    error = CommandFailed(Completed("n1", Command(("x",)), 1, "", "why"), cause="a cause", next_step="do it")

    assert (str(error), error.next_step) == ("n1: `x` exited with code 1: why\n  likely cause: a cause", "do it")


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        (NotReady("n1", "a"), PlanRefused("b"), 5),
        (NotReachable("n1", "a"), HostKeyRefused("n2", "b"), 5),
        (NotReady("n1", "a"), SparkopsError("b"), 1),
    ],
)
def test_several_errors_have_the_exit_code_on_which_they_agree(
    first: SparkopsError, second: SparkopsError, code: int
) -> None:
    assert NodesFailed([first, second]).exit_code == code


def test_several_errors_list_every_problem_and_each_next_step_once() -> None:
    problems = [NotReady(name, "no image", next_step="sparkops build q") for name in ("n1", "n2")]

    failed = NodesFailed([*problems, PlanRefused("n3: no memory", next_step="Stop something.")])

    assert str(failed) == "n1: no image\nn2: no image\nn3: no memory"
    assert failed.next_step == "sparkops build q\nStop something."
