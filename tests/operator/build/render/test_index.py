"""A package index over plain HTTP, with the real pip and the real uv."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkops.config.assets import BuildInputs
from sparkops.operator.build.render.context import index
from tests.package_index import package_index

pytestmark = pytest.mark.local


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of an HTTP server on this machine whose /simple has one package, tiny 1.0."""
    with package_index(tmp_path) as served:
        yield served.port


@pytest.mark.parametrize("program", ["pip", "uv"])
def test_an_index_over_plain_http_is_used(tmp_path: Path, port: int, program: str) -> None:
    """pip trusts 127.0.0.1 and localhost by itself. 0.0.0.0 is the same machine, and no exception."""
    inputs = BuildInputs(package_index=f"http://user:secret@0.0.0.0:{port}/simple")
    for name, content in index(inputs).items():
        (tmp_path / name).write_bytes(content)
    env = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    env |= {"UV_CONFIG_FILE": str(tmp_path / "uv.toml")}
    install = (program, "install") if program == "pip" else (program, "pip", "install", "--python", sys.executable)
    argv = [sys.executable, "-m", *install, "--target", str(tmp_path / "installed"), "tiny==1.0"]

    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)

    assert (ran.returncode, (tmp_path / "installed/tiny.py").is_file()) == (0, True), ran.stderr
    cached = [file for file in (tmp_path / ".cache").rglob("*") if file.is_file()]
    assert cached or program == "pip", "pip keeps nothing of an index over plain HTTP"
    assert [file for file in cached if b"secret" in file.read_bytes()] == [], "builds share this cache on disk"
