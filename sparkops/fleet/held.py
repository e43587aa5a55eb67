"""The lock of a service on every node that takes part, kept while a deploy lives, and its journal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from sparkops.command import Command, Completed
from sparkops.errors import Busy, CommandFailed, Interrupted, SparkopsError
from sparkops.fleet.connected import Connected
from sparkops.fleet.guarded import Link
from sparkops.fleet.parallel import all_or_raise, on_each
from sparkops.fleet.progress import Tell, silent
from sparkops.fleet.waiting import Waiting
from sparkops.nodes.trace import trace
from sparkops.plan.journal import Journal, Swap
from sparkops.plan.lock import RENEW_S

WAIT_POLL_S = 2.0
T = TypeVar("T")


@dataclass(frozen=True)
class Claim:
    """Who wants the lock of what: `deploy` is one run of one verb, `owner` the person and the machine."""

    service: str
    owner: str
    deploy: str
    wait_s: float = 0.0
    loads: frozenset[str] = frozenset()
    """Nodes on which an engine will be loaded: one at a time, or nobody knows what memory is left."""
    renew_s: float = RENEW_S
    run: str = ""
    """Verb and process id, for those who wait."""
    tell: Tell = silent
    """Gets the reports of a wait."""


@dataclass
class Held:
    """A held lock. `journal` is what was last read or written; every change goes through `run`."""

    claim: Claim
    links: Mapping[str, Link]
    cancel: threading.Event = field(default_factory=threading.Event)
    generations: dict[str, int] = field(default_factory=dict)
    ahead_s: dict[str, tuple[float, str]] = field(default_factory=dict)
    journals: dict[str, Journal] = field(default_factory=dict)

    def take(self, node: str) -> None:
        """Take the lock on one node. Raises Busy."""
        claim = self.claim
        words = {"owner": claim.owner, "deploy": claim.deploy, "loads": node in claim.loads, "run": claim.run}
        said = self.links[node].ask("acquire", claim.service, **words)
        self._heard(node, said)
        self.generations[node] = self.journals[node].generation

    def _heard(self, node: str, said: Mapping[str, Any]) -> None:
        """A journal, and how far the node's clock is ahead of ours; it moves on while a laptop sleeps."""
        self.journals[node] = Journal.model_validate(said["journal"])
        self.ahead_s[node] = said["now_s"] - time.monotonic(), said["boot"]

    def run(self, node: str, command: Command) -> Completed:
        """Run a changing command on a node, unless the lock was lost. Raises Busy or CommandFailed."""
        trace(node, command)
        asked = {"argv": command.argv, "stdin": command.stdin.decode(), "timeout_s": command.timeout_s}
        said = self.links[node].ask("run", self.claim.service, generation=self.generations[node], **asked)
        done = Completed(node, command, said["exit_code"], said["stdout"], said["stderr"])
        if done.exit_code:
            raise CommandFailed(done)
        return done

    def put(self, journal: Journal, deadline: float) -> None:
        """Write the journal on every node, or raise. `deadline` is on our clock; each node gets it on its own."""
        all_or_raise(self._put_all(journal, deadline))

    def put_where_possible(self, journal: Journal) -> tuple[SparkopsError, ...]:
        """Write the journal wherever we still can. A node that misses it asks the gateway's guard. Returns why not."""
        return tuple(each for each in self._put_all(journal, 0.0).values() if each is not None)

    def _put_all(self, journal: Journal, deadline: float) -> Mapping[str, SparkopsError | None]:
        return on_each(sorted(self.links), lambda node: self._put(node, journal, deadline), self.cancel)

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
        self._heard(node, said)

    def remember(self, node: str, event: Mapping[str, Any]) -> None:
        """Add to the history on one node."""
        self.links[node].ask("remember", self.claim.service, event=dict(event))

    def give_back(self) -> None:
        """Give the lock back wherever we still have it. Where that fails, the lease ends."""
        for node, generation in self.generations.items():
            with suppress(SparkopsError):
                self.links[node].ask("release", self.claim.service, generation=generation)


@contextmanager
def hold(connected: Connected, nodes: Sequence[str], claim: Claim) -> Iterator[Held]:
    """Hold the lock on `nodes`, taken in sorted order, renewed in the background, given back at the end."""
    ordered = sorted(set(nodes))
    over, end = threading.Event(), time.monotonic() + claim.wait_s
    with ExitStack() as opened:
        links = {name: opened.enter_context(closing(_link(connected, name))) for name in ordered}
        held, waiting = Held(claim, links, connected.cancel), Waiting(connected, claim.tell, claim.service)
        try:
            for name in ordered:
                patiently(partial(held.take, name), Busy, end, held.cancel, partial(waiting.report, links[name]))
                keeping = (partial(_link, connected, name), claim, held.generations[name], over)
                threading.Thread(target=_keep, args=keeping, daemon=True).start()
            yield held
        finally:
            over.set()
            held.give_back()


def _link(connected: Connected, name: str) -> Link:
    if name not in connected.members and connected.fleet.node(name):
        raise connected.unreachable[name]
    return Link(connected.members[name].node)


def patiently(
    act: Callable[[], T],
    refusal: type[Busy],
    end: float,
    cancel: threading.Event,
    tell: Callable[[Busy], None],
) -> T:
    """Try again and again while it is refused so, until `end` on our clock. Raises that refusal, or Interrupted."""
    while True:
        try:
            return act()
        except refusal as busy:
            left = end - time.monotonic()
            if left <= 0:
                raise
            tell(busy)
            if cancel.wait(min(WAIT_POLL_S, left)):
                raise Interrupted("interrupted") from None


def _keep(open_link: Callable[[], Link], claim: Claim, generation: int, over: threading.Event) -> None:
    """Keep the lock on one node. Losing it is not this thread's to tell: the next change is refused, and says so.

    Each node has a thread of its own, because a guard that runs a long command answers late. Its link is opened
    when it is needed first: a rollback is over before.
    """
    link: Link | None = None
    while not over.wait(claim.renew_s):
        with suppress(SparkopsError):
            link = link or open_link()
            link.ask("renew", claim.service, generation=generation)
    if link:
        link.close()
