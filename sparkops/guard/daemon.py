"""The guard's process: a follower of its leader on this node, and on the gateway's node the leader itself.

Each part runs in a thread of its own: memory relief never waits, and a leader that fails stops no follower.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from sparkops.errors import CommandFailed, ConnectionLost, SparkopsError
from sparkops.guard.disk.state import Membership, Peer, State
from sparkops.guard.environment import log
from sparkops.guard.follow.filter import Filter
from sparkops.guard.follow.follower import Follower
from sparkops.guard.follow.free_memory import read_total_gib
from sparkops.guard.follow.listener import serve
from sparkops.guard.lead.leadership import Leadership
from sparkops.guard.lead.membership import RebuildRequests
from sparkops.guard.lead.operator_requests import OperatorRequests
from sparkops.guard.lead.operator_socket import open_socket
from sparkops.guard.lead.peers import GuardLink, PeerLink
from sparkops.guard.messages import GuardReply, Message, derive
from sparkops.guard.report.figures import Figures
from sparkops.guard.report.monitoring import FiguresServer
from sparkops.guard.report.node_report import Sampler, serve_reports
from sparkops.guard.report.webhook import Webhooks
from sparkops.guard.watch.condition_watch import CONDITIONS_S, ConditionWatch
from sparkops.guard.watch.engine_watch import WATCH_S, EngineWatcher
from sparkops.guard.watch.memory_floor import MemoryFloor
from sparkops.guard.watch.minutes import MINUTES_S, MinuteWatch
from sparkops.node.agents.commands import DOCKER, PEER_PORT
from sparkops.node.local import LocalNode
from sparkops.swap.fleet_state import Report
from sparkops.swap.orders import Order

POLL_S, RELIEF_S, SAMPLE_S, LOOK_S = 0.5, 1.0, 2.0, 15.0
LISTEN_S = 2.0  # from the start of the guard until it serves figures, and between two attempts
CALM_S = 1.5  # between two reads of the containers while nothing changes: the end of an engine is seen within 2 s
DOCKER_MISSES = 2  # looks at which Docker gave no answer, before the container starts anew with the present socket


def link(leader: str) -> Callable[[str, Peer, Membership], GuardLink]:
    """Return the function that links a leader to another guard, with messages signed by that node's key."""

    def to(node: str, peer: Peer, membership: Membership) -> GuardLink:
        return PeerLink(node, peer.address, peer.port, derive(membership.key, node), leader)

    return to


@dataclass
class Daemon:
    """All parts of one guard."""

    state: State
    node: LocalNode
    port: int = PEER_PORT
    log: Callable[[str], None] = log
    over: threading.Event = field(default_factory=threading.Event)
    message_s: float | None = None
    """When the leader's last message came, in monotonic seconds."""
    follower: Follower = field(init=False)
    leadership: Leadership = field(init=False)
    sampler: Sampler = field(init=False)
    floor: MemoryFloor = field(init=False)
    watcher: EngineWatcher = field(init=False)
    minutes: MinuteWatch = field(init=False)

    def __post_init__(self) -> None:
        self.follower = Follower(self.state, self.node, self.log)
        self.leadership = Leadership(self.state, self.node, self.follower, link(self.node.name), self.log)
        requests = OperatorRequests(self.leadership).verbs()
        requests |= {"findings": lambda _: self.watcher.findings(), "minutes": lambda _: self.minutes.report()}
        self.sampler = Sampler(self.node, requests)
        self.minutes = MinuteWatch(self.sampler.samples, lambda: self.leadership.gateway.facts)
        notes, promoted = self.follower.jobs.notes, self.follower.promoted
        tell = self.follower.note_watch
        self.floor = MemoryFloor(self.follower, self.node, self.log, total_gib=read_total_gib())
        newest, short = self.sampler.newest, self.floor.short
        self.watcher = EngineWatcher(self.node, notes, promoted, newest, self.log, tell, self.over, short)

    def run(self) -> None:
        """Run while Docker answers. Docker then restarts the container, which mounts the present socket.

        Raises OSError where the port for other guards is taken.
        """
        self.log(f"guarding {self.node.name}")
        with ExitStack() as opened:
            webhooks = Webhooks(self.state, self.node.name, self.log)
            opened.callback(webhooks.close)
            webhooks.start()
            opened.enter_context(self._threads())
            opened.enter_context(serve("", self.port, self.node.name, self._keys, self.answer, self._known))
            self.leadership.start()
            opened.callback(self.leadership.close)
            rebuild = RebuildRequests(self.state, self.node.name, lambda: self.message_s)
            figures = Figures(self.leadership, self.sampler, lambda: self.message_s, self.watcher.open)
            monitoring = FiguresServer(self.state, figures.text, self.log)
            opened.callback(monitoring.close)
            verbs = {**self.leadership.verbs(), **self.sampler.verbs, **rebuild.verbs()}
            opened.callback(open_socket(webhooks.carried(monitoring.carried(verbs))).shutdown)
            self._report(opened)
            self._start("monitoring", monitoring.look, LISTEN_S)
            self._start("conditions", ConditionWatch(self.leadership, lambda: self.message_s).look, CONDITIONS_S)
            self._start("watch", self.watcher.look, WATCH_S)
            self._start("minutes", self.minutes.look, MINUTES_S)
            self._watch_docker()
        self.log("Docker stopped answering")

    def _report(self, opened: ExitStack) -> None:
        """Report this node to `sparkops status`, which else reads it over SSH. A failure ends no guard."""
        self._start("samples", self.sampler.look, SAMPLE_S)
        try:
            opened.callback(serve_reports(self.sampler.report).shutdown)
        except OSError as error:
            self.log(f"no reports to `sparkops status`: {error}")

    def _start(self, name: str, act: Callable[[], None], pause_s: float) -> None:
        threading.Thread(target=self._repeat, args=(act, pause_s), name=name, daemon=True).start()

    @contextmanager
    def _threads(self) -> Iterator[None]:
        threading.Thread(target=self._poll, name="poll", daemon=True).start()
        self._start("relief", self.floor.look, RELIEF_S)
        try:
            yield
        finally:
            self.over.set()
            self.follower.close()

    def _poll(self) -> None:
        while not self.over.is_set():
            self._attempt(self._poll_once)
            self.follower.wait(CALM_S if self.follower.calm else POLL_S)

    def _poll_once(self) -> None:
        self.follower.leases.superseded = self.leadership.awaited()
        self.follower.poll()

    def _repeat(self, act: Callable[[], None], pause_s: float) -> None:
        while not self.over.wait(pause_s):
            self._attempt(act)

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (SparkopsError, OSError, ValueError) as error:
            self.log(f"{threading.current_thread().name}: {error}")
        except Exception:  # noqa: BLE001 - a bug must not end the thread: memory relief would end unnoticed
            self.log(f"{threading.current_thread().name}: {traceback.format_exc()}")

    def _watch_docker(self) -> None:
        misses, ports = 0, Filter(self.node, self.log)
        while misses < DOCKER_MISSES and not self.over.is_set():
            ports.look()
            misses = 0 if self._docker_answers() else misses + 1
            self.over.wait(LOOK_S)

    def _docker_answers(self) -> bool:
        if self.follower.reads(LOOK_S):
            return True
        try:
            self.node.run(DOCKER)
        except (CommandFailed, ConnectionLost):
            return False
        return True

    def _keys(self) -> dict[str, bytes]:
        """Return the keys of messages by leader, former ones too; none before the node belongs to a fleet."""
        membership = self.state.membership()
        if membership is None:
            return {}
        followed = {} if membership.leader == self.node.name else {membership.leader: membership.key}
        return {**membership.former, **followed}

    def _known(self) -> tuple[str, ...]:
        """Return the addresses of the leader's node; none where they are unknown."""
        try:
            membership = self.state.membership()
        except (SparkopsError, OSError) as error:
            self.log(f"addresses of the leader unknown: {error}")
            return ()
        return membership.gateway if membership else ()

    def answer(self, message: Message) -> GuardReply:
        """Follow the leader's orders, and report; to a former leader report only: it sees the newer term.

        A service whose record cannot be read has no report.
        """
        membership = self.state.membership()
        leads = membership is not None and membership.leader == message.sender
        if leads:
            self.message_s = time.monotonic()
        reports: dict[str, Report] = {}
        progress: dict[str, Mapping[str, str]] = {}
        for service, order in message.orders.items():
            if report := self._report_on(service, self.leadership.followed(service, order) if leads else None):
                reports[service] = report
                progress[service] = self.follower.progress(service)
        return GuardReply(reports, progress)

    def _report_on(self, service: str, order: Order | None) -> Report | None:
        try:
            return self.follower.handle(service, order)
        except (SparkopsError, OSError) as error:
            self.log(f"{service}: {error}")
            return None
