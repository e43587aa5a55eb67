"""Changing a node through its guard: the lock is held, the journal is kept, and who has lost the lock is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

from sparkops.commands.guard import CONTAINER, SERVE
from sparkops.errors import Busy, ConnectionLost, NodeError, SparkopsError
from sparkops.fleet.connected import Member
from sparkops.nodes.again import until_begun
from sparkops.nodes.node import Node
from sparkops.nodes.output import KEEP
from sparkops.plan.journal import Journal

ANSWER_S = 900.0  # beside what a command itself may take: others may have to end theirs first

MOST = 16 * KEEP
"""Characters of an answer: it may hold both outputs of a command, KEEP each, and JSON writes some characters as six."""


@dataclass
class Link:
    """A stream of questions to the guard of one node."""

    node: Node
    lines: IO[str] = field(init=False)
    mutex: threading.Lock = field(default_factory=threading.Lock)
    in_vain: bool = False

    def __post_init__(self) -> None:
        self._open()

    def _open(self) -> None:
        try:
            self.stream = self.node.pipe(SERVE)
        except OSError as error:
            raise ConnectionLost(self.node.name, f"the guard cannot be reached: {error}") from error
        self.lines = self.stream.makefile("r")

    def ask(self, op: str, service: str, **words: Any) -> Any:
        """One question. Raises Busy, NodeError, or ConnectionLost when the stream ended."""
        question = json.dumps({"op": op, "service": service, **words}) + "\n"
        with self.mutex:
            line = until_begun(lambda: self._exchange(op, question, ANSWER_S + words.get("timeout_s", 0.0)))
        if not line.endswith("\n"):
            step = f"docker logs {CONTAINER}, on {self.node.name}; a deploy replaces a guard of another version."
            raise ConnectionLost(self.node.name, f"the guard ended before it answered `{op}`", next_step=step)
        answer = json.loads(line)
        if "error" in answer:
            raise _refused(self.node.name, answer)
        return answer["ok"]

    def _exchange(self, op: str, question: str, timeout_s: float) -> str:
        """The line that answers. Where Docker has answered in the guard's place, the next try is on a new stream."""
        if self.in_vain:
            self._open()
        try:
            self.stream.settimeout(timeout_s)
            with suppress(OSError):  # where it has ended, its last words may still be read
                self.stream.sendall(question.encode())
            line = self.lines.readline(MOST + 1)
        except OSError as error:
            raise ConnectionLost(self.node.name, f"the guard did not answer `{op}`: {error}") from error
        if len(line) > MOST:
            self.in_vain = True
            self.close()
            problem = f"the guard answered `{op}` with more than {MOST} characters; stopped"
            raise NodeError(self.node.name, problem, next_step=f"docker logs {CONTAINER}, on {self.node.name}")
        self.in_vain = bool(line) and not line.startswith("{")
        if self.in_vain:
            self.close()
            raise ConnectionLost(self.node.name, f"the guard could not be asked `{op}`: {line.strip()}")
        return line

    def journal(self, service: str) -> Journal:
        """What the guard has written down of a service. Raises what `ask` raises."""
        return Journal.model_validate(self.ask("read", service)["journal"])

    def close(self) -> None:
        """End the stream. Its reader ends with it: closed by hand, paramiko's complains when it is collected."""
        with suppress(OSError):  # it may be gone already
            self.stream.close()


@contextmanager
def linked(member: Member) -> Iterator[Link | None]:
    """A link to a node's guard; None where no deploy has needed one yet."""
    if member.engine.container(CONTAINER) is None:
        yield None
        return
    with closing(Link(member.node)) as link:
        yield link


def _refused(node: str, answer: dict[str, Any]) -> SparkopsError:
    """What the guard foresaw, with its own exit code."""
    if answer["exit_code"] == Busy.exit_code:
        return Busy(f"{node}: {answer['error']}", next_step=answer["next_step"])
    error = NodeError(node, answer["error"], next_step=answer["next_step"])
    error.exit_code = answer["exit_code"]
    return error
