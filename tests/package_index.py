"""A package index over plain HTTP on this machine with one package, tiny 1.0."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

INFO = {
    "METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n",
    "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "RECORD": "",
}


@dataclass(frozen=True)
class Served:
    """An index at /simple of `port`, and SHA-256 of its wheel."""

    port: int
    sha256: str


@contextmanager
def package_index(directory: Path, address: str = "127.0.0.1") -> Iterator[Served]:
    """Serve an index from `directory`/served. It ignores credentials."""
    package = directory / "served/simple/tiny"
    package.mkdir(parents=True)
    wheel = package / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "")
        for name, text in INFO.items():
            archive.writestr(f"tiny-1.0.dist-info/{name}", text)
    (package / "index.html").write_text(f'<!DOCTYPE html><a href="{wheel.name}">{wheel.name}</a>')
    serve = partial(SimpleHTTPRequestHandler, directory=str(directory / "served"))
    with ThreadingHTTPServer((address, 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Served(server.server_address[1], hashlib.sha256(wheel.read_bytes()).hexdigest())
        finally:
            server.shutdown()
            thread.join()
