"""A service behind the gateway of the real fleet, and what is true of it, read past sparkops itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml

from sparkops.gateway import facts as gateway_facts
from sparkops.gateway.facts import ServiceFacts
from sparkops.node.docker import facts as docker_facts
from sparkops.node.docker.facts import Container
from sparkops.operator.demo.traffic.generator import Traffic
from sparkops.serving import engine_spec
from sparkops.swap import wire
from sparkops.swap.intents import Intent
from sparkops.swap.journal import SCHEMA, Journal
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.shell import FleetError
from tests.real.program import Cli, Ran

SERVICES = "/var/lib/docker/volumes/sparkops-state/_data/v2/services"
RELAY = "docker exec --interactive sparkops-guard python3 -m sparkops.guard.ask"
GATEWAY = "node-1"
PATIENCE_S = 300.0
"""Far more than anything takes: a slow machine is no failure."""
QUICK = {
    "env.STAND_IN_START_S": "1",
    "env.STAND_IN_TOK_S": "200",
    "env.STAND_IN_TTFT_S": "0.005",
    "swap.bake_s": "2",
    "swap.keep_old_s": "0",
    "swap.reserve_gib": "1",
    "swap.drain_s": "120",
    "probe.passes": "1",
    "probe.smoke.text.enabled": "false",
}


@dataclass(frozen=True)
class Service:
    """A recipe behind the gateway on node-1. Each other knob makes another release of it."""

    cli: Cli
    nodes: RealFleet
    recipe: str = "stand-in"
    name: str = "stand-in"
    port: int = 9100
    settings: Mapping[str, str] = field(default_factory=lambda: QUICK)

    def deploy(self, *argv: str, name: str = "", **changes: str) -> Ran:
        """Deploy blue-green, to the end. CAPITALS are knobs of the stand-in, `a__b` is the recipe's key a.b."""
        return self.cli(*self.argv(*argv, name=name, **changes))

    def argv(self, *argv: str, name: str = "", **changes: str) -> list[str]:
        """The command line of a deploy. `name` is what the stand-in says in its header x-stand-in."""
        named = {"RELEASE_NAME": name} if name else {}
        given = {_key(key): value for key, value in {**named, **changes}.items()}
        settings = [word for key, value in {**self.settings, **given}.items() for word in ("--set", f"{key}={value}")]
        return ["deploy", self.recipe, "--blue-green", "--apply-gateway", "--json", *argv, *settings]

    def status(self) -> Any:
        """Its row of `sparkops status --json`."""
        services = self.cli("status", "--json").json["services"]
        return next(row for row in services if row["name"] == self.name)

    @property
    def url(self) -> str:
        """Where clients call it."""
        return f"http://{self.nodes.node(GATEWAY).address}:{self.port}"

    def load(self, rate: float = 15, streams: int = 4, **more: Any) -> Traffic:
        """A load through the gateway, dense enough for a request to meet every gap of a tenth of a second."""
        return Traffic(
            self.url, self.name, streams=streams, rate=rate, **{"seconds": 900, "stream_tokens": 400, **more}
        )

    def state(self, node: str = GATEWAY) -> Any:
        """What the guard of a node says of it."""
        return self._asked(node, op="state")

    def events(self, node: str = GATEWAY) -> Any:
        """What the guard of a node has noted of it, oldest first."""
        return self._asked(node, op="events")

    def intend(self, intent: Intent) -> Any:
        """Send the leader an intent as it is, past the plan of a deploy."""
        return self._asked(GATEWAY, op="intend", intent=json.loads(wire.dump(type(intent), intent)))

    def _asked(self, node: str, **words: Any) -> Any:
        question = json.dumps({"service": self.name, "format": SCHEMA, **words}) + "\n"
        reply = self.nodes.node(node).exec(*RELAY.split(), stdin=question.encode())
        return json.loads(reply)["ok"]

    def journal(self, node: str = GATEWAY) -> Journal:
        """The journal on the gateway's node, or the copy on another one."""
        return journal_in(self.state(node), self.name)

    def traffic(self) -> ServiceFacts:
        """What the gateway says."""
        text = self.nodes.node(GATEWAY).exec("docker", "exec", "sparkops-gateway", "gateway", "show")
        return gateway_facts.parse_gateway(text).services[self.name]

    def containers(self) -> Iterator[Container]:
        """Its containers on every node, running or not."""
        for node in self.nodes.nodes:
            listed = node.exec("docker", "ps", "-aq", "--filter", f"label=sparkops.service={self.name}").split()
            for inspect in json.loads(node.exec("docker", "inspect", *listed)) if listed else ():
                yield docker_facts.parse_container(node.name, inspect)

    def running(self) -> list[Container]:
        """Its containers that run."""
        return [container for container in self.containers() if container.running]

    @property
    def away(self) -> str:
        """A node on which it does not run."""
        return next(node.name for node in self.nodes.nodes if node.name not in {it.node for it in self.running()})

    def begin(self, name: str = "first", node: str = "node-2") -> None:
        """Let one release of that name serve on that node, any where one is empty, and nothing else run anywhere."""
        if not self._serves_alone(name, node):
            self.anew("--node", node or "node-2", name=name or "first")

    def anew(self, *argv: str, name: str = "", **changes: str) -> Container:
        """Forget the service, deploy one release of it, and return its engine, the only one that runs."""
        self.sweep()
        first = self.deploy(*argv, name=name, **changes)
        assert (first.code, first.json["mode"]) == (0, "first"), first.err
        (engine,) = self.running()
        return engine

    def _serves_alone(self, name: str, node: str) -> bool:
        try:
            journal, running = self.journal(), self.running()
        except (FleetError, KeyError):
            return False
        active = journal.active
        nodes = {rank.node for rank in active.ranks} if active else set()
        at_rest = not (journal.swap or journal.hold or journal.trouble or journal.stopping)
        if not (at_rest and active and len(running) == 1 and node in ("", *nodes)):
            return False
        slot = self.traffic().active
        named = engine_spec.of(next(active.ranks)).recipe["serve"]["env"].get("STAND_IN_RELEASE_NAME")
        return slot is not None and slot.release == running[0].release == active.release and name in ("", named)

    def sweep(self) -> None:
        """Forget the service: its containers, its journals and its place in the gateway."""
        guard = "docker ps -q --filter name=sparkops-guard"
        for node in self.nodes.nodes:
            node.exec("sh", "-c", f"{guard} | xargs -r docker stop --time 2")
        for node in self.nodes.nodes:
            mine = f"docker ps -aq --filter label=sparkops.service={self.name}"
            node.exec("sh", "-c", f"{mine} | xargs -r docker rm -f; rm -rf {SERVICES}/{self.name}")
            node.exec("sh", "-c", f"{guard.replace('-q', '-aq')} | xargs -r docker start")
        gateway = "docker exec sparkops-gateway gateway"
        script = f"{gateway} switch {self.name} down && {gateway} forget {self.name} || true"
        self.nodes.node(GATEWAY).exec("sh", "-c", script)

    @contextmanager
    def untouched(self, **load: Any) -> Iterator[None]:
        """Holds that meanwhile nobody but the release that serves now answers, always well, and that it never stops.

        The one before it may still end: a deploy ends with the promotion.
        """
        wait_for(lambda: len(self.running()) == 1, PATIENCE_S, 0.2)
        (before,) = self.running()
        with self.load(**{"rate": 20, "streams": 4, **load}) as background:
            background.wait_for(10)
            yield
            background.wait_for(background.report().good + 10)
        report = background.report()
        assert (report.failures, report.refusals) == ({}, 0), report.examples
        assert set(report.releases) == {before.release}
        after = {container.name: container for container in self.running()}
        assert after[before.name].started_at == before.started_at
        assert set(after) == {before.name}


def journal_in(state: Any, service: str) -> Journal:
    """The journal of a service in what a guard says of it."""
    journal = state["journal"]
    return wire.load(Journal, json.dumps(journal).encode()) if journal else Journal(service, GATEWAY)


def _key(name: str) -> str:
    return f"env.STAND_IN_{name}" if name.isupper() else name.replace("__", ".")


def unused() -> str:
    """A name for a release that no other has."""
    return f"of-{uuid4().hex[:8]}"


def enough(load: Traffic) -> bool:
    """Return whether a load was long enough to show anything."""
    report = load.report()
    return report.streams > 20 and report.shorts > 100


def nothing_failed(load: Traffic) -> None:
    """Holds that a load, of which there was `enough`, had only good answers."""
    report = load.report()
    assert report.failures == {}, report.examples
    assert (report.refusals, enough(load)) == (0, True), report


def wait_for(true: Callable[[], Any], patience_s: float = PATIENCE_S, pause_s: float = 0.2) -> Any:
    """Wait until something is true, and return it. It looks for at most half of the time: looks cost programs."""
    end_s = time.monotonic() + patience_s
    while True:
        began_s = time.monotonic()
        if value := true():
            return value
        now_s = time.monotonic()
        assert now_s < end_s, "waited in vain"
        time.sleep(max(pause_s, now_s - began_s))


def with_gateway(nodes: RealFleet, home: Path, node: str = GATEWAY, timeout: float = 1800) -> Cli:
    """sparkops with a gateway on a node, and the stand-in's image on every node."""
    cli = Cli(write_inventory(nodes, home, lambda data: data.update(gateway={"node": node})), home)
    built = cli("build", "stand-in", timeout=timeout)
    assert built.code == 0, built.err
    return cli


def write_inventory(nodes: RealFleet, directory: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A changed copy of the fleet's inventory: `change` edits the data before it is written."""
    data = yaml.safe_load(nodes.inventory.read_text())
    names = {node.name for node in nodes.nodes}  # a test before may have left more nodes in the file
    data["nodes"] = {name: config for name, config in data["nodes"].items() if name in names}
    data["known_hosts"] = str(nodes.home / "known_hosts")
    data["defaults"]["ssh_key"] = str(nodes.ssh_key)
    change(data)
    file = directory / "inventory.yaml"
    file.write_text(yaml.safe_dump(data))
    return file
