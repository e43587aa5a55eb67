"""A machine without hardware: docker commands change its containers, and Docker's API shows them.

A running container listens on a real port of the machine's own loopback address and answers as its mood says.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from sparkops.command import Command, Completed
from sparkops.gateway import commands as gateway_commands
from sparkops.node import host
from sparkops.node.agents import commands as guard_commands
from sparkops.node.agents.commands import CONTAINER as GUARD
from sparkops.node.program import BOOT
from sparkops.units import GIB, KIB
from tests.fleet_unit import ranks
from tests.fleet_unit.gate import Gate
from tests.fleet_unit.listener import Listener, converse

GOOD, GARBAGE, DIES = "good", "garbage", "dies"
ANSWER, NONSENSE = "391", "!!"
IMAGE = "sha256:" + "a" * 64
STATS = json.dumps({"memory_stats": {"usage": 3 * GIB, "stats": {"inactive_file": GIB}}}).encode()
MODELS = json.dumps(
    {
        "root": {"there": True, "writable": True, "free": 10**12, "user": [1000, 1000]},
        "models": [
            {
                "path": "q",
                "files": {"config.json": [2, 1], "model.safetensors": [100, 1]},
                "shards": {"model.safetensors": {"bytes": 100}},
                "index": None,
                "marker": None,
                "revision": None,
                "identity": None,
                "closed": {},
                "place": "/srv/models/q",
                "id": [7, 1],
            }
        ],
    }
)
"""What templates/node/store.py says of a node that has the model."""
PROGRAM = "sparkops.guard.replacing"
STARTED = "2026-11-21T00:00:00.0Z"
Facts = dict[str, Any]


@dataclass
class Machine:
    """What a node is and has. `fails` says how a command ends.

    By release: the `moods` of engines, their `logs`, and how often /health of one that `loads` says no.
    """

    name: str
    address: str
    memory_gib: float = 100.0
    built: bool = True
    """Whether it has every image."""
    layer: str = "sha256:1"
    """What its image holds."""
    gate: Gate | None = None
    moods: dict[str, str] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    loads: dict[str, int] = field(default_factory=dict)
    hangs: dict[str, threading.Event] = field(default_factory=dict)
    """By container: what its inspect waits for, as for a start that waits for a driver."""
    hung: Counter[str] = field(default_factory=Counter)
    """By container: the inspects that have waited."""
    containers: dict[str, Facts] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    fails: Callable[[str], int] = field(default=lambda _: 0)
    complaint: str = ""
    """What a command that fails prints after its own line."""
    up: dict[str, Listener] = field(default_factory=dict)
    token: bytes = b""
    """The archive that was last put into one of its containers."""
    dark: bool = False
    """Whether it is without power."""
    streams: list[socket.socket] = field(default_factory=list)
    """What others hold to it."""
    whole: Callable[[Facts], bool] = field(default=lambda _: True)
    """Whether the other ranks of a container run."""
    answered: Callable[[str], bool] = field(default=lambda _: True)
    """Whether a request gets an answer at an address and port, wherever that is."""
    program: Callable[[list[str]], int] = field(default=lambda _: 0)
    """What the container runs that replaces guard or gateway, by its arguments. Returns its exit code."""
    dying: frozenset[int] = frozenset({0, 1})
    """Which ranks end at their start, of a release whose mood it is."""

    def __post_init__(self) -> None:
        self.containers[guard_commands.CONTAINER] = inspect(guard_commands.CONTAINER, {}, "running")

    def give_gateway(self) -> None:
        """Let the gateway be here."""
        self.gate = Gate()
        self.containers[gateway_commands.CONTAINER] = inspect(gateway_commands.CONTAINER, {}, "running")

    def give_guard(self) -> None:
        """Let a guard be here."""
        self.containers[GUARD] = inspect(GUARD, {}, "running")

    def do(self, command: Command) -> Completed:
        """What a command does here."""
        line = str(command)
        if command.argv[0] == "docker" and "show" not in command.argv:
            self.ran.append(line)
        code, output = self.fails(line), ""
        if command.argv[:3] == ("docker", "cp", "-"):
            self.token = command.stdin
        if not code:
            code, output = ranks.answer(self.address, command.argv) or self._done(command.argv, command.stdin)
        return Completed(self.name, command, code, output, f"{line} failed\n{self.complaint}" if code else "")

    def _done(self, argv: tuple[str, ...], stdin: bytes = b"") -> tuple[int, str]:
        match argv:
            case ("sh", "-c", script, *_) if script.startswith(host.QUERY_SCRIPT):
                return 0, self._facts()
            case ("python3", "-c", boot, *_) if boot == BOOT:
                return 0, MODELS
            case ("docker", "exec", *words) if self.gate and gateway_commands.CONTAINER in words:
                return self._gate_told(self.gate, stdin, *words[words.index("gateway") + 1 :])
            case ("docker", "create", *options):
                return self._create(options)
            case ("docker", verb, *_, name) if name in self.containers:
                return self._change(verb, argv[2:-1], name)
            case _:
                return self._of_agents(argv)

    def _of_agents(self, argv: tuple[str, ...]) -> tuple[int, str]:
        """What is done to guard and gateway."""
        match argv:
            case ("docker", "run", "--detach", *options):
                name = next(option.removeprefix("--name=") for option in options if option.startswith("--name="))
                if name in self.containers:
                    return 125, "the name is in use"
                self._create(options)
                self.start(name)
                if name == gateway_commands.CONTAINER:
                    self.gate = self.gate or Gate()
                if PROGRAM in options:
                    self.containers[name]["State"].update(ExitCode=self.program(options[options.index(PROGRAM) + 1 :]))
                    self.stop(name)
            case ("docker", "run", *_) | ("docker", "volume", "rm", *_):
                pass
            case ("docker", "exec", name, *_) if name in self.containers:
                return int(not self.runs(name)), ""
            case ("docker", "rename", name, other) if other not in self.containers:
                self.containers[other] = self.containers.pop(name)
            case _:
                return 1, ""
        return 0, ""

    def _gate_told(self, gate: Gate, stdin: bytes, verb: str, *words: str) -> tuple[int, str]:
        if not self.runs(gateway_commands.CONTAINER):
            return 1, ""
        if verb != "preview":
            return gate.run(verb, *words, stdin=stdin)
        release, servers = gate.preview(words[1])
        return (0, f"{release}\n") if all(map(self.answered, servers)) else (1, "")

    def _facts(self) -> str:
        claims = (container["Config"]["Labels"].get("sparkops.claim-gib", "0") for container in self.running())
        total_kib = int(self.memory_gib * GIB / KIB)
        free_kib = int((self.memory_gib - sum(map(float, claims))) * GIB / KIB)
        lines = ["arch x86_64", "now 1000.0", f"MemTotal: {total_kib}", f"MemAvailable: {free_kib}"]
        return "\n".join([*lines, "disk 999999999", "buildkit yes", ""])

    def runs(self, name: str) -> bool:
        """Whether it has a container of this name that runs."""
        return name in self.containers and bool(self.containers[name]["State"]["Running"])

    def running(self) -> list[Facts]:
        """The containers that run."""
        return [container for container in self.containers.values() if container["State"]["Running"]]

    def _create(self, options: list[str]) -> tuple[int, str]:
        name = next(option.removeprefix("--name=") for option in options if option.startswith("--name="))
        labels = dict(
            option.removeprefix("--label=").split("=", 1) for option in options if option.startswith("--label=")
        )
        self.containers[name] = inspect(name, labels, "created")
        policy = next(
            (option.removeprefix("--restart=") for option in options if option.startswith("--restart=")), "no"
        )
        self.containers[name]["HostConfig"]["RestartPolicy"]["Name"] = policy
        return 0, ""

    def _change(self, verb: str, options: tuple[str, ...], name: str) -> tuple[int, str]:
        container = self.containers[name]
        if verb == "start":
            self.start(name)
        elif verb == "stop":
            self.stop(name)
        elif verb == "kill":
            self.crash(name)
        elif verb == "update":
            container["HostConfig"]["RestartPolicy"]["Name"] = options[0].removeprefix("--restart=")
        elif verb == "rm" and container["State"]["Running"] and "--force" not in options:
            return 1, ""
        elif verb == "rm":
            del self.containers[name]
        return 0, ""

    def start(self, name: str) -> None:
        """The process begins, and unless it dies at once it listens."""
        container = self.containers[name]
        if container["State"]["Running"]:
            return
        labels = container["Config"]["Labels"]
        if "sparkops.rank" not in labels:  # no engine
            container["State"].update(Status="running", Running=True)
            return
        if self.mood(name) == DIES and int(labels["sparkops.rank"]) in self.dying:
            container["State"].update(Status="exited", ExitCode=1)
            return
        container["State"].update(Status="running", Running=True, ExitCode=0)
        port = int(labels["sparkops.port"]) if labels["sparkops.rank"] == "0" else 0  # a worker answers nobody
        self.up[name] = Listener(self.address, port, lambda path: self.answer(name, path))

    def answer(self, name: str, path: str) -> tuple[int, bytes]:
        """What a container's engine answers."""
        release = self.release(name)
        if not self.whole(self.containers[name]):
            return 503, b""
        if path == "/health" and self.loads.get(release, 0):
            self.loads[release] -= 1
            return 503, b""
        return engine(path, self.mood(name))

    def mood(self, name: str) -> str:
        """How a container's engine behaves."""
        return self.moods.get(self.release(name), GOOD)

    def release(self, name: str) -> str:
        """The release of a container."""
        return str(self.containers[name]["Config"]["Labels"].get("sparkops.release", ""))

    def log(self, name: str) -> str:
        """What a container has said, all of it at its start."""
        lines = self.logs.get(self.release(name), "").splitlines()
        return "".join(f"{STARTED[:-1]}{number:08}Z {line}\n" for number, line in enumerate(lines))

    def stop(self, name: str) -> None:
        """The process ends."""
        self.containers[name]["State"].update(Status="exited", Running=False)
        if name in self.up:
            self.up.pop(name).close()

    def go_on(self) -> None:
        """Let everything that is said to run listen."""
        for name, container in self.containers.items():
            if container["State"]["Running"] and container["Config"]["Labels"]:
                container["State"]["Running"] = False
                self.start(name)

    def armed(self) -> list[str]:
        """The releases that begin by themselves after a reboot."""
        policies = (
            (container["Config"]["Labels"], container["HostConfig"]["RestartPolicy"])
            for container in self.containers.values()
        )
        return [labels["sparkops.release"] for labels, policy in policies if labels and policy["Name"] == "always"]

    def crash(self, name: str) -> None:
        """The process is killed."""
        self.stop(name)
        self.containers[name]["State"]["ExitCode"] = 137

    def go_dark(self) -> None:
        """Its power fails: every connection to it ends, and all that ran."""
        self.dark = True
        for stream in self.streams:
            with suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
        for name in list(self.up):
            self.crash(name)

    def reboot(self) -> None:
        """Every process ends. What has a restart policy begins again, even if it was stopped before, as with Docker."""
        self.dark = False
        for name, container in self.containers.items():
            if container["Config"]["Labels"]:
                self.stop(name)
                if container["HostConfig"]["RestartPolicy"]["Name"] == "always":
                    self.start(name)

    def api(self, path: str) -> tuple[int, bytes]:
        """Docker's API, as far as it is asked."""
        if path == "/_ping":
            return 200, b"OK"
        if match := re.search(r"/containers/json(?:.*filters=(.*))?", path):
            filters = json.loads(unquote(match[1]).replace("+", " "))["label"] if match[1] else []
            return 200, json.dumps([listed(self.containers[name]) for name in self._labelled(filters)]).encode()
        if match := re.search(r"/containers/([^/]+)/(json|logs|stats)", path):
            name, kind = match.groups()
            if name not in self.containers:
                return 404, b'{"message": "No such container"}'
            if kind == "json" and (hangs := self.hangs.get(name)):
                self.hung[name] += 1
                hangs.wait()
            known = {"json": json.dumps(self.containers[name]).encode(), "logs": self.log(name).encode()}
            return 200, known.get(kind, STATS)
        if path.endswith("/version"):
            return 200, b'{"Version": "28.0.0", "ApiVersion": "1.43"}'
        if "/images/json" in path:
            return 200, b"[]"
        if path.split("?", maxsplit=1)[0].endswith("/volumes"):
            return 200, b'{"Volumes": []}'
        if "/images/" in path and not self.built:
            return 404, b'{"message": "No such image"}'
        held = {"Os": "linux", "Architecture": "arm64", "Size": 1, "RootFS": {"Layers": [self.layer]}, "Config": {}}
        return 200, json.dumps({"Id": IMAGE, **held}).encode()

    def _labelled(self, filters: list[str]) -> list[str]:
        def has(container: Facts) -> bool:
            labels = container["Config"]["Labels"]
            return all((label in labels) if "=" not in label else label in pairs(labels) for label in filters)

        return [name for name, container in self.containers.items() if has(container)]

    def dial_api(self) -> socket.socket:
        """A connection to Docker's API."""
        ours, theirs = self.pair()
        threading.Thread(target=converse, args=(theirs, self.api), daemon=True).start()
        return ours

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """Both ends of a connection to it. Raises OSError in the dark."""
        if self.dark:
            raise OSError(f"{self.name} does not answer")
        both = socket.socketpair()
        self.streams += both
        return both

    def close(self) -> None:
        """End every process."""
        for name in list(self.up):
            self.stop(name)


def pairs(labels: dict[str, str]) -> set[str]:
    """Labels as Docker's filters name them."""
    return {f"{key}={value}" for key, value in labels.items()}


def listed(container: Facts) -> Facts:
    """What Docker's list says about a container; one whose removal has failed has no name."""
    name, labels, state = container["Name"], container["Config"]["Labels"], container["State"]["Status"]
    names = [] if state == "dead" else [name]
    return {"Id": container["Id"], "Names": names, "Labels": labels, "State": state, "ImageID": IMAGE, "Created": 0}


def inspect(name: str, labels: dict[str, str], status: str) -> Facts:
    """What Docker says about a container, as far as anybody asks."""
    running = status == "running"
    state = {
        "Status": status,
        "Running": running,
        "Restarting": False,
        "ExitCode": 0,
        "OOMKilled": False,
        "StartedAt": STARTED,
    }
    return {
        "Id": name,
        "Name": f"/{name}",
        "Config": {"Labels": labels, "Tty": True, "StopTimeout": 60, "Env": []},
        "State": state,
        "RestartCount": 0,
        "HostConfig": {"RestartPolicy": {"Name": "no"}},
        "Image": IMAGE,
    }


def engine(path: str, mood: str) -> tuple[int, bytes]:
    """A server that is healthy whatever it says."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    message = {"role": "assistant", "content": ANSWER if mood == GOOD else NONSENSE}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return 200, json.dumps({"choices": [choice], "usage": usage}).encode() if "chat" in path else b""
