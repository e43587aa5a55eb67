"""A package index over plain HTTP of a directory of wheels, for builds on a machine without internet.

`/simple/` and `/torch/` hold the same: the inventory names one for packages and one for torch. Beside each wheel stands
its metadata (PEP 658), so that uv reads no wheel of gigabytes to learn what it requires.
"""

from __future__ import annotations

import re
import threading
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copyfileobj
from urllib.parse import quote, unquote

METADATA = ".metadata"
PIECE = 1 << 20


def projects(directory: Path) -> dict[str, list[str]]:
    """Return the file names of the wheels by normal name of their project."""
    wheels = defaultdict(list)
    for wheel in sorted(directory.glob("*.whl")):
        wheels[re.sub(r"[-_.]+", "-", wheel.name.split("-")[0]).lower()].append(wheel.name)
    return dict(wheels)


def page(names: Sequence[str]) -> str:
    """Return the page of a project with links to its wheels and their metadata."""
    links = (
        f'<a href="/files/{quote(name)}" data-dist-info-metadata="true" data-core-metadata="true">{name}</a><br>'
        for name in names
    )
    return "<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>"


@cache
def metadata(wheel: Path) -> bytes:
    """Return the METADATA of a wheel. Raises KeyError, BadZipFile."""
    with zipfile.ZipFile(wheel) as archive:
        names = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return archive.read(next(names, "METADATA"))


class Wheels(BaseHTTPRequestHandler):
    """Answers GET."""

    protocol_version = "HTTP/1.1"
    server: WheelServer

    def do_GET(self) -> None:
        """Send a page of links, metadata or a wheel."""
        kind, _, name = unquote(self.path).strip("/").partition("/")
        wheel = self.server.directory / name.removesuffix(METADATA)
        if kind in ("simple", "torch") and name in self.server.projects:
            self._send(page(self.server.projects[name]).encode(), "text/html")
        elif kind != "files" or "/" in name or not wheel.is_file():
            self.send_error(404)
        elif name.endswith(METADATA):
            self._send(metadata(wheel), "text/plain")
        else:
            self._head(wheel.stat().st_size, "application/octet-stream")
            with wheel.open("rb") as content:
                copyfileobj(content, self.wfile, PIECE)

    def _send(self, content: bytes, kind: str) -> None:
        self._head(len(content), kind)
        self.wfile.write(content)

    def _head(self, size: int, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing: a build reads hundreds of files."""


class WheelServer(ThreadingHTTPServer):
    """An index of a directory on every address. Raises FileNotFoundError where the directory has no wheel."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.projects = directory, projects(directory)
        if not self.projects:
            raise FileNotFoundError(f"{directory}: no wheel found")
        super().__init__(("0.0.0.0", 0), Wheels)


@contextmanager
def served(directory: Path) -> Iterator[int]:
    """Serve the wheels of a directory on every address. Yields the port."""
    with WheelServer(directory) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
