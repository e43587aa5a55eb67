"""What the fetching of a model says, and what a person reads."""

from __future__ import annotations

import json

import pytest

from sparkops.node.progress import ByteCount
from sparkops.operator.build.hub import pull
from sparkops.operator.build.hub.pull import Failure, Fetched


def failure(kind: str, *, anonymous: bool = False, text: str = "HubError: words\nand more") -> Failure:
    message = pull.parse(json.dumps({"error": kind, "text": text}), anonymous=anonymous)
    assert isinstance(message, Failure)
    return message


def test_progress_and_the_end() -> None:
    assert pull.parse('{"bytes": 5, "total": 9}', anonymous=True) == ByteCount(5, 9)
    assert pull.parse('{"done": {"commit": "abc", "bytes": 9}}', anonymous=True) == Fetched()


@pytest.mark.parametrize("line", ["", "a warning", "5", '{"other": 1}', '{"done": 5}'])
def test_what_the_library_prints_beside_is_passed(line: str) -> None:
    assert pull.parse(line, anonymous=False) is None


def test_a_416_without_a_token_is_explained() -> None:
    message = failure("range", anonymous=True)

    assert message.problem.startswith(
        "the hub answered 416, Range Not Satisfiable: its storage limits requests without"
    )
    assert "--token-file" in message.next_step
    assert "--token-file" not in failure("range").next_step


def test_without_internet_the_next_step_is_another_node_or_a_copy() -> None:
    message = failure("unreachable")

    assert message.problem == "the hub cannot be reached from this node (HubError: words)"
    assert "sparkops models copy" in message.next_step


@pytest.mark.parametrize("kind", pull.FAILURES)
def test_every_failure_has_a_next_step(kind: str) -> None:
    assert failure(kind).next_step


def test_a_kind_that_is_not_known_is_still_told() -> None:
    assert failure("surprise", text="Odd: words").problem == "the download failed (Odd: words)"
