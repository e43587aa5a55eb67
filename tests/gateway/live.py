"""A gateway on a node of its own, brought up as sparkops does it, and engines behind it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.inventory import Gateway
from sparkops.errors import CommandFailed
from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.gateway.facts import GatewayFacts, SlotFacts, parse_gateway
from sparkops.names import Slot
from sparkops.node.member import Member
from sparkops.node.progress import silent
from sparkops.operator.build.gateway import files
from sparkops.operator.build.gateway import image as render
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.build.images.build import BuildOrder, Gate, build_on
from tests.fleet import shell
from tests.fleet.node import FleetNode
from tests.gateway.counts import Counts, counts

PORT, METRICS = 9300, 9399
PATIENCE_S = 120.0
"""Far more than anything here takes: a slow machine is no failure."""
ENGINE = Path(__file__).with_name("engine.py")
TEMPLATES = files.load_templates()
CHAT = Service("chat", PORT)
RELEASES = {Slot.BLUE: "chat-0123456789", Slot.GREEN: "chat-abcdef0123"}
ENGINES = {Slot.BLUE: 9311, Slot.GREEN: 9312}
SERVED_BY = {slot: (slot.value, slot.value, RELEASES[slot]) for slot in Slot}


@dataclass
class Live:
    """The gateway of one node, and what it was given last."""

    machine: FleetNode
    member: Member
    gateway: Gateway = field(default_factory=lambda: Gateway(node="n", metrics_port=METRICS))
    secrets: Secrets = field(default_factory=Secrets)
    engines: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def run(self, command: Any) -> str:
        """Run a command on the node as sparkops does."""
        return self.member.node.run(command).stdout.strip()

    def build(self) -> str:
        """Build the image and give it its tag."""
        context = render.gateway_context(TEMPLATES, files.load_program(), "debian:bookworm-slim")
        gate = Gate(lambda image: commands.check_image(image, self.files([CHAT])))
        return build_on(self.member, BuildOrder(render.NAME, context, render.DISK_GIB, gate), silent).image

    def files(self, services: list[Service]) -> Mapping[str, str | None]:
        return render.files(services, self.gateway, self.secrets, TEMPLATES)

    def configure(self, *services: Service) -> str:
        return self.run(commands.configure(self.files(list(services or (CHAT,)))))

    def point(self, slot: Slot, service: str = "chat") -> str:
        return self.run(
            commands.point(service, slot, RELEASES[slot], [Endpoint("127.0.0.1", ENGINES[slot], RELEASES[slot])])
        )

    def switch(self, slot: Slot, service: str = "chat") -> str:
        return self.run(commands.switch(service, slot, RELEASES[slot]))

    @property
    def facts(self) -> GatewayFacts:
        return parse_gateway(self.run(commands.SHOW))

    def slot(self, slot: Slot) -> SlotFacts:
        return self.facts.services["chat"].slots[slot]

    def counts(self, slot: Slot) -> Counts:
        return counts(json.loads(self.run(commands.SHOW)), slot)

    @property
    def url(self) -> str:
        return f"http://{self.machine.address}:{PORT}"

    def connect(self, port: int = PORT) -> HTTPConnection:
        return HTTPConnection(self.machine.address, port, timeout=PATIENCE_S)

    def ask(self, path: str = "/v1/models", body: Any = None, *, port: int = PORT, **headers: str) -> Answer:
        """One request on a connection of its own. Underscores of header names are dashes."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(self.connect(port)) as connection:
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, named)
            return Answer.of(connection.getresponse())

    def inside(self, *argv: str) -> str:
        """What a program in the gateway's container prints."""
        return self.machine.exec("docker", "exec", commands.CONTAINER, *argv)

    @contextmanager
    def engine(self, name: str, port: int) -> Iterator[None]:
        """An engine on the gateway's node."""
        words = ("exec", "-i", self.machine.container, "python3", "-c", ENGINE.read_text(), name, str(port))
        with subprocess.Popen([shell.client(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            self.engines[name] = process
            yield
            process.stdin.close()

    def finish_streams(self, engine: str) -> None:
        """Let an engine end the streams that it has begun."""
        stdin = self.engines[engine].stdin
        assert stdin
        stdin.write(b"\n")
        stdin.flush()


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: str

    @classmethod
    def of(cls, response: HTTPResponse) -> Answer:
        headers = {name.lower(): value for name, value in response.getheaders()}
        return cls(response.status, headers, response.read().decode())

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def served_by(self) -> tuple[str, str, str]:
        """The engine that answered, and what the gateway says of it."""
        engine, slot = (self.headers.get(name, "") for name in ("x-stand-in", "x-sparkops-slot"))
        return engine, slot, self.headers.get("x-sparkops-release", "")


def is_documented_refusal(answer: Answer) -> bool:
    """Whether it is the answer of a service that nobody serves."""
    error = answer.json["error"]
    shaped = answer.headers["content-type"] == "application/json" and set(error) == {"message", "type", "param", "code"}
    return answer.status == 503 and int(answer.headers["retry-after"]) > 0 and shaped and error["code"] == "unavailable"


def refused(run: Callable[[], object]) -> str:
    """What the gateway says when it refuses."""
    with pytest.raises(CommandFailed) as caught:
        run()
    return caught.value.completed.stderr


def wait_for(what: str, holds: Any, within_s: float = PATIENCE_S) -> None:
    """Wait until `holds()` is true. It looks for at most half of the time: looks cost programs. Raises TimeoutError."""
    end = time.monotonic() + within_s
    while (began := time.monotonic()) < end:
        try:
            if holds():
                return
        except (OSError, CommandFailed):
            pass  # such as a container that is just starting
        time.sleep(max(0.05, time.monotonic() - began))
    raise TimeoutError(f"{what}: not within {within_s:g} s")
