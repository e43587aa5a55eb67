"""sparkops run as a user runs it: as a program."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from tests import fork_server
from tests.fleet.fleet import CHECKOUT

RECIPE = CHECKOUT / "recipes/tiny-qwen3-cpu.yaml"
SPARKOPS = Path(sys.executable).parent / "sparkops"


@dataclass(frozen=True)
class Ran:
    """How a run of sparkops ended. `took_s` is its whole wall time."""

    code: int
    out: str
    err: str
    took_s: float

    @property
    def json(self) -> Any:
        assert self.out, f"ended with code {self.code} and no answer: {self.err}"
        return json.loads(self.out)


class Running(subprocess.Popen[str]):
    """sparkops while it runs. An error in its block ends it; otherwise the end of the block waits, however long."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error:
            self.kill()
        super().__exit__(kind, error, trace)


@dataclass(frozen=True)
class Cli:
    """sparkops with one inventory."""

    inventory: Path
    state: Path
    prefix: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    forked: bool = True
    """Whether a server forks it, which has imported it. With a `prefix` it is started as the program that it is."""

    def __call__(self, *argv: str | Path, timeout: float = 1800) -> Ran:
        began = time.monotonic()
        with self.start(*argv) as process:
            out, err = process.communicate(timeout=timeout)
        return Ran(process.returncode, out, err, time.monotonic() - began)

    def start(self, *argv: str | Path) -> Running:
        program = fork_server.command() if self.forked and not self.prefix else (*self.prefix, str(SPARKOPS))
        words = [*program, "--inventory", str(self.inventory), *map(str, argv)]
        path = "/usr/bin:/bin:/usr/sbin:/sbin"
        env = {"PATH": path, "HOME": str(self.state), "XDG_STATE_HOME": str(self.state), **self.env}
        return Running(words, cwd=CHECKOUT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
