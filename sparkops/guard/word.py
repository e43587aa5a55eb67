"""What guards say to each other: who beside the gateway decides, tells; the others ask. Nothing can be changed so.

A plain HTTP GET of /SERVICE on one port of every guard. It tells names of releases and no more, so it needs no key.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http import server as http_server

from pydantic import ValidationError
from requests.exceptions import RequestException

from sparkops.commands.guard import PORT
from sparkops.errors import SparkopsError
from sparkops.guard.store import Store
from sparkops.nodes.http import direct
from sparkops.plan.journal import Front
from sparkops.plan.takeover import Word, word

ASK_S = 5.0


def ask(front: Front, service: str, port: int = PORT) -> Word | None:
    """What the guard beside the gateway says of a service; None where it gives no answer that can be understood."""
    try:
        with direct(front.address, port) as asking:
            reply = asking.get(f"http://guard/{service}", timeout=ASK_S)
        return Word.model_validate_json(reply.content) if reply.status_code == HTTPStatus.OK else None
    except (RequestException, OSError, ValidationError):
        return None


class _Teller(http_server.BaseHTTPRequestHandler):
    timeout = ASK_S

    def __init__(self, store: Store, *args: object) -> None:
        self.store = store
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer a question; what is no service of ours is not found."""
        try:
            known = self.path.removeprefix("/")
            told = word(self.store.read(known), self.store.clock()) if known in self.store.services() else None
        except (SparkopsError, OSError) as error:
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR, explain=str(error))
            return
        if told is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        text = told.model_dump_json().encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """A question each second is not worth a line."""


@contextmanager
def tell(store: Store, address: str = "", port: int = PORT) -> Iterator[None]:
    """Answer the guards of other nodes, in threads of their own, while the context lasts. Raises OSError."""
    with http_server.ThreadingHTTPServer((address, port), partial(_Teller, store)) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()
