"""A package index over plain HTTP, with the real pip and the real uv."""

from __future__ import annotations

import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sparkops.config.assets import BuildInputs
from sparkops.render.context import places

pytestmark = pytest.mark.local

INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of an HTTP server on this machine whose /simple has one package, tiny 1.0."""
    package = tmp_path / "served/simple/tiny"
    package.mkdir(parents=True)
    wheel = package / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        for name, text in INFO.items():
            archive.writestr(f"tiny-1.0.dist-info/{name}", text)
    (package / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>')
    serve = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("program", ["pip", "uv"])
def test_an_index_over_plain_http_is_used(tmp_path: Path, port: int, program: str) -> None:
    """pip trusts 127.0.0.1 and localhost by itself. 0.0.0.0 is the same machine, and no exception."""
    inputs = BuildInputs(package_index=f"http://user:secret@0.0.0.0:{port}/simple")
    for path, content in places(inputs).items():
        if isinstance(content, bytes) and content:
            (tmp_path / Path(path).name).write_bytes(content)
    env = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    env |= {"UV_CONFIG_FILE": str(tmp_path / "uv.toml")}
    install = (program, "install") if program == "pip" else (program, "pip", "install", "--python", sys.executable)
    argv = [sys.executable, "-m", *install, "--target", str(tmp_path / "installed"), "tiny==1.0"]

    ran = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=50, check=False)

    assert (ran.returncode, (tmp_path / "installed/tiny.py").is_file()) == (0, True), ran.stderr
