"""A fleet of nodes: labels on containers are its only memory."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, TypeVar

from tests import places

from . import engine, images, inventory, network
from .node import FleetNode, Host, Store, launch
from .shell import FleetError, docker, run, say

CHECKOUT = places.ROOT
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
ROOT = Path(os.environ.get("TEST_FLEET_ROOT", CHECKOUT)) / (f".fleet/{WORKER}" if WORKER else "")
"""Each directory has a fleet of its own, so that two test runs of one checkout, or two workers of one, do not meet."""
STORE = Store(os.environ.get("TEST_FLEET_STORE", Store.DOCKER))
"""The image store of every fleet that does not name one."""
MAIN_NODE = re.compile(r"node-(\d+)")
T = TypeVar("T")


@dataclass(frozen=True)
class Fleet:
    size: int
    root: Path = ROOT
    options: tuple[tuple[str, ...], ...] = ()
    """Further options of `docker run` for node-1, node-2 and so on."""
    suites: tuple[str, ...] = images.SUITES
    store: Store = STORE
    prepared: bool = WORKER not in (None, "gw1")
    """Whether agents are built on bases that have their packages. One fleet of `make test` installs them itself: not
    the first one, whose tests of the real vLLM take longest."""

    @classmethod
    def up(cls, nodes: int = 2, *, root: Path = ROOT, **more: Any) -> Fleet:
        """Nodes node-1 to node-N that answer, whatever was there before. `more` are further fields."""
        fleet = cls(nodes, root, **more)
        with fleet.alone():
            engine.ensure()
            fleet.prepare()
            fleet.start()
            inventory.write(fleet.inventory, fleet.nodes, fleet.ssh_key)
        return fleet

    @classmethod
    def attach(cls, *, root: Path = ROOT) -> Fleet:
        """The fleet that is up, as its last `up` left it."""
        size = sum(bool(MAIN_NODE.fullmatch(name)) for name in cls(0, root).present())
        if not size:
            raise FleetError("there is no fleet: run `python -m tests.fleet up`")
        return cls(size, root)

    def down(self) -> None:
        """Remove containers, volumes, network and files, and those of fleets below it; images stay, as a cache."""
        for inner in sorted(self.home.glob("*/.fleet")):
            Fleet(0, inner.parent).down()
        with self.alone():
            if engine.present("docker"):
                engine.ensure()
                self.discard()
            shutil.rmtree(self.home, ignore_errors=True)

    def stop(self) -> None:
        """Shut the nodes down, disks kept: `up` starts them again."""
        docker("stop", *(node.container for node in self.nodes))

    @property
    def id(self) -> str:
        return hashlib.sha256(str(self.root).encode()).hexdigest()[:6]

    @property
    def name(self) -> str:
        return f"sparkops-{self.id}"

    @property
    def home(self) -> Path:
        return self.root / ".fleet"

    @property
    def inventory(self) -> Path:
        return self.home / "inventory.yaml"

    @property
    def ssh_key(self) -> Path:
        return self.home / "id_ed25519"

    @property
    def nodes(self) -> tuple[FleetNode, ...]:
        return tuple(self.node(f"node-{number}") for number in range(1, self.size + 1))

    def node(self, name: str) -> FleetNode:
        address = self.present().get(name)
        if address is None:
            raise FleetError(f"this fleet has no node {name}")
        return FleetNode(name, address, self.name)

    def add(
        self,
        name: str,
        *,
        docker: bool = True,
        disk_mib: int | None = None,
        store: Store | None = None,
        suites: tuple[str, ...] | None = None,
    ) -> FleetNode:
        """A node beside node-1..N, in no inventory, with base images of `suites`: those of the fleet if not given.

        A small disk gets none.
        """
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or MAIN_NODE.fullmatch(name):
            raise FleetError(f"{name} is not a name for an extra node; try `tiny-disk`")
        with self.alone():
            if name in self.present():
                raise FleetError(f"this fleet has a node {name} already; remove it first")
            host = Host(name, self.free_address(), docker, disk_mib, store=store or self.store)
            node = launch(self.name, self.labels, host, images.node())
            node.ready(self.public_key)
            if docker and disk_mib is None:
                self.load(node, suites)
            return node

    def remove(self, name: str) -> None:
        with self.alone():
            node = self.node(name)
            docker("rm", "--force", "--volumes", node.container)
            docker("volume", "rm", "--force", node.container)

    def write_inventory(self, path: Path, nodes: Sequence[FleetNode]) -> Path:
        """An inventory of these nodes, with their host keys of this moment pinned beside it."""
        return inventory.write(path, nodes, self.ssh_key)

    def load(self, node: FleetNode, suites: tuple[str, ...] | None = None) -> None:
        run_for_all(node.load, images.recipe_bases(self.suites if suites is None else suites, prepared=self.prepared))

    @property
    def labels(self) -> dict[str, str]:
        return {"sparkops.fleet": self.id}

    @property
    def public_key(self) -> bytes:
        return self.ssh_key.with_suffix(".pub").read_bytes()

    def present(self) -> dict[str, str]:
        """Names and addresses of all nodes, running or not."""
        form = '{{.Label "sparkops.node"}} {{.Label "sparkops.address"}}'
        rows = docker("ps", "--all", "--filter", self.mine, "--format", form)
        return dict(row.split() for row in rows.splitlines())

    @property
    def mine(self) -> str:
        return f"label=sparkops.fleet={self.id}"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Two runs at once would give one address or make one image twice; the second one waits."""
        handle = os.open(CHECKOUT, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def prepare(self) -> None:
        """What every node needs: a key, images, and a network."""
        engine.require({"ssh-keygen": "openssh-client"})
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / ".gitignore").write_text("*\n")
        if not self.ssh_key.exists():
            owner = ("-N", "", "-C", self.name)
            run("ssh-keygen", "-q", "-t", "ed25519", *owner, "-f", str(self.ssh_key))
        plain, bases = (images.recipe_bases(self.suites, prepared=prepared) for prepared in (False, self.prepared))
        run_for_all(lambda image: image.ensure(), dict.fromkeys((images.node(), *plain, *bases)))
        run_for_all(images.name_on_host, plain)

    def start(self) -> None:
        mine = f"sparkops.fleet={self.id}"
        subnet = network.ensure(self.name, mine, int(self.id, 16))
        run_for_all(lambda number: self.start_node(number, subnet), range(1, self.size + 1))

    def start_node(self, number: int, subnet: IPv4Network) -> None:
        given = self.options[number - 1] if self.options else ()
        address = str(subnet[network.FIRST_NODE + number - 1])
        host = Host(f"node-{number}", address, options=given, store=self.store)
        node = FleetNode(host.name, host.address, self.name)
        if not (host.name in self.present() and self.revive(node)):
            launch(self.name, self.labels, host, images.node())
        node.ready(self.public_key)
        self.load(node)

    def revive(self, node: FleetNode) -> bool:
        """Start the node that is there; one of another version makes room, and leaves its disk to the same store."""
        made_for = (
            "{{.Config.Image}}",
            *(f'{{{{index .Config.Labels "sparkops.{key}"}}}}' for key in ("address", "store")),
        )
        form = "|".join(("{{.State.Status}}", *made_for, "{{json .NetworkSettings.Networks}}"))
        state, *present, networks = docker("inspect", "--format", form, node.container).split("|", 4)
        if present != [images.node().tag, node.address, self.store.value]:
            say(f"{node.name}: made anew, since its image, address or image store changed")
            docker("rm", "--force", node.container)
            return False
        if f'"{self.name}"' not in networks:
            docker("network", "connect", f"--ip={node.address}", self.name, node.container)
        if state == "paused":
            docker("unpause", node.container)
        elif state != "running":
            docker("start", node.container)
        return True

    def free_address(self) -> str:
        taken = set(self.present().values())
        hosts = network.subnet(self.name)
        free = (str(hosts[last]) for last in range(network.FIRST_EXTRA, 255))
        return next(address for address in free if address not in taken)

    def discard(self) -> None:
        for kind, remove, query in (
            ("containers", ("rm", "--force", "--volumes"), ("ps", "--all")),
            ("volumes", ("volume", "rm", "--force"), ("volume", "ls")),
            ("networks", ("network", "rm"), ("network", "ls")),
        ):
            ids = docker(*query, "--quiet", "--filter", self.mine).split()
            if ids:
                docker(*remove, *ids)
                say(f"{len(ids)} {kind} removed")


def run_for_all(act: Callable[[T], None], items: Iterable[T]) -> None:
    """Do it for all at once, wait for all, and tell every failure."""
    with ThreadPoolExecutor() as threads:
        waiting = [threads.submit(act, item) for item in items]
    errors = [error for job in waiting if (error := job.exception()) is not None]
    for error in errors:
        if not isinstance(error, FleetError):
            raise error
    if errors:
        raise FleetError("; ".join(map(str, errors)))
