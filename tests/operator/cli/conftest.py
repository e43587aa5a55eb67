"""The command line as a user meets it: arguments in; exit code, stdout and stderr out."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkops.operator.cli.main import main


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Sparkops = Callable[..., Ran]
DOCKER = """#!{python} -IS
# Docker's API on stdin, as far as it is asked: the version of its API, and that it has no containers.
import socket
stream, rest = socket.socket(fileno=0), b""
while piece := stream.recv(65536):
    rest += piece
    while b"\\r\\n\\r\\n" in rest:
        asked, _, rest = rest.partition(b"\\r\\n\\r\\n")
        line = asked.split(b"\\r\\n")[0]
        status, body = (b"404 Not Found", b'{{"message": "none"}}') if b"sparkops-guard" in line else (b"200 OK", b"[]")
        head = b"HTTP/1.1 %s\\r\\nApi-Version: 1.43\\r\\nContent-Length: %d\\r\\n\\r\\n" % (status, len(body))
        stream.sendall(head + body)
"""


@pytest.fixture
def sparkops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sparkops:
    """Run in an empty directory, as a user without keys and inventory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("SPARKOPS_INVENTORY", raising=False)

    def run(*argv: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["sparkops", *map(str, argv)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return run


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An inventory of this machine, whose Docker refuses everything; returns the PATH on which it does."""
    (tmp_path / "inventory.yaml").write_text("nodes:\n  here: {transport: local}\n")
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho permission denied\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    return f"{program.parent}:{os.environ['PATH']}"


@pytest.fixture
def idle_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's Docker, which runs nothing."""
    program = tmp_path / "bin/docker"
    program.parent.mkdir()
    program.write_text(DOCKER.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
