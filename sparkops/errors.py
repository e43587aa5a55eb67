"""The whole error tree.

SparkopsError 1 · failed, and what served before still serves
├── ConfigError 2 · a YAML file is wrong: file:line: field: problem
├── UsageError 2 · a command line is wrong
├── Busy 4 · another operator has the lock
├── PlanRefused 5 · the plan would not be safe; nothing was changed
├── NodeError 1 · one node, by name
│   ├── NotReachable 5 · no connection could be made; nothing was changed
│   │   └── HostKeyRefused 5 · unknown or changed host key
│   ├── NotReady 5 · the node lacks something that a preflight looked for
│   ├── ConnectionLost 1 · the connection broke while a command ran
│   ├── NotUnderstood 1 · the guard of an older version does not know a request
│   ├── CommandFailed 1 · a command ended with a code other than 0
│   ├── BuildFailed 1 · an image could not be built
│   ├── ImageRejected 1 · an image was built, and does not match its recipe
│   ├── StartFailed 1 · a container did not become an answering server
│   └── ProbeFailed 1 · a server returned a wrong answer
├── InPlaceFailed 6 · the new release failed in place of the old one, which serves again
├── NeedsOperator 7 · the rollback failed too, and an operator must decide
├── NodesFailed · several nodes failed, each with its own error
└── Interrupted 130 · Ctrl-C
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from sparkops.command import Completed
from sparkops.foreign import one_line
from sparkops.redact import redacted


class SparkopsError(Exception):
    """An expected error. `next_step` is an instruction for the operator. No text shows credentials."""

    exit_code = 1

    def __init__(self, problem: str, *, next_step: str = "") -> None:
        super().__init__(redacted(problem))
        self.next_step = redacted(next_step)

    def steps(self, further: str) -> str:
        """Return its next step and a further one, a line each."""
        return "\n".join(filter(None, (self.next_step, further)))


@contextmanager
def further(step: str) -> Iterator[None]:
    """Add a step to the next steps of an error that leaves the block."""
    try:
        yield
    except SparkopsError as error:
        error.next_step = error.steps(step)
        raise


class ConfigError(SparkopsError):
    """A recipe or inventory is wrong at `line` (1 is the first) of `file`, or a change by an option: `--set KEY`."""

    exit_code = 2

    def __init__(self, file: Path, line: int, field: str, problem: str) -> None:
        option, _, key = str(file).partition(" ")
        place = str(file) if option.startswith("--") else f"{file}:{line}"
        known = not field or (option.startswith("--") and field.endswith(key))
        super().__init__(f"{place}: {problem}" if known else f"{place}: {one_line(field)}: {problem}")

    @classmethod
    def joined(cls, errors: Sequence[ConfigError]) -> ConfigError:
        """Return the first error, with the text of all, a line each."""
        first = errors[0]
        first.args = ("\n".join(dict.fromkeys(map(str, errors))),)
        return first


class UsageError(SparkopsError):
    exit_code = 2


class Busy(SparkopsError):
    exit_code = 4


class PlanRefused(SparkopsError):
    exit_code = 5


class NodeError(SparkopsError):
    def __init__(self, node: str, problem: str, *, next_step: str = "") -> None:
        super().__init__(f"{node}: {problem}", next_step=next_step)
        self.node = node
        self.problem = redacted(problem)


class NotReachable(NodeError):
    exit_code = 5


class HostKeyRefused(NotReachable):
    """The host key is unknown, or is not the one that was pinned."""


class NotReady(NodeError):
    exit_code = 5

    @classmethod
    def without_docker(cls, node: str, words: str) -> NotReady:
        """Return the error of a node whose Docker does not answer, from the output of its docker program."""
        if "not found" in words:
            return cls(node, "Docker is not installed", next_step="Install Docker Engine 24 or newer.")
        if "permission denied" in words:
            step = "Add the user to the group `docker` and log in again."
            return cls(node, "the user has no access to Docker", next_step=step)
        why = (words.splitlines() or ["no output"])[-1]
        return cls(node, f"Docker does not answer: {why}", next_step="Start it: sudo systemctl start docker")


class ConnectionLost(NodeError):
    """The connection broke, or a deadline passed, while a command ran: its outcome is unknown."""

    def __init__(self, node: str, problem: str, *, next_step: str = "") -> None:
        step = "Check `sparkops status`, then retry."
        super().__init__(node, problem, next_step=next_step or step)


class NotUnderstood(NodeError):
    """The guard of an older version does not know a request."""


class CommandFailed(NodeError):
    """A command ended with a code other than 0. `cause` is the likely one, if known."""

    def __init__(self, completed: Completed, *, cause: str = "", next_step: str = "") -> None:
        output = completed.last_lines or "no output"
        problem = f"`{completed.command}` exited with code {completed.exit_code}: {output}"
        problem += f"\n  likely cause: {cause}" if cause else ""
        super().__init__(completed.node, problem, next_step=next_step)
        self.completed = completed


class BuildFailed(NodeError):
    """An image could not be built."""


class ImageRejected(NodeError):
    """An image was built, and does not match its recipe. `verdicts`: the result of each check."""

    def __init__(
        self, node: str, problem: str, *, next_step: str = "", verdicts: Sequence[Mapping[str, object]] = ()
    ) -> None:
        super().__init__(node, problem, next_step=next_step)
        self.verdicts = tuple(verdicts)


class StartFailed(NodeError):
    """A container did not become an answering server."""


class ProbeFailed(NodeError):
    """A server returned a wrong answer."""


class InPlaceFailed(SparkopsError):
    exit_code = 6


class NeedsOperator(SparkopsError):
    exit_code = 7


class NodesFailed(SparkopsError):
    """Several nodes failed. The exit code is theirs where they agree, otherwise 1."""

    def __init__(self, errors: Sequence[SparkopsError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)
        codes = {error.exit_code for error in errors}
        self.exit_code = codes.pop() if len(codes) == 1 else 1
        self.next_step = "\n".join(dict.fromkeys(e.next_step for e in errors if e.next_step))


def joined(errors: Sequence[SparkopsError]) -> SparkopsError:
    """Return the only error, or one that lists several."""
    return errors[0] if len(errors) == 1 else NodesFailed(errors)


class Interrupted(SparkopsError):
    exit_code = 130
