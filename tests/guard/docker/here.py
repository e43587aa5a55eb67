"""A guard's follower in this process, on this machine's own Docker, with the stand-in as engine."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from sparkops.config.recipe import Recipe
from sparkops.config.release import Release
from sparkops.errors import NotReady
from sparkops.guard.disk.state import State
from sparkops.guard.environment import NodeClock, read_clock
from sparkops.guard.follow.follower import Follower
from sparkops.names import Slot
from sparkops.node.local import LocalNode
from sparkops.serving.engine_spec import EngineSpec, rank_spec
from sparkops.swap.fleet_state import EngineReport, EngineState, Report
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, Phase, RankSpec, Replica
from sparkops.swap.orders import Order, order
from tests.examples import INPUTS
from tests.fleet.images import INSTALL, Image
from tests.fleet.shell import docker
from tests.ports import free_port
from tests.standin.program import HERE

NODE = "here"
PATIENCE_S = 120.0
SETUP = """
ln -sf python3 /usr/bin/python
chmod 755 /opt/stand-in/vllm.py
ln -s /opt/stand-in/vllm.py /usr/local/bin/vllm
useradd --uid 10841 --user-group --no-create-home --home-dir /home/engine --shell /usr/sbin/nologin engine
install -d -o engine -g engine -m 0700 /home/engine /home/engine/.cache
"""
KNOBS = {"STAND_IN_START_S": "1", "STAND_IN_TOK_S": "400", "STAND_IN_TTFT_S": "0.005"}


def image() -> str:
    """The ID of the stand-in's image on this machine, built once."""
    files = tuple((f"opt/stand-in/{file.relative_to(HERE)}", file.read_bytes()) for file in sorted(HERE.rglob("*.py")))
    stand_in = Image("bookworm", "stand-in", INSTALL.format(packages="python3") + SETUP, files)
    stand_in.ensure()
    return docker("image", "inspect", "--format", "{{.Id}}", stand_in.tag)


def recipe(service: str, **changes: Any) -> Recipe:
    """A recipe of the stand-in on free ports. CAPITALS are its knobs, `a__b` is the recipe's key a.b."""
    data: dict[str, Any] = {
        "name": f"f-{service}",
        "service": service,
        "description": "The stand-in for tests of the follower",
        "engine": "stand-in",
        "image": {"template": "stand-in", "base": "debian:bookworm-slim"},
        "model": {"id": "sparkops/stand-in", "path": "stand-in"},
        "serve": {"port": free_port() - 1, "shm_gib": 0.0625, "stop_grace_s": 10, "env": dict(KNOBS)},
        "memory": {"claim_gib": 0.2, "basis": "a guess"},
        "probe": {"passes": 1, "smoke": {"text": {"enabled": False}, "speed": {"enabled": False}}},
        "swap": {"reserve_gib": 0.1},
        "verified": "nothing yet",
    }
    for key, value in changes.items():
        if key.isupper():
            data["serve"]["env"][f"STAND_IN_{key}"] = value
            continue
        section, _, name = key.rpartition("__")
        place = data
        for part in section.split("__") if section else ():
            place = place.setdefault(part, {})
        place[name] = value
    return Recipe.model_validate(data)


@dataclass
class Clock:
    """This node's clock, which a test may move on."""

    ahead_s: float = 0.0

    def __call__(self) -> NodeClock:
        now = read_clock()
        return replace(now, now_s=now.now_s + self.ahead_s)


@dataclass
class Here:
    """A follower, and the leader's side of it: journals and their orders."""

    directory: Path
    image: str
    clock: Clock = field(default_factory=Clock)
    lines: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """Every line of progress that was seen."""

    def __post_init__(self) -> None:
        self.state = State(self.directory, self.clock, self.lines.append)
        self.node = LocalNode(NODE)
        self.follower = Follower(self.state, self.node, self.lines.append)

    def restart(self) -> Self:
        """A new process of the guard: nothing but the disk and Docker remains."""
        self.follower.close()
        self.state = State(self.directory, self.clock, self.lines.append)
        self.follower = Follower(self.state, self.node, self.lines.append)
        return self

    def spec(self, engine_recipe: Recipe, **changes: Any) -> EngineSpec:
        given = {"slot": Slot.BLUE, "index": 0, "jobs": 1, "callers": (), "image": self.image, **changes}
        node = {"transport": "local", "gpu": "none", "model_dir": str(self.directory), **given.pop("node", {})}
        data = engine_recipe.model_dump(mode="json", exclude_defaults=True)
        return EngineSpec(recipe=data, inputs=INPUTS, address="127.0.0.1", node=node, **given)

    def deployment(self, engine_recipe: Recipe, **changes: Any) -> Deployment:
        """A release with its only rank on this node."""
        spec = self.spec(engine_recipe, **changes)
        return Deployment(Release(spec.parsed, INPUTS).id, spec.slot, (Replica((rank_spec(spec, NODE),)),))

    def begun(self, target: Deployment, phase: Phase = Phase.PREPARE) -> Journal:
        """The journal of a first deploy in a phase."""
        service = EngineSpec.model_validate_json(next(target.ranks).spec).parsed.service
        return at(Journal(service, NODE).begun("i1", Mode.FIRST, target, automatic=True), phase)

    def order(self, journal: Journal) -> Order:
        return order(journal, NODE, self.clock().boot)

    def send(self, journal: Journal) -> Report:
        """Deliver the order of a journal."""
        return self.follower.handle(journal.service, self.order(journal))

    def report(self, service: str) -> Report:
        return self.follower.handle(service, None)

    def engine(self, rank: RankSpec) -> EngineReport:
        """The report on one container."""
        return self.report(service_of(rank)).engine(rank.container)

    def until(self, true: Callable[[], Any]) -> Any:
        """Tend until something is true, and return it. It is not while the guard has no recent answer of Docker."""
        end = time.monotonic() + PATIENCE_S
        while True:
            with suppress(NotReady):
                if value := true():
                    return value
            assert time.monotonic() < end, (self.lines, self.shown)
            self.turn()

    def turn(self) -> None:
        """One round."""
        self.follower.poll()
        for service in self.state.services():
            self.shown += [line for line in self.follower.progress(service).values() if line not in self.shown]
        self.follower.wait(0.1)

    def rounds(self, seconds: float) -> None:
        """Tend for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn()

    def is_(self, rank: RankSpec, state: EngineState) -> None:
        """Tend until an engine is in a state."""
        self.until(lambda: self.engine(rank).state is state)

    def run(self, target: Deployment, phase: Phase = Phase.LOAD) -> Journal:
        """Create, start and load a release; the journal is then in `phase`."""
        rank = next(target.ranks)
        self.turn()
        self.send(self.begun(target, Phase.START))
        self.is_(rank, EngineState.HEALTHY)
        journal = self.begun(target, phase)
        self.send(journal)
        return journal

    def promoted(self, journal: Journal) -> Journal:
        """The journal after the end of its swap: the release is active, and armed."""
        assert journal.swap
        ended = replace(journal, active=journal.swap.target, swap=None, revision=journal.revision + 10)
        self.send(ended)
        return ended


def at(journal: Journal, phase: Phase) -> Journal:
    """A journal whose swap is in a phase, later than those of earlier phases."""
    assert journal.swap
    return replace(journal, swap=replace(journal.swap, phase=phase), revision=journal.revision + phase.order)


def service_of(rank: RankSpec) -> str:
    return str(EngineSpec.model_validate_json(rank.spec).parsed.service)


def inspect(container: str) -> Any:
    """Docker's inspect of a container; None if it does not exist."""
    listed = docker("ps", "--all", "--quiet", "--no-trunc", f"--filter=name=^{container}$")
    return json.loads(docker("inspect", listed))[0] if listed else None


def sweep() -> None:
    """Remove every container of these tests, and their caches."""
    for container in docker("ps", "--all", "--quiet", "--filter=name=^f-").split():
        docker("rm", "--force", container)
    for cache in docker("volume", "ls", "--quiet", "--filter=name=^sparkops-cache-f-").split():
        docker("volume", "rm", cache)
