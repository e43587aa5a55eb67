"""The guard's ear: a deploy asks through one stream, a line of JSON for each question and each answer.

Nothing of a deploy changes a node but through here, so that who has lost the lock can change nothing. Each stream is a
process of its own (`python -m sparkops.guard.serve`) that a swap waits for: so it imports little.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from typing import IO, Any

from sparkops.command import Command
from sparkops.errors import Busy, CommandFailed, SparkopsError
from sparkops.guard import here
from sparkops.guard.store import Store
from sparkops.nodes.node import Node
from sparkops.plan.journal import Journal
from sparkops.plan.lock import acquire, freeze, loading, put, release, renew, shown

Question = dict[str, Any]
Answer = dict[str, Any]


class Ear:
    """Answers the questions of one deploy."""

    def __init__(self, store: Store, node: Node) -> None:
        self.store, self.node = store, node
        self.verbs: dict[str, Callable[[Question], object]] = {
            "read": lambda asked: self._said(shown(store.read(asked["service"]), store.clock())),
            "services": lambda _: store.services(),
            "history": lambda asked: list(store.history(asked["service"])),
            "acquire": self._acquire,
            "renew": self._renew,
            "release": self._release,
            "put": self._put,
            "hold": self._hold,
            "remember": lambda asked: store.remember(asked["service"], asked["event"]),
            "starts": lambda asked: list(store.starts(asked["service"])),
            "started": lambda asked: store.learn(asked["service"], asked["started"]),
            "keep": lambda asked: str(store.keep(asked["service"], asked["release"], asked["files"])),
            "run": self._run,
        }

    def listen(self, questions: Iterable[str], answers: IO[str]) -> None:
        """Answer until the stream ends."""
        for line in questions:
            answers.write(json.dumps(self.answer(line)) + "\n")
            answers.flush()

    def answer(self, line: str) -> Answer:
        """One answer. An error is an answer, too: whoever asked must not take us for dead."""
        try:
            asked = json.loads(line)
            return {"ok": self.verbs[asked["op"]](asked)}
        except SparkopsError as error:
            return {"error": str(error), "next_step": error.next_step, "exit_code": error.exit_code}
        except OSError as error:
            return {"error": f"the guard could not do it: {error}", "next_step": "", "exit_code": 1}
        except (KeyError, TypeError, ValueError) as error:
            step = "It may be of another version; a deploy replaces it."
            return {"error": f"the guard does not understand {line[:60]!r}: {error}", "next_step": step, "exit_code": 1}

    def _said(self, journal: Journal) -> Answer:
        clock = self.store.clock()
        return {"journal": journal.model_dump(mode="json"), "now_s": clock.now_s, "boot": clock.boot}

    def _acquire(self, asked: Question) -> Answer:
        service, owner, deploy = asked["service"], asked["owner"], asked["deploy"]
        loads: bool = asked["loads"]
        run: str = asked.get("run", "")

        def take() -> Journal:
            return self.store.change(service, lambda j, c: acquire(j, owner, deploy, c, loads=loads, run=run))

        if not loads:
            return self._said(take())
        with self.store.alone():
            self._refuse_second_load(service)
            return self._said(take())

    def _refuse_second_load(self, service: str) -> None:
        """One engine at a time: until one has loaded, nobody knows what memory it leaves."""
        others = (name for name in self.store.services() if name != service)
        for journal in self.store.readable(others):
            if loading(journal, self.store.clock(), self.node.name):
                whose = f" for {journal.holder.owner}" if journal.holder else ""
                problem = f"{journal.service} loads on {self.node.name} just now{whose}; its memory is not known yet"
                raise Busy(problem, next_step="`--wait SECONDS` waits for it; sparkops status shows it.")

    def _renew(self, asked: Question) -> None:
        self.store.change(asked["service"], lambda j, c: renew(j, asked["generation"], c))

    def _release(self, asked: Question) -> None:
        self.store.change(asked["service"], lambda j, _: release(j, asked["generation"]))

    def _put(self, asked: Question) -> Answer:
        new = Journal.model_validate(asked["journal"])
        return self._said(self.store.change(asked["service"], lambda j, _: put(j, new, asked["generation"])))

    def _hold(self, asked: Question) -> None:
        self.store.change(asked["service"], lambda j, c: freeze(j, asked["reason"], c))

    def _run(self, asked: Question) -> Answer:
        """Run a command for the holder of the lock. A command that fails is an answer: the asker decides."""
        command = Command(tuple(asked["argv"]), stdin=asked["stdin"].encode(), timeout_s=asked["timeout_s"])
        try:
            done = self.store.guarded(asked["service"], asked["generation"], lambda: self.node.run(command))
        except CommandFailed as failed:
            done = failed.completed
        return {"exit_code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}


def main() -> None:
    """Answer the one who has started this process."""
    Ear(here.store(), here.node()).listen(sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
