"""One node: a container that is a small Linux machine, and everything that can befall it."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from enum import Enum

from sparkops.node.waiting import retry_start

from . import engine, entering, network
from .images import NODE_PROGRAM, Image
from .shell import FleetError, client, docker, pipe, run, say, seconds_since

# Not --privileged: that asks for capabilities which a machine may not have to give; see capabilities().
RIGHTS = (
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
    "--cgroupns=host",
    "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw",
)
# /run is empty after a reboot, as on any Linux; else the last life's pid files stay.
MACHINE = ("--tmpfs=/run:exec", "--shm-size=4g", "--stop-timeout=30")
SSH_PATIENCE_S = 120
ENGINE_KNOWS_ITS_OWN = 23  # major version of Docker


class Store(Enum):
    """The image store of a Docker Engine."""

    DOCKER = "docker"
    """Docker's own, with the driver overlay2."""
    CONTAINERD = "containerd"
    """Containerd's, the default of new installations of Docker 29."""


@dataclass(frozen=True)
class Host:
    """What is decided about a node before it exists."""

    name: str
    address: str
    docker: bool = True
    disk_mib: int | None = None
    options: tuple[str, ...] = ()
    """Further options of `docker run`, such as a GPU's devices."""
    store: Store = Store.DOCKER


@dataclass(frozen=True)
class FleetNode:
    name: str
    address: str
    fleet: str

    @property
    def container(self) -> str:
        return f"{self.fleet}-{self.name}"

    def exec(self, *argv: str, stdin: bytes = b"") -> str:
        """Run a program as root, past network and sshd: it works on a cut node too.

        It has the capabilities of this machine's root, which may be more than the node's.
        """
        return retry_start(lambda: run(*entering.prefix(self.container), *argv, stdin=stdin), raised=(FleetError,))

    def program(self, verb: str, stdin: bytes = b"") -> str:
        """A verb of the node's own program, with the node's rights: it may start daemons."""
        words = ("exec", "--interactive", self.container, NODE_PROGRAM, verb)
        return retry_start(lambda: docker(*words, stdin=stdin), raised=(FleetError,))

    @property
    def host_key(self) -> str:
        """Type and key, read past the network, so it is the truth."""
        line = self.exec("cat", "/etc/ssh/ssh_host_ed25519_key.pub")
        return " ".join(line.split()[:2])

    def reboot(self, *, graceful: bool = True, wait: bool = True) -> None:
        """Restart the machine; not graceful: as if its power had failed."""
        if graceful:
            docker("restart", self.container)
        else:
            docker("kill", self.container)
            docker("start", self.container)
        if wait:
            self.wait()

    def cut(self, *peers: FleetNode) -> None:
        """Lose every packet from and to the peers (none named: everybody), silently."""
        for chain, interface, side in (("PREROUTING", "-i", "-s"), ("POSTROUTING", "-o", "-d")):
            for address in [peer.address for peer in peers] or ["0.0.0.0/0"]:
                rule = ("-A", chain, interface, "eth0", side, address, "-j", "DROP")
                self.exec("iptables", "-w", "-t", "mangle", *rule)

    def heal(self) -> None:
        self.program("heal")

    def kill_container(self, name: str) -> None:
        """SIGKILL its first process, past Docker. Wait until it has one: number 0 is the group of the caller."""
        pid = f"docker inspect --format '{{{{.State.Pid}}}}' {name}"
        wait = f'for _ in $(seq 100); do pid=$({pid}); [ "$pid" -gt 0 ] && break; sleep 0.1; done'
        self.exec("sh", "-c", f'{wait}; [ "$pid" -gt 0 ] && kill -KILL "$pid"')

    def kill_engine(self) -> None:
        """SIGKILL dockerd. Nothing brings it back; the containers live on until it starts."""
        self.program("kill_engine")

    def start_engine(self) -> None:
        self.program("start_engine")

    def change_host_key(self) -> None:
        """As after a reinstallation, or with somebody in between. Pinned keys stay."""
        self.program("change_host_key")

    def ready(self, authorized_key: bytes) -> None:
        """Start what is dead, let the key in, undo a cut, and wait until all answers."""
        start = time.monotonic()
        _, *engine = self.program("ready", authorized_key).splitlines()
        self.wait_for_sshd()
        what = f"Docker Engine {engine[0]}" if engine else "sshd (no Docker)"
        say(f"{self.name}: {what} answers after {seconds_since(start)} s")

    def wait(self) -> None:
        if self.exec("printenv", "FLEET_ENGINE") == "yes":
            self.start_engine()
        self.wait_for_sshd()

    def wait_for_sshd(self) -> None:
        end = time.monotonic() + SSH_PATIENCE_S
        while not greets(self.address):
            if time.monotonic() > end:
                raise FleetError(
                    f"{self.name} does not answer on {self.address}:22 from this machine: "
                    "a container's address must be reachable, so use an Engine on this Linux"
                )
            time.sleep(0.1)

    def load(self, image: Image) -> None:
        """Give this engine an image of the host's; nothing moves when it is there already."""
        query = ("docker", "image", "inspect", "--format", "{{json .RootFS.Layers}}", image.base)
        try:
            if self.exec(*query) == image.layers:
                return
        except FleetError:
            pass  # no such image yet
        start = time.monotonic()
        # not by `docker exec`: two engines and a shim would copy every byte
        pipe((client(), "save", image.tag), (*entering.prefix(self.container), "docker", "load", "--quiet"))
        self.exec("docker", "tag", image.tag, image.base)
        self.exec("docker", "rmi", image.tag)  # only the second name of it
        say(f"{self.name}: {image.base} loaded in {seconds_since(start)} s")


def launch(fleet: str, labels: dict[str, str], host: Host, image: Image) -> FleetNode:
    node = FleetNode(host.name, host.address, fleet)
    kept = {**labels, "sparkops.store": host.store.value}
    marks = {**kept, "sparkops.node": host.name, "sparkops.address": host.address}
    docker(
        "run",
        "--detach",
        f"--name={node.container}",
        f"--hostname={host.name}",
        f"--network={fleet}",
        f"--network-alias={host.name}",
        f"--ip={host.address}",
        *(f"--label={key}={value}" for key, value in marks.items()),
        *capabilities(engine.version()),
        *RIGHTS,
        *MACHINE,
        f"--volume={disk(node.container, kept, host.disk_mib)}:/var/lib/docker",
        f"--env=FLEET_ENGINE={'yes' if host.docker else 'no'}",
        f"--env=FLEET_STORE={host.store.value}",
        f"--env=FLEET_DNS={' '.join(network.resolvers())}",
        *host.options,
        image.tag,
    )
    return node


def capabilities(engine_version: str) -> tuple[str, ...]:
    """Return the options that give a container every capability which this machine can give, SYS_RESOURCE or not.

    Since Docker 23.0, ALL means those that the engine itself has, and dropping another one is an error (moby#42933).
    Earlier engines request all that the kernel knows, and runc fails if one is missing.
    """
    earlier = int(engine_version.partition(".")[0]) < ENGINE_KNOWS_ITS_OWN
    return ("--cap-add=ALL", *(("--cap-drop=SYS_RESOURCE",) if earlier else ()))


def disk(name: str, labels: dict[str, str], mib: int | None) -> str:
    """A volume for the node's engine; one of limited size is in memory, so a reboot wipes it.

    One with other labels is removed: the engine would not see the images of another store, and they would stay.
    """
    same = (f"--filter=label={key}={value}" for key, value in labels.items())
    if not docker("volume", "ls", "--quiet", f"--filter=name=^{name}$", *same):
        docker("volume", "rm", "--force", name)
    limit = ("--opt=type=tmpfs", "--opt=device=tmpfs", f"--opt=o=size={mib}m") if mib else ()
    marks = (f"--label={key}={value}" for key, value in labels.items())
    return docker("volume", "create", *marks, *limit, name)


def greets(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=10) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
