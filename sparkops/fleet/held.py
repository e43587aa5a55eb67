"""The lock of a service on every node that takes part, kept while a deploy lives, and its journal."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sparkops.command import Command, Completed
from sparkops.errors import Busy, CommandFailed, ConnectionLost, SparkopsError
from sparkops.fleet.connected import Connected
from sparkops.fleet.guarded import Link
from sparkops.plan.journal import RENEW_S, Journal, Swap

WAIT_POLL_S = 2.0


@dataclass(frozen=True)
class Claim:
    """Who wants the lock of what: `deploy` is one run of one verb, `owner` the person and the machine."""

    service: str
    owner: str
    deploy: str
    wait_s: float = 0.0


@dataclass
class Held:
    """A held lock. `journal` is what was last read or written; every change goes through `run`."""

    claim: Claim
    links: Mapping[str, Link]
    generations: dict[str, int] = field(default_factory=dict)
    ahead_s: dict[str, tuple[float, str]] = field(default_factory=dict)
    journals: dict[str, Journal] = field(default_factory=dict)

    def take(self, node: str) -> None:
        """Take the lock on one node. Raises Busy."""
        said = self.links[node].ask("acquire", self.claim.service, owner=self.claim.owner, deploy=self.claim.deploy)
        journal = Journal.model_validate(said["journal"])
        self.generations[node], self.journals[node] = journal.generation, journal
        self.ahead_s[node] = said["now_s"] - time.monotonic(), said["boot"]

    def run(self, node: str, command: Command) -> Completed:
        """Run a changing command on a node, unless the lock was lost. Raises Busy or CommandFailed."""
        asked = {"argv": command.argv, "stdin": command.stdin.decode(), "timeout_s": command.timeout_s}
        said = self.links[node].ask("run", self.claim.service, generation=self.generations[node], **asked)
        done = Completed(node, command, said["exit_code"], said["stdout"], said["stderr"])
        if done.exit_code:
            raise CommandFailed(done)
        return done

    def put(self, journal: Journal, deadline: float) -> None:
        """Write the journal on every node. `deadline` is on this machine's clock; each node gets it on its own."""
        threads = [
            threading.Thread(target=self._put, args=(node, journal, deadline)) for node in sorted(self.links)[1:]
        ]
        for thread in threads:
            thread.start()
        self._put(sorted(self.links)[0], journal, deadline)
        for thread in threads:
            thread.join()

    def _put(self, node: str, journal: Journal, deadline: float) -> None:
        ahead_s, boot = self.ahead_s[node]
        changes: dict[str, Any] = {}
        if journal.swap:
            clock = {"deadline_s": deadline + ahead_s, "boot": boot}
            changes["swap"] = Swap.model_validate({**journal.swap.model_dump(), **clock})
        if journal.retirement:
            due = {"due_s": deadline + ahead_s, "boot": boot}
            changes["retirement"] = journal.retirement.model_copy(update=due)
        mine = journal.model_copy(update=changes)
        said = self.links[node].ask(
            "put", self.claim.service, generation=self.generations[node], journal=mine.model_dump(mode="json")
        )
        self.journals[node] = Journal.model_validate(said["journal"])

    def remember(self, node: str, event: Mapping[str, Any]) -> None:
        """Add to the history on one node."""
        self.links[node].ask("remember", self.claim.service, event=dict(event))

    def renew(self) -> None:
        """Keep the lock on every node."""
        for node, generation in self.generations.items():
            self.links[node].ask("renew", self.claim.service, generation=generation)

    def give_back(self) -> None:
        """Give the lock back wherever we still have it."""
        for node, generation in self.generations.items():
            with suppress(Busy, ConnectionLost):
                self.links[node].ask("release", self.claim.service, generation=generation)


@contextmanager
def hold(connected: Connected, nodes: Sequence[str], claim: Claim) -> Iterator[Held]:
    """Hold the lock on `nodes`, taken in sorted order, renewed in the background, given back at the end."""
    ordered = sorted(set(nodes))
    links = {name: Link(connected.members[name].node) for name in ordered}
    renewing = {name: Link(connected.members[name].node) for name in ordered}
    held = Held(claim, links)
    over = threading.Event()
    try:
        for name in ordered:
            _take(held, name, claim.wait_s, connected.cancel)
        keeper = Held(claim, renewing, held.generations)
        threading.Thread(target=_keep, args=(keeper, over), daemon=True).start()
        yield held
    finally:
        over.set()
        held.give_back()
        for link in (*links.values(), *renewing.values()):
            with suppress(OSError):
                link.close()


def _take(held: Held, name: str, wait_s: float, cancel: threading.Event) -> None:
    end = time.monotonic() + wait_s
    while True:
        try:
            held.take(name)
        except Busy:
            if time.monotonic() >= end or cancel.wait(WAIT_POLL_S):
                raise
        else:
            return


def _keep(keeper: Held, over: threading.Event) -> None:
    """Losing the lock is not this thread's to tell: the next change is refused, and says so."""
    while not over.wait(RENEW_S):
        with suppress(SparkopsError):
            keeper.renew()
