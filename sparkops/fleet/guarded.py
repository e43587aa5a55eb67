"""Changing a node through its guard: the lock is held, the journal is kept, and who has lost the lock is refused."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import IO, Any

from sparkops.commands.guard import SERVE
from sparkops.errors import Busy, ConnectionLost, NodeError
from sparkops.nodes.node import Node

BUSY = 4


@dataclass
class Link:
    """A stream of questions to the guard of one node."""

    node: Node
    lines: IO[str] = field(init=False)
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        try:
            self.stream = self.node.pipe(SERVE)
        except OSError as error:
            raise ConnectionLost(self.node.name, f"the guard cannot be reached: {error}") from error
        self.stream.settimeout(900.0)
        self.lines = self.stream.makefile("r")

    def ask(self, op: str, service: str, **words: Any) -> Any:
        """One question. Raises Busy, NodeError, or ConnectionLost when the stream ended."""
        question = json.dumps({"op": op, "service": service, **words}) + "\n"
        try:
            with self.mutex:
                self.stream.sendall(question.encode())
                line = self.lines.readline()
        except OSError as error:
            raise ConnectionLost(self.node.name, f"the guard did not answer `{op}`: {error}") from error
        if not line:
            raise ConnectionLost(self.node.name, f"the guard ended before it answered `{op}`")
        answer = json.loads(line)
        if "error" in answer:
            kind = Busy if answer["exit_code"] == BUSY else _Refused
            raise kind(f"{self.node.name}: {answer['error']}", next_step=answer["next_step"])
        return answer["ok"]

    def close(self) -> None:
        """End the stream. Its reader ends with it: closed by hand, paramiko's complains when it is collected."""
        self.stream.close()


class _Refused(NodeError):
    """The guard says no."""

    def __init__(self, problem: str, *, next_step: str = "") -> None:
        node, _, said = problem.partition(": ")
        super().__init__(node, said, next_step=next_step)
