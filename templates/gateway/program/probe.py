"""Requests to one slot, by a socket of HAProxy's own: no limit, key or certificate of clients applies to them."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import TypedDict

import haproxy
from haproxy import PROBES

CONNECT_S = 2.0
AT_ONCE = 30  # fewer than the socket takes (sparkops/gateway/capacity.py)
PART, KEPT = 2**16, 4096  # bytes
RELEASE_HEADER = "x-sparkops-release"


class Probe(TypedDict):
    """A request: GET, or POST with a body of JSON. `most`: bytes of its answer that are read; times in seconds."""

    service: str
    slot: str
    path: str
    body: str
    answer_s: float
    most: int


class Reply(TypedDict):
    """What came. `failed`: why there is no whole response, with `why`; empty if there is one.

    `release` is that of HAProxy's header, empty without one: then the response is HAProxy's own. `text` is the start
    of the body, `size` its length, up to a little more than `most`.
    """

    failed: str
    why: str
    status: int
    release: str
    text: str
    size: int


UNREACHED, UNANSWERED, LATE, BROKEN = "unreached", "unanswered", "late", "broken"


class Connection(HTTPConnection):
    """An HTTP connection to the socket."""

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(CONNECT_S)
        self.sock.connect(str(PROBES))


def send(probe: Probe) -> Reply:
    """Send one request and return what came."""
    connection = Connection("gateway")
    try:
        connection.connect()
    except OSError as error:
        return failed(UNREACHED, f"{PROBES}: {error}")
    started = False
    try:
        end_s = time.monotonic() + probe["answer_s"]
        connected = connection.sock
        connected.settimeout(probe["answer_s"])
        headers = {"Content-Type": "application/json"} if probe["body"] else {}
        path = f"/{probe['service']}/{probe['slot']}{probe['path']}"
        with suppress(BrokenPipeError):  # HAProxy may refuse, and close, before it has the whole body
            connection.request("POST" if probe["body"] else "GET", path, probe["body"] or None, headers)
        response = connection.getresponse()
        started, kept, size = True, b"", 0
        while size <= probe["most"] and not response.isclosed():  # Python 3.13 closes the socket with the last byte
            connected.settimeout(max(end_s - time.monotonic(), 0.001))
            if not (part := response.read1(PART)):
                break
            kept, size = (kept + part)[:KEPT], size + len(part)
        if response.length and size <= probe["most"]:
            return failed(BROKEN, f"{response.length} bytes of the body did not come")
        release = response.headers.get(RELEASE_HEADER, "")
        text = kept.decode(errors="replace")
        return {"failed": "", "why": "", "status": response.status, "release": release, "text": text, "size": size}
    except TimeoutError as error:
        # HAProxy takes no connection while it has as many as it may have, and the kernel has taken this one.
        return failed(UNREACHED if not started and haproxy.is_full() else LATE, str(error))
    except (OSError, HTTPException) as error:
        return failed(UNANSWERED if not started and isinstance(error, ConnectionError) else BROKEN, repr(error))
    finally:
        connection.close()


def failed(how: str, why: str) -> Reply:
    return {"failed": how, "why": why, "status": 0, "release": "", "text": "", "size": 0}


def serve() -> None:
    """Send a probe for each line of JSON on stdin, and print its reply with its `id`, in the order of the replies."""
    alone = threading.Lock()

    def answer(number: int, probe: Probe) -> None:
        reply = json.dumps({**send(probe), "id": number})
        with alone:
            print(reply, flush=True)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in sys.stdin:
            request = json.loads(line)
            probe = Probe(**{name: request[name] for name in Probe.__annotations__})
            pool.submit(answer, request["id"], probe)
