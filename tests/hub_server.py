"""A hub of models on this machine: the endpoints that huggingface_hub asks for when it downloads a repository.

Written after what huggingface_hub sends and expects: /api/models/ID/revision/REVISION, /api/models/ID/tree/COMMIT and
/ID/resolve/COMMIT/FILE, with the headers X-Repo-Commit, X-Linked-Etag and X-Linked-Size, and X-Error-Code with errors.
"""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

COMMIT = "5d0f2e8a9c1b4d7e6f3a2b1c0d9e8f7a6b5c4d3e"
TOKEN = "hf_a-token-of-a-test"
PIECE = 64 * 1024


@dataclass
class Hub:
    """What it has and how it behaves. `gate` holds files back until it is set; `fail` answers files with a status."""

    models: dict[str, Path]
    port: int = 0
    url: str = ""
    fail: int | None = None
    only_with_token: bool = False
    ranges: bool = True
    """Whether it answers a request for a part of a file with that part."""
    storage: str = ""
    """URL of another server to which requests of files are redirected."""
    sent: int = 0
    """Bytes of all bodies."""
    gate: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    """The header Authorization of each request."""

    def files(self, model: str) -> dict[str, Path]:
        root = self.models[model]
        return {str(file.relative_to(root)): file for file in sorted(root.rglob("*")) if file.is_file()}


@contextmanager
def hub(models: dict[str, Path], host: str = "127.0.0.1", certificate: Path | None = None) -> Iterator[Hub]:
    """Serve these models until the end of the block, over https with a `certificate` that has its key in NAME.key."""
    instance = Hub(models)
    instance.gate.set()

    class Answering(_Answering):
        hub = instance

    server = _Server((host, 0), Answering)
    instance.port = server.server_address[1]
    instance.url = f"{'https' if certificate else 'http'}://{host}:{instance.port}"
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield instance
    finally:
        instance.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A download that is interrupted hangs up; that is no error of the hub."""


class _Answering(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlparse(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        self.hub.tokens.append(self.headers.get("Authorization", ""))
        token = self.headers.get("Authorization", "")
        if self.hub.only_with_token and token != f"Bearer {TOKEN}":
            self._error(HTTPStatus.UNAUTHORIZED, "GatedRepo" if token else "")
            return
        words = path.strip("/").split("/")
        api = words[:2] == ["api", "models"]
        model = "/".join(words[2:4] if api else words[:2])
        if model not in self.hub.models:
            self._error(HTTPStatus.NOT_FOUND, "RepoNotFound")
        elif api:
            self._list(model, words[4:])
        elif words[2:3] == ["resolve"]:
            self._file(model, words[3], "/".join(words[4:]))
        else:
            self._error(HTTPStatus.NOT_FOUND, "")

    def _list(self, model: str, words: list[str]) -> None:
        if words[1:2] and words[1] not in (COMMIT, "main"):
            self._error(HTTPStatus.NOT_FOUND, "RevisionNotFound")
            return
        files = self.hub.files(model)
        if words[:1] == ["tree"]:
            body: object = [
                {"type": "file", "path": name, "oid": _sha1(file), "size": file.stat().st_size, **_lfs(file, "oid")}
                for name, file in files.items()
            ]
        else:
            siblings = [
                {"rfilename": name, "size": file.stat().st_size, "blobId": _sha1(file), **_lfs(file, "sha256")}
                for name, file in files.items()
            ]
            body = {"id": model, "modelId": model, "sha": COMMIT, "private": False, "siblings": siblings, "tags": []}
        self._send(HTTPStatus.OK, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _file(self, model: str, commit: str, name: str) -> None:
        file = self.hub.files(model).get(name)
        if commit not in (COMMIT, "main"):
            self._error(HTTPStatus.NOT_FOUND, "RevisionNotFound")
        elif file is None:
            self._error(HTTPStatus.NOT_FOUND, "EntryNotFound")
        elif self.hub.fail and self.command == "GET":
            self._error(HTTPStatus(self.hub.fail), "")
        elif self.hub.storage:
            self._send(HTTPStatus.FOUND, b"", {"Location": f"{self.hub.storage}{self.path}"})
        else:
            self._content(file)

    def _content(self, file: Path) -> None:
        content, begin = file.read_bytes(), 0
        end = len(content)
        range_header = self.headers.get("Range", "")
        headers = {"ETag": f'"{_sha1(file)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        ranged = range_header.startswith("bytes=") and self.command == "GET" and self.hub.ranges
        if ranged:
            first, _, last = range_header.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last or end) + 1, end)
            headers["Content-Range"] = f"bytes {begin}-{end - 1}/{len(content)}"
        self._send(HTTPStatus.PARTIAL_CONTENT if ranged else HTTPStatus.OK, content[begin:end], headers)

    def _error(self, status: HTTPStatus, code: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": code} if code else {}
        self._send(status, b"{}", headers)

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            for at in range(0, len(body), PIECE):
                if at:
                    self.hub.gate.wait()
                self.wfile.write(body[at : at + PIECE])
                self.hub.sent += len(body[at : at + PIECE])


def _sha1(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()


def _lfs(file: Path, key: str) -> dict[str, object]:
    """What a hub says of a large file: the digest of its bytes."""
    size = file.stat().st_size
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    return {"lfs": {key: digest, "size": size, "pointerSize": 134}} if file.suffix == ".safetensors" else {}
