"""sparkops run as a user runs it: as a program."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


@dataclass(frozen=True)
class Cli:
    """sparkops with one inventory."""

    inventory: Path
    state: Path
    prefix: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    def __call__(self, *argv: str | Path, timeout: float = 600) -> Ran:
        began = time.monotonic()
        with self.start(*argv) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            finally:
                process.kill()  # the end of `with` would wait for a program that hangs
        return Ran(process.returncode, out, err, time.monotonic() - began)

    def start(self, *argv: str | Path) -> subprocess.Popen[str]:
        words = [*self.prefix, str(SPARKOPS), "--inventory", str(self.inventory), *map(str, argv)]
        path = "/usr/bin:/bin:/usr/sbin:/sbin"
        env = {"PATH": path, "HOME": str(self.state), "XDG_STATE_HOME": str(self.state), **self.env}
        return subprocess.Popen(words, cwd=CHECKOUT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
