"""The engines of this node: their containers as Docker shows them; how they are created, started and stopped."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from sparkops.command import Command, Completed
from sparkops.config.recipe import Recipe
from sparkops.engines.ray import TOKEN
from sparkops.errors import CommandFailed, ConnectionLost, NodeError, NotReady, SparkopsError
from sparkops.guard.follow import gpu_use, nccl_log
from sparkops.guard.follow.filter import close_ports
from sparkops.node.docker import commands, facts
from sparkops.node.docker.facts import Container
from sparkops.node.docker.places import CONTAINER
from sparkops.node.docker_api import Engine
from sparkops.node.local import LocalNode
from sparkops.node.streams import run_in_thread
from sparkops.redact import redacted
from sparkops.serving import engine_spec
from sparkops.serving.comparison import answers
from sparkops.serving.engine_spec import EngineSpec
from sparkops.serving.startup import causes
from sparkops.serving.startup.explain import explain, of_docker
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, RankSpec

LOG_LINES, LOG_BYTES, LOG_CHARACTERS = 20_000, 8 * 2**20, 2**20
"""The end of a log that is read, and kept: a node that lacks memory must not read 20,000 long lines. The container has
the whole."""
ENDED = ("exited", "dead")
SECRET_S = 3600.0
"""A secret is saved before the intent that needs it is in a journal: a younger one is kept in any case."""
INSPECT_S, HUNG_S = 3.0, 600.0
"""Longest wait for the inspect of one container, in the read of all and in a thread of its own. It takes milliseconds,
but as long as the container starts, for example waits for a driver (github.com/moby/moby/issues/18848)."""
ON_CPU = (
    "check `gpu` of the node in the inventory and `nvidia-smi` there; a recipe that wants the CPU says so "
    "(image.backend: cpu, or n-gpu-layers of llama.cpp)"
)
RECENT_S = 60.0
"""A stop that ended a container is asked for within seconds, where this guard runs all the time."""
FRESH_S = 15.0
"""Older than that, the state of the containers is unknown. A read takes tens of ms, on a busy node seconds."""


def reason(error: Exception) -> str:
    """Return the text of an error for a report, which names the node itself, with its next step."""
    text = error.problem if isinstance(error, NodeError) else str(error)
    step = error.next_step if isinstance(error, SparkopsError) else ""
    return f"{text}\nnext: {step}" if step else text


def _lines(log: str) -> Iterator[str]:
    return (line for _, line in facts.log_lines(log))


def secrets(journal: Journal) -> frozenset[str]:
    """Return the names of the secrets that the releases of a journal may have."""
    previous = (journal.previous, journal.swap.previous if journal.swap else None)
    deployments = (*journal.deployments, *(deployment for deployment in previous if deployment))
    tokens = (name for deployment in deployments for name in engine_spec.deployed_tokens(deployment))
    return frozenset((*tokens, *([answers.file_name(journal.swap.intent)] if journal.swap else ())))


@dataclass
class ContainerReader:
    """The containers of sparkops on one node as last read. `began_s` is the time of the read in monotonic seconds."""

    node: LocalNode
    log: Callable[[str], None]
    connect: Callable[[LocalNode], Engine] = Engine
    inspect_s: float = INSPECT_S
    containers: Mapping[str, Container] = field(default_factory=dict)
    unread: Mapping[str, Container] = field(default_factory=dict)
    """Those that Docker lists and does not inspect, with labels and state as listed."""
    began_s: float = -math.inf
    trouble: str = ""
    _stream: Engine | None = field(default=None, init=False)
    _hung: set[str] = field(default_factory=set, init=False)
    """IDs of the containers whose inspect a thread waits for: each further request would leave a program waiting."""

    def read(self) -> bool:
        """Read the containers; False while Docker cannot be read, which is logged once. One thread may call this."""
        began_s, trouble = time.monotonic(), ""
        try:
            stream = self._stream = self._stream or self.connect(self.node)
            self._read_each(stream, stream.listed())
            self.began_s = began_s
        except SparkopsError as error:
            self.close()
            trouble = reason(error)
        except (OSError, ValueError, KeyError) as error:
            trouble = reason(error)
        if trouble and trouble != self.trouble:
            self.log(trouble)
        self.trouble = trouble
        return not trouble

    def _read_each(self, stream: Engine, listed: Iterable[Mapping[str, Any]]) -> None:
        """Inspect every container on its own: one that cannot be inspected hides no other.

        One that runs as it did before stays as it was read.
        """
        containers, unread = dict[str, Container](), dict[str, Container]()
        for item in listed:
            known = facts.parse_listed(self.node.name, item)
            try:
                inspect = self._inspect(stream, item["Id"])
            except (SparkopsError, OSError, ValueError) as error:
                before = self.containers.get(known.name)
                if before and before.running and known.running and _same(before, known):
                    containers[known.name] = before
                    continue
                unread[known.name] = known
                if known.name not in self.unread:
                    self.log(f"{known.name} is {known.state} and cannot be inspected: {reason(error)}")
                continue
            if inspect is not None:  # None: removed since it was listed
                containers[known.name] = facts.parse_container(self.node.name, inspect)
        self.containers, self.unread = containers, unread

    def _inspect(self, stream: Engine, container: str) -> Mapping[str, Any] | None:
        """Return the inspect of a container; None if it is gone. Raises SparkopsError, at once while one hangs."""
        if container in self._hung:
            raise NotReady(self.node.name, "its inspect hangs")
        try:
            return stream.container(container, self.inspect_s)
        except ConnectionLost:
            self._hung.add(container)
            try:
                run_in_thread(self._wait, container)
            except OSError:  # else nothing would end this state
                self._hung.discard(container)
            raise

    def _wait(self, container: str) -> None:
        """Wait until a container can be inspected, so that the next read asks again."""
        try:
            with closing(self.connect(self.node)) as engine:
                engine.container(container, HUNG_S)
        except (SparkopsError, OSError, ValueError) as error:
            self.log(f"{container:.12}: {reason(error)}")
        finally:
            self._hung.discard(container)

    def require_recent(self) -> None:
        """Raise NotReady while the containers are unknown."""
        age_s = time.monotonic() - self.began_s
        if age_s > FRESH_S:
            since = f"for {age_s:.0f} s" if age_s < math.inf else "since this guard started"
            problem = f"containers unknown: Docker was not read {since}: {self.trouble or 'the first read is due'}"
            raise NotReady(self.node.name, problem, next_step="Check `sparkops doctor`.")

    def close(self) -> None:
        """Close the stream to Docker; the next read opens another one."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def _same(before: Container, listed: Container) -> bool:
    """Return whether a listed container is the one that was read before, and not another one of its name."""
    return before.created_at is not None and int(before.created_at) == listed.created_at


@dataclass(frozen=True)
class Engines:
    """The engines of one node. `secret` reads a secret of a service by its name; None: the node has none.

    `paths` returns the paths of the node that they may get; None: any.
    """

    node: LocalNode
    secret: Callable[[str, str], bytes | None]
    log: Callable[[str], None]
    paths: Callable[[], frozenset[str] | None] = lambda: None

    def container(self, name: str) -> Container | None:
        """Return one container as it is now; None if it does not exist. Raises NotReady, ConnectionLost."""
        with closing(Engine(self.node)) as engine:
            inspect = engine.container(name)
        return None if inspect is None else facts.parse_container(self.node.name, inspect)

    def evidence(self, name: str) -> dict[str, str]:
        """Return log and inspect of a container by file name; nothing if it is gone. Raises NodeError."""
        with closing(Engine(self.node)) as engine:
            inspect = engine.container(name)
            if inspect is None:
                return {}
            log = engine.log_end(name, LOG_LINES, LOG_BYTES)[-LOG_CHARACTERS:]
        return {"log.txt": redacted(log), "inspect.json": redacted(json.dumps(inspect, indent=2))}

    def network_problem(self, container: Container, *, ray: bool) -> str:
        """Return how a rank falls short of the RoCE that it was promised; empty if it does not. Raises NodeError.

        NCCL falls back to sockets without an error, and such a replica serves, slowly.
        """
        with closing(Engine(self.node)) as engine:
            inspect = engine.container(container.name)
            if inspect is None or not nccl_log.promised(inspect["Config"]["Env"] or ()):
                return ""
            printed = nccl_log.printed(container.rank, container.ranks, ray=ray)
            problem = nccl_log.problem(_lines(engine.log(container.name, since=container.started_at)), printed)
        step = "next: compare what `sparkops plan` derives for this node with `ibv_devinfo` and `show_gids` there"
        return f"{container.name}: {problem}\n{step}" if problem else ""

    def gpu_problem(self, container: Container, recipe: Recipe) -> str:
        """Return that a rank computes on the CPU though its recipe is for a GPU, and why; empty if it does not.

        What cannot be read is no problem: an image may have no shell. Raises NodeError.
        """
        if not gpu_use.wanted(recipe):
            return ""
        with closing(Engine(self.node)) as engine:
            log = engine.log(container.name, since=container.started_at, tail=LOG_LINES)
        lines = [*_lines(log)]
        problem = gpu_use.left_out(lines)
        if not problem:
            try:
                listed = self.node.run(commands.inside(container.name, gpu_use.FILES)).stdout
            except CommandFailed as failed:
                self.log(f"{container.name}: unknown whether it uses the GPU: {reason(failed)}")
                return ""
            problem = "no process of it uses the GPU: it computes on the CPU" * (gpu_use.used(listed) is Answer.NO)
        if not problem:
            return ""
        known = explain(lines, causes.of(recipe.engine), stalled=True).advice
        told = [f"  likely cause: {known.cause}", f"next: {known.step}"] if known else [f"next: {ON_CPU}"]
        return "\n".join([f"{container.name}: {problem}", *told])

    def create(self, rank: RankSpec) -> None:
        """Create the container of a rank, in place of a stopped one. Raises SparkopsError, ValueError."""
        spec = engine_spec.of(rank)
        token, command = self._token(spec, rank), spec.create(rank.node, self.paths())
        self._remove(rank.container)
        if token is None:
            self._run(command)
        else:
            self._create_with(token, command, rank.container)

    def _token(self, spec: EngineSpec, rank: RankSpec) -> bytes | None:
        """Return the token of its Ray cluster; None if it joins none. Raises NotReady without that of its deploy."""
        if not spec.ray:
            return None
        release = spec.rank(rank.node).release
        name = engine_spec.token_name(release.id, spec.slot, spec.token)
        token = self.secret(release.service, name)
        if token is None:
            raise NotReady(self.node.name, "no Ray token on this node: deploy again")
        return token

    def _create_with(self, token: bytes, command: Command, container: str) -> None:
        """Name the container once its token is in it: without, it must not be taken for a created one after a crash."""
        unfinished = f"{container}.new"
        self._remove(unfinished)
        self._run(commands.named(command, unfinished))
        try:
            self._run(commands.put(unfinished, TOKEN, token))
        except SparkopsError:
            self._run(commands.remove(unfinished))
            raise
        self._run(commands.rename(unfinished, container))

    def _engine(self, name: str) -> Container | None:
        """Return the container of a rank; None if it does not exist. Raises NodeError for a container that is none."""
        container = self.container(name)
        if container is not None and not container.service:
            raise NodeError(self.node.name, f"{name} belongs to no service of sparkops: not changed")
        return container

    def _remove(self, container: str) -> None:
        """Remove a stopped container if it exists."""
        if self._engine(container) is not None:
            self._run(commands.remove(container))

    def start(self, container: str) -> None:
        """Close the ports of this node to others, then start a container. Raises SparkopsError, OSError, ValueError."""
        close_ports(self.node, self._engine(container))
        try:
            self._run(commands.start(container))
        except ConnectionLost:
            if not self._runs(container):
                raise

    def stop(self, name: str, *, loading: bool = False) -> None:
        """Stop a container with its grace period, by SIGKILL if need be. Raises NodeError if it still runs.

        `loading`: its engine is known not to have answered yet.
        """
        container = self._engine(name)
        if container is None or not container.running:
            return
        grace_s = engine_spec.grace_s(container.rank, container.ranks, container.grace_s, loading=loading)
        for command in (commands.stop(name, grace_s), commands.kill(name)):
            try:
                self._run(command)
            except (CommandFailed, ConnectionLost) as error:
                self.log(reason(error))  # inspect decides
            if not self._runs(name):
                return
        raise NodeError(self.node.name, f"{name} still runs after docker stop and docker kill")

    def stopped_by_hand(self, container: Container) -> bool:
        """Return whether Docker was asked to end a container that has ended since. Raises NodeError.

        Docker keeps its last 256 events: with more of them in the seconds since, a stop counts as a crash.
        After a crash, a new dockerd ends the containers that still run, this guard's among them: a container that ended
        before this guard started was not stopped by an operator.
        """
        guard, now_s = self.container(CONTAINER), time.time()
        starts = [container.started_at, *([guard.started_at] if guard else [])]
        if max(starts) > now_s:  # the clock was set back since: Docker refuses to list what comes after now
            starts = [now_s - RECENT_S, *(start_s for start_s in starts if start_s <= now_s)]
        listed = self.node.run(commands.stops(container.name, max(starts), now_s))
        return commands.ends_by_hand(listed.stdout)

    def _runs(self, name: str) -> bool:
        container = self.container(name)
        return container is not None and container.running

    def _run(self, command: Command) -> Completed:
        """Run a command. Raises CommandFailed with the likely cause of an error of Docker."""
        try:
            return self.node.run(command)
        except CommandFailed as error:
            cause, step = of_docker(error.completed.last_lines) or ("", "")
            raise CommandFailed(error.completed, cause=cause, next_step=step) from error
