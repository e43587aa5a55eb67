"""The gateway's program on this machine, with Debian's HAProxy and no container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sparkops.command import Command, Completed
from sparkops.config import shipped
from sparkops.config.inventory import Gateway
from sparkops.gateway import commands
from sparkops.node.local import LocalNode
from sparkops.node.node import OnLine, Stream
from sparkops.operator.build.gateway import files
from sparkops.operator.build.gateway import image as render
from sparkops.operator.build.gateway.image import Service
from tests.fleet import engine, shell
from tests.ports import free_port

PROGRAM = shipped.PACKAGE.parent / "templates/gateway/program"
WITHIN_S = 60.0


class Program:
    """The gateway's program and its HAProxy, as in its container."""

    def __init__(self, state: Path, run: Path) -> None:
        engine.require({"haproxy": "haproxy"})
        self.state, self.run = state, run
        run.mkdir(exist_ok=True)
        places = {"PATH": shell.SEARCH_PATH, "GATEWAY_STATE": str(state), "GATEWAY_RUN": str(run)}
        self.environment = {**os.environ, **places}

    def argv(self, *words: str) -> tuple[str, ...]:
        return sys.executable, "-B", str(PROGRAM / "__main__.py"), *words

    def call(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        given = {"input": stdin, "capture_output": True, "text": True, "env": self.environment}
        return subprocess.run(self.argv(*words), check=False, **given)  # type: ignore[call-overload,no-any-return]

    def shown(self) -> Any:
        return json.loads(self.call("show").stdout)

    def kept(self) -> Any:
        code = "import disk, json; print(json.dumps(disk.kept()))"
        argv = (sys.executable, "-B", "-c", code)
        return json.loads(subprocess.check_output(argv, cwd=PROGRAM, env=self.environment, text=True))

    def give(self, configuration: dict[str, str]) -> None:
        """Write the files of a configuration."""
        for name, text in configuration.items():
            (self.state / name).parent.mkdir(parents=True, exist_ok=True)
            (self.state / name).write_text(text)

    @contextmanager
    def started(self, log: Path = Path(os.devnull)) -> Iterator[subprocess.Popen[bytes]]:
        """Start it and wait until HAProxy answers."""
        with (
            log.open("wb") as output,
            subprocess.Popen(self.argv("start"), env=self.environment, stderr=output, stdout=output) as it,
        ):
            try:
                end = time.monotonic() + WITHIN_S
                while self.shown()["haproxy"] is None:
                    assert it.poll() is None, "the gateway has ended"
                    assert time.monotonic() < end, "HAProxy does not answer"
                    time.sleep(0.1)
                yield it
            finally:
                it.terminate()


def configured(state: Path, run: Path, ports: tuple[int, int] | None = None, **settings: Any) -> dict[str, str]:
    """The gateway's files with paths of a test, for one service, and the ports of the service and of the metrics."""
    service, metrics = ports or (free_port(), free_port())
    gateway = Gateway(node="n", metrics_port=metrics, **settings)
    given = render.config([Service("chat", service)], gateway, files.load_templates())
    return {name: moved(text, state, run) for name, text in given.items()}


def moved(text: str, state: Path, run: Path) -> str:
    room = text.index("program room\n") if "program room\n" in text else len(text)
    end = text.index("defaults\n") if room < len(text) else room
    text = text[:room] + text[end:]  # its command is a path of the image
    return text.replace("/var/lib/gateway", str(state)).replace("/run/gateway", str(run))


@dataclass(frozen=True)
class HereNode(LocalNode):
    """This machine with the gateway's program outside of any container."""

    program: Program | None = None

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        return super().run(self._here(command), stdin=stdin, on_line=on_line)

    def pipe(self, command: Command) -> Stream:
        return super().pipe(self._here(command))

    def _here(self, command: Command) -> Command:
        """Return what a command does in the container."""
        words = command.argv[command.argv.index(commands.CONTAINER) + 1 :]
        assert self.program
        assert words[0] == "gateway", command
        given = (f"{name}={self.program.environment[name]}" for name in ("PATH", "GATEWAY_STATE", "GATEWAY_RUN"))
        return replace(command, argv=("env", *given, *self.program.argv(*words[1:])))
