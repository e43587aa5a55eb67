"""Leases of guards, held while this process works: shared work on a node, and changes of gateway and guards.

The cordon of a node outlasts the process: its guard keeps it until an operator ends it.
"""

from __future__ import annotations

import getpass
import os
import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial

from sparkops.errors import NotReady, NotUnderstood, SparkopsError
from sparkops.node.agents.commands import CONTAINER
from sparkops.node.cordon import Cordon
from sparkops.node.member import Member
from sparkops.node.progress import Event, OnEvent
from sparkops.node.waiting import until_free
from sparkops.operator.fleet.guards.leader import GuardConnection, connect_guard
from sparkops.swap.intents import MOST_SENDER

NODE, AGENTS, DEPLOY = "node", "agents", "deploy"
RENEW_S = 15.0
"""Seconds between two renewals; a guard ends a lease after 60 s without one."""
END_S = 5.0


def on_node(
    member: Member, work: str, report: OnEvent, wait_s: float = 0.0, *, renew_s: float = RENEW_S
) -> AbstractContextManager[None]:
    """Block engine loads on a node during `work`, such as `build of image X`. Without a guard there is no lease.

    Raises Busy if an engine loads there, after retries for `wait_s`.
    """
    return _lease(member, NODE, work, report, wait_s, renew_s)


def of_agents(leader: Member, work: str, report: OnEvent, wait_s: float = 0.0) -> AbstractContextManager[None]:
    """Make the leader refuse every intent during `work`. Without a guard there is no leader and no lease.

    Raises Busy while a service changes or another client changes the agents, after retries for `wait_s`.
    """
    return _lease(leader, AGENTS, work, report, wait_s, RENEW_S)


@contextmanager
def of_deploy(leader: Member, service: str, work: str, report: OnEvent, wait_s: float = 0.0) -> Iterator[None]:
    """Make the leader refuse other deploys of a service before they check anything; it refuses no intent.

    There is no lease without a guard, or of an older one, which the deploy replaces. Raises Busy during another
    deploy's `work`, after retries for `wait_s`.
    """
    with ExitStack() as leased:
        try:
            leased.enter_context(_lease(leader, DEPLOY, work, report, wait_s, RENEW_S, service))
        except NotUnderstood:
            report(Event(leader.name, "an older guard: another deploy is refused only once this one is accepted"))
        yield


@contextmanager
def _lease(
    member: Member, kind: str, work: str, report: OnEvent, wait_s: float, renew_s: float, service: str = ""
) -> Iterator[None]:
    if not guarded(member):
        yield
        return
    holder = f"{work} by {operator()}"
    with connect_guard(member) as opened:
        until_free(lambda: opened.lease(kind, holder, service), wait_s, member.name, report, member.node.cancel)
        with _renewed(opened, partial(opened.lease, kind, holder, service), report, renew_s):
            yield


def cordon_of(member: Member) -> Cordon:
    """Return the cordon of a node; an open one without a guard that runs.

    Raises NodeError, NeedsOperator or WireError where the guard does not reply it.
    """
    if not guarded(member):
        return Cordon()
    with connect_guard(member) as opened:
        return opened.cordon()


def require_cordon(member: Member) -> Cordon:
    """Return the cordon of a node. Raises NotReady where no guard keeps one, and errors of nodes."""
    if not guarded(member):
        step = "docker start sparkops-guard, on the node; before its first deploy a node needs no cordon"
        raise NotReady(member.name, "no guard runs on it, which keeps the cordon", next_step=step)
    return cordon_of(member)


def guarded(member: Member) -> bool:
    container = member.engine.container(CONTAINER)
    return container is not None and bool(container["State"]["Running"])


def operator() -> str:
    """Return user and host of this process, as `ann@laptop`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in some containers
        user = str(os.getuid())
    shown = "".join(letter for letter in f"{user}@{platform.node()}" if letter.isprintable())
    return shown[:MOST_SENDER]


@contextmanager
def _renewed(opened: GuardConnection, take: Callable[[], None], report: OnEvent, renew_s: float) -> Iterator[None]:
    """Repeat the request in a thread. A restarted guard grants the lease anew."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(renew_s):
            try:
                take()
            except SparkopsError as error:
                if not over.is_set():
                    report(Event(opened.node.name, f"lease not renewed: {error}"))

    thread = threading.Thread(target=renew, name=f"lease {opened.node.name}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(END_S)
