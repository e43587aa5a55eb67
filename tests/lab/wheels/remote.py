"""Wheels in the package index, of which only the parts that are read are downloaded, or the whole file."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

import requests

UV = str(Path(sys.executable).parent / "uv")
NO_SOLUTION = "No solution found"  # uv's message for a version or platform that the index does not have
READ_AHEAD = 1 << 20
TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Wheel:
    """A file in the index. `size` is in bytes."""

    url: str
    size: int
    sha256: str
    uploaded: str
    """Date, such as 2026-11-02."""

    @property
    def name(self) -> str:
        """The file name."""
        return unquote(Path(urlsplit(self.url).path).name)

    @cached_property
    def archive(self) -> zipfile.ZipFile:
        """The wheel, read by range requests. Raises requests.RequestException, BadZipFile."""
        return zipfile.ZipFile(io.BufferedReader(Remote(self.url, self.size), READ_AHEAD))

    def content(self) -> bytes:
        """Return the whole file. Raises requests.RequestException."""
        reply = requests.get(self.url, timeout=TIMEOUT_S)
        reply.raise_for_status()
        return reply.content


class Remote(io.RawIOBase):
    """A file behind a URL, read by range requests."""

    def __init__(self, url: str, size: int) -> None:
        self.url, self.size, self.position = url, size, 0
        self.session = requests.Session()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.position, io.SEEK_END: self.size}[whence]
        return self.position

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        end = min(self.size, self.position + len(buffer))
        if end <= self.position:
            return 0
        ranged = {"Range": f"bytes={self.position}-{end - 1}"}
        reply = self.session.get(self.url, headers=ranged, timeout=TIMEOUT_S)
        reply.raise_for_status()
        if reply.status_code != requests.codes.partial_content:
            raise OSError(f"{self.url}: the index answers no range requests")
        buffer[: len(reply.content)] = reply.content
        self.position += len(reply.content)
        return len(reply.content)


def find(requirement: str, machine: str, python: str = "3.12") -> Wheel | None:
    """Return the wheel that a build on `machine` (as `uname -m` names it) installs; None if the index has none.

    The platform is Ubuntu 24.04 (glibc 2.39), which the shipped recipes build on. Raises OSError if uv fails.
    """
    with tempfile.TemporaryDirectory() as directory:
        requirements, answer = Path(directory, "requirements.in"), Path(directory, "pylock.toml")
        requirements.write_text(f"{requirement}\n")
        target = ("--python-version", python, "--python-platform", f"{machine}-manylinux_2_39")
        options = ("--no-config", "--no-deps", "--only-binary", ":all:", "--format", "pylock.toml", "--quiet")
        argv = [UV, "pip", "compile", *options, *target, "-o", str(answer), str(requirements)]
        completed = subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=False)
        if NO_SOLUTION in completed.stderr:
            return None
        if completed.returncode:
            raise OSError(f"{requirement}: {completed.stderr}")
        files = tomllib.loads(answer.read_text())["packages"][0]["wheels"]
    file = max(files, key=lambda one: one["upload-time"])  # of several builds of one version, the newest
    return Wheel(file["url"], file["size"], file["hashes"]["sha256"], f"{file['upload-time']:%Y-%m-%d}")
