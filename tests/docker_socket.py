"""Docker's socket with the containers of a test: lists and inspects, the only requests that status sends to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any


@dataclass
class DockerSocket:
    """`names` are further containers of the node; `refusal` is the reply to each request if it is not empty."""

    file: Path
    inspects: list[dict[str, Any]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """IDs that are listed, and removed before they are inspected."""
    refusal: str = ""
    hanging: set[str] = field(default_factory=set)
    """IDs whose inspect gets no reply before the end."""
    ended: threading.Event = field(default_factory=threading.Event)

    def reply(self, path: str) -> tuple[int, Any]:
        """Return status and body."""
        if self.refusal:
            return 500, {"message": self.refusal}
        if path == "/containers/json?all=1":
            facts = {"ImageID": "sha256:1", "Created": 1_763_798_400}
            own = [
                {
                    **facts,
                    "Id": item["Id"],
                    "Names": [item["Name"]],
                    "Labels": item["Config"]["Labels"],
                    "State": item["State"]["Status"],
                }
                for item in self.inspects
            ]
            others = [(name, f"/{name}", None) for name in self.names]
            gone = [(identifier, "/gone", {"sparkops.service": "chat"}) for identifier in self.gone]
            rest = [{"Id": item, "Names": [name], "Labels": labels} for item, name, labels in (*others, *gone)]
            return 200, [*own, *rest]
        container_id = path.removeprefix("/containers/").removesuffix("/json")
        if container_id in self.hanging:
            self.ended.wait()
        matches = [item for item in self.inspects if item["Id"] == container_id]
        return (200, matches[0]) if matches else (404, {"message": f"No such container: {container_id}"})


@contextmanager
def docker_socket(file: Path) -> Iterator[DockerSocket]:
    """Serve a Docker without containers on a Unix socket."""
    docker = DockerSocket(file)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = docker.reply(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingUnixStreamServer(str(file), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield docker
        docker.ended.set()
        server.shutdown()
        thread.join()
