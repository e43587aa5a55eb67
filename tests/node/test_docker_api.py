"""Answers of Docker's API that are larger than any real one, over a stream as on a node."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import pytest

from sparkops.command import Command
from sparkops.errors import ConnectionLost, NodeError, NotReady
from sparkops.node.docker_api import MOST_BYTES, MOST_LOG_BYTES, Engine
from sparkops.node.node import Stream
from tests.fleet_unit.listener import converse

TTY = {"Id": "c", "Config": {"Tty": True}}
"""With a terminal, a log is sent as it is."""


@dataclass(frozen=True)
class ApiNode:
    """A node of whose programs only Docker's API answers, by the end of the path."""

    answers: dict[str, Callable[[], bytes]]
    name: str = "n1"
    cancel: threading.Event = field(default_factory=threading.Event)
    asked: list[str] = field(default_factory=list)
    status: int = 200

    def pipe(self, command: Command) -> Stream:
        """See Node.pipe."""
        assert command.argv[:2] == ("docker", "system")
        near, far = socket.socketpair()
        threading.Thread(target=converse, args=(far, self.answer), daemon=True).start()
        return near

    def answer(self, path: str) -> tuple[int, bytes]:
        """Status and body for a path."""
        self.asked.append(path)
        return self.status, self.answers[path.partition("?")[0].rpartition("/")[2]]()


@contextmanager
def engine(**answers: Callable[[], bytes]) -> Iterator[Engine]:
    """A reader of an engine that gives these answers."""
    with reading(ApiNode({"_ping": lambda: b"OK", **answers})) as reader:
        yield reader


@contextmanager
def reading(node: ApiNode) -> Iterator[Engine]:
    with closing(Engine(node)) as reader:  # type: ignore[arg-type]  # nothing else is asked
        yield reader


def test_an_answer_that_is_too_long_is_refused_with_what_was_asked() -> None:
    with engine(json=lambda: b" " * (MOST_BYTES + 1)) as reader, pytest.raises(NodeError) as caught:
        reader.container("c")

    assert str(caught.value) == (f"n1: docker API GET /containers/c/json: the reply exceeds {MOST_BYTES} bytes")
    assert caught.value.next_step == "Check `sparkops doctor`."


def test_the_next_question_is_answered_on_another_stream() -> None:
    bodies = iter((b" " * (MOST_BYTES + 1), b"{}"))
    with engine(info=lambda: next(bodies)) as reader:
        with pytest.raises(NodeError):
            reader.info()
        assert reader.info() == {}


def test_a_long_log_comes_whole_and_one_without_end_is_refused() -> None:
    sizes = iter((MOST_BYTES + 1, MOST_LOG_BYTES + 1))
    with engine(json=lambda: json.dumps(TTY).encode(), logs=lambda: b"x" * next(sizes)) as reader:
        assert len(reader.log("c")) == MOST_BYTES + 1
        with pytest.raises(NodeError, match=rf"/containers/c/logs: the reply exceeds {MOST_LOG_BYTES} bytes"):
            reader.log("c")


def test_of_a_log_with_long_lines_fewer_are_read() -> None:
    node = ApiNode(
        {"_ping": lambda: b"OK", "json": lambda: json.dumps(TTY).encode(), "logs": lambda: b"x" * next(sizes)}
    )
    sizes = iter((1001, 1001, 1000, 1001, 1001, 10_000))
    with reading(node) as reader:
        assert len(reader.log_end("c", 20_000, 1000)) == 1000
        assert reader.log_end("c", 20, 1000) == ""
        assert len(reader.log("c")) == 10_000

    tails = [parse_qs(urlsplit(path).query)["tail"] for path in node.asked if "/logs?" in path]
    assert tails == [["20000"], ["2000"], ["200"], ["20"], ["2"], ["all"]]


@pytest.mark.parametrize(("options", "tail"), [({"tail": 300}, "300"), ({}, "all")], ids=["its end", "whole"])
def test_docker_itself_leaves_out_all_but_the_end_of_a_log(options: dict[str, int], tail: str) -> None:
    """An engine that is days old has written up to 100 MB, and its log is read at each look of a start."""
    node = ApiNode({"_ping": lambda: b"OK", "json": lambda: json.dumps(TTY).encode(), "logs": lambda: b"x"})
    with reading(node) as reader:
        reader.log("c", **options)

    (query,) = [parse_qs(urlsplit(path).query) for path in node.asked if "/logs?" in path]
    assert query["tail"] == [tail]


@pytest.mark.parametrize("read", [Engine.volumes, Engine.used_images])
def test_a_list_that_docker_cannot_make_is_not_an_empty_one(read: Callable[[Engine], object]) -> None:
    """`uninstall` would leave its volumes, and `prune` take every image for unused."""
    problem = b'{"message": "the store is locked"}'
    node = ApiNode({"_ping": lambda: b"OK", "volumes": lambda: problem, "json": lambda: problem}, status=500)
    with reading(node) as reader, pytest.raises(NotReady, match="the store is locked"):
        read(reader)


def test_a_node_without_volumes_has_none() -> None:
    """Docker before 24 replies null then."""
    with reading(ApiNode({"_ping": lambda: b"OK", "volumes": lambda: b'{"Volumes": null}'})) as reader:
        assert reader.volumes() == []


def test_the_image_of_every_container_is_known_by_the_name_of_the_container() -> None:
    listed = [{"Id": "1", "Names": ["/mine"], "ImageID": "sha256:a"}, {"Id": "2", "Names": [], "ImageID": "sha256:b"}]
    with reading(ApiNode({"_ping": lambda: b"OK", "json": lambda: json.dumps(listed).encode()})) as reader:
        assert reader.used_images() == {"mine": "sha256:a", "2": "sha256:b"}


@dataclass(frozen=True)
class RedirectingNode(ApiNode):
    """A node in whose Docker's place a program answers that sends its clients elsewhere."""

    def pipe(self, _: Command) -> Stream:
        near, far = socket.socketpair()
        ping = b"HTTP/1.1 200 OK\r\nApi-Version: 1.43\r\nContent-Length: 0\r\n\r\n"
        away = b"HTTP/1.1 302 Found\r\nLocation: http+docker://localhost/elsewhere\r\nContent-Length: 0\r\n\r\n"

        def serve() -> None:
            with far:
                while request := far.recv(2**16):
                    self.asked.append(request.split()[1].decode())
                    far.sendall(ping if b"_ping" in request else away)

        threading.Thread(target=serve, daemon=True).start()
        return near


def test_a_redirect_in_place_of_docker_leads_nowhere() -> None:
    node = RedirectingNode({})
    with reading(node) as reader, pytest.raises(ConnectionLost, match="Exceeded 0 redirects"):
        reader.container("c")

    assert [path.rpartition("/")[2] for path in node.asked] == ["_ping", "json"]
