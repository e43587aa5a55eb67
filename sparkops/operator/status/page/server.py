"""The server of `sparkops ui`: loopback only, read only, and for the holder of its token alone.

`Site.answer` holds the rules and is pure but for the picture that it takes from the feed. Any page in the browser and
any user of this machine can connect: the token keeps both out, the check of `Host` a name that was bound to 127.0.0.1
later, and no cookie exists that the browser would add by itself.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sparkops.operator.status.page.feed import Feed

ADDRESS = "127.0.0.1"
FILES = Path(__file__).parent
SHELL: Mapping[str, tuple[str, str]] = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
"""Files of the page by path. They are the same for everybody, and contain nothing of a fleet."""
JSON, TEXT = "application/json", "text/plain; charset=utf-8"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)
"""Only the page's own files; no inline script or style, no frame, and no text that becomes HTML."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every reply."""
METHODS = ("HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT")
"""Methods that are refused."""
REQUEST_S = 10.0
"""Seconds in which a connection must send its request and take the reply."""
MOST_CONNECTIONS = 64
WRONG_ADDRESS = "Open the address that `sparkops ui` printed: it contains a token.\n"


@dataclass(frozen=True)
class Asked:
    """One request. `token`: of its Authorization header; `tag`: of If-None-Match."""

    method: str = "GET"
    target: str = "/"
    host: str = ""
    token: str = ""
    tag: str = ""


@dataclass(frozen=True)
class Reply:
    """One reply. `headers`: besides HEADERS."""

    status: HTTPStatus
    body: bytes = b""
    kind: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


def _refused(status: HTTPStatus, text: str, **headers: str) -> Reply:
    return Reply(status, text.encode(), TEXT, headers)


@dataclass
class Site:
    """What one `sparkops ui` serves. `plan` returns what `sparkops plan RECIPE` prints for one of `recipes`."""

    feed: Feed
    recipes: Callable[[], Sequence[str]] = tuple
    plan: Callable[[str], str] = str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)
    port: int = 0

    @property
    def address(self) -> str:
        """The address for a browser, with the token."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    def answer(self, asked: Asked) -> Reply:
        """Return the reply to a request."""
        if asked.method != "GET":
            return _refused(HTTPStatus.METHOD_NOT_ALLOWED, "This page is read only.\n", Allow="GET")
        if asked.host not in (f"{ADDRESS}:{self.port}", f"localhost:{self.port}"):
            return _refused(HTTPStatus.MISDIRECTED_REQUEST, "Another host than this machine was named.\n")
        parts = urlsplit(asked.target)
        query = parse_qs(parts.query)
        if parts.path in SHELL:
            if "token" in query and not self._is_token(query["token"][0]):
                return _refused(HTTPStatus.FORBIDDEN, WRONG_ADDRESS)
            name, kind = SHELL[parts.path]
            return Reply(HTTPStatus.OK, (FILES / name).read_bytes(), kind)
        if not self._is_token(asked.token):
            return _refused(HTTPStatus.FORBIDDEN, WRONG_ADDRESS)
        match parts.path:
            case "/status.json":
                return self._status(asked.tag)
            case "/recipes.json":
                return Reply(HTTPStatus.OK, json.dumps(list(self.recipes())).encode(), JSON)
            case "/plan":
                return self._plan(query.get("recipe", [""])[0])
            case _:
                return _refused(HTTPStatus.NOT_FOUND, "No such page.\n")

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(errors="replace"), self.token.encode())

    def _status(self, tag: str) -> Reply:
        picture = self.feed.newest(tag)
        if picture is None:
            return Reply(HTTPStatus.NOT_MODIFIED, headers={"ETag": tag} if tag else {})
        return Reply(HTTPStatus.OK, picture.body, JSON, {"ETag": picture.tag})

    def _plan(self, recipe: str) -> Reply:
        if recipe not in self.recipes():
            return _refused(HTTPStatus.NOT_FOUND, "No such recipe.\n")
        return Reply(HTTPStatus.OK, self.plan(recipe).encode(errors="backslashreplace"), TEXT)


class _Exchange(BaseHTTPRequestHandler):
    server_version, sys_version = "sparkops", ""
    timeout = REQUEST_S
    server: _Server

    def do_GET(self) -> None:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        asked = Asked(
            method=self.command,
            target=self.path,
            host=self.headers.get("Host", ""),
            token=token if kind == "Bearer" else "",
            tag=self.headers.get("If-None-Match", ""),
        )
        self._send(self.server.site.answer(asked))

    def _send(self, reply: Reply) -> None:
        self.send_response(reply.status)
        for name, value in {**HEADERS, **reply.headers}.items():
            self.send_header(name, value)
        if reply.status is not HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002 - of the base
        """Refuse what is no request, or has a method without a name here."""
        known = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else HTTPStatus(code)
        self.close_connection = True
        self._send(_refused(known, f"{known.phrase}.\n", Allow="GET"))

    def log_message(self, *_: object) -> None:
        """Write nothing: the terminal has the address of the page."""


for _method in METHODS:
    setattr(_Exchange, f"do_{_method}", _Exchange.do_GET)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, site: Site) -> None:
        self.site, self.free = site, threading.Semaphore(MOST_CONNECTIONS)
        super().__init__((ADDRESS, port), _Exchange)

    def server_bind(self) -> None:
        """Bind without a query for the name of this machine, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a thread, if fewer than MOST_CONNECTIONS are served."""
        if not self.free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self.free.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            with suppress(OSError):  # the browser has gone
                self.finish_request(request, client_address)
        finally:
            self.free.release()
            self.shutdown_request(request)


@contextmanager
def serve(site: Site, port: int = 0) -> Iterator[None]:
    """Serve a site on loopback while the context lasts; `site.port` is then set. Raises OSError for a taken port."""
    with _Server(port, site) as server:
        site.port = server.server_port
        threading.Thread(target=server.serve_forever, args=(0.1,), name="page", daemon=True).start()
        try:
            yield
        finally:
            site.feed.close()
            server.shutdown()
