"""The rules of the page's server: who gets what, and what every reply says to the browser."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import pytest

from sparkops.operator.status.page.feed import Feed
from sparkops.operator.status.page.server import FILES, HEADERS, METHODS, SHELL, Asked, Reply, Site, serve

TOKEN, PORT = "t0ken", 4711
HOST = f"127.0.0.1:{PORT}"
PICTURE = {"status": {"nodes": ["</script>"]}}


@contextmanager
def site() -> Iterator[Site]:
    feed = Feed(lambda: PICTURE, wait_s=0.2, pause_s=60.0)
    reading = threading.Thread(target=feed.run)
    reading.start()
    try:
        yield Site(feed, lambda: ["mine", "a b"], lambda recipe: f"plan of {recipe}", TOKEN, PORT)
    finally:
        feed.close()
        reading.join()


def answer(target: str, token: str = TOKEN, host: str = HOST, method: str = "GET", tag: str = "") -> Reply:
    with site() as served:
        return served.answer(Asked(method, target, host, token, tag))


DATA = ("/status.json", "/recipes.json", "/plan?recipe=mine")


@pytest.mark.parametrize("target", DATA)
@pytest.mark.parametrize("token", ["", "t0ke", "t0kenn", "T0KEN", "tökén", "\udcff"])
def test_nothing_of_the_fleet_is_sent_without_the_token(target: str, token: str) -> None:
    reply = answer(target, token)

    assert (reply.status, reply.body) == (
        HTTPStatus.FORBIDDEN,
        b"Open the address that `sparkops ui` printed: it contains a token.\n",
    )


@pytest.mark.parametrize("target", [*DATA, *SHELL])
@pytest.mark.parametrize(
    "host", ["", "evil.example", f"evil.example:{PORT}", "127.0.0.1", "localhost:80", f"[::1]:{PORT}"]
)
def test_a_name_that_was_bound_to_this_machine_later_gets_nothing(target: str, host: str) -> None:
    assert answer(target, host=host).status is HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize("target", [*DATA, *SHELL])
@pytest.mark.parametrize("method", [*METHODS, "BREW"])
def test_every_method_but_get_is_refused(target: str, method: str) -> None:
    reply = answer(target, method=method)

    assert (reply.status, reply.headers) == (HTTPStatus.METHOD_NOT_ALLOWED, {"Allow": "GET"})


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (f"/?token={TOKEN}", HTTPStatus.OK),
        ("/", HTTPStatus.OK),
        ("/?token=wrong", HTTPStatus.FORBIDDEN),
        ("/page.py", HTTPStatus.NOT_FOUND),
        ("/../server.py", HTTPStatus.NOT_FOUND),
        ("/page.js/", HTTPStatus.NOT_FOUND),
        ("//status.json", HTTPStatus.NOT_FOUND),
        ("http://evil.example/status.json", HTTPStatus.OK),
    ],
)
def test_only_the_files_of_the_page_and_its_data_have_an_address(target: str, status: HTTPStatus) -> None:
    assert answer(target).status is status


def test_the_picture_has_a_tag_and_is_not_sent_twice() -> None:
    with site() as served:
        first = served.answer(Asked("GET", "/status.json", HOST, TOKEN))
        tag = first.headers["ETag"]
        again = served.answer(Asked("GET", "/status.json", HOST, TOKEN, tag))

    assert (first.status, json.loads(first.body)) == (HTTPStatus.OK, PICTURE)
    assert (again.status, again.body, again.headers) == (HTTPStatus.NOT_MODIFIED, b"", {"ETag": tag})


def test_a_plan_is_made_of_a_known_recipe_alone() -> None:
    assert answer("/plan?recipe=a%20b").body == b"plan of a b"
    for recipe in ("", "other", "--set=x", "../mine", "mine%00"):
        assert answer(f"/plan?recipe={recipe}").status is HTTPStatus.NOT_FOUND


def test_the_policy_allows_the_pages_own_files_and_nothing_inline() -> None:
    policy = HEADERS["Content-Security-Policy"]

    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; ")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy


def test_the_page_has_no_inline_script_style_or_handler_and_names_no_other_machine() -> None:
    page, script, style = ((FILES / name).read_text() for name, _ in SHELL.values())

    for text in (page, script, style):
        assert "http:" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https:" not in text
    for sink in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "style="):
        assert sink not in script + page
    assert "<script>" not in page
    assert " on" not in "".join(part.partition(">")[0] for part in page.split("<")[1:])


@pytest.fixture
def port() -> Iterator[int]:
    with site() as here, serve(here):
        yield here.port


def asked(port: int, method: str, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers=headers)
    reply = connection.getresponse()
    return reply.status, dict(reply.getheaders()), reply.read()


@pytest.mark.local
@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 200),
        ("GET", "/status.json", {"Authorization": f"Bearer {TOKEN}"}, 200),
        ("GET", "/status.json", {"Authorization": f"Basic {TOKEN}"}, 403),
        ("GET", "/status.json", {"Cookie": f"token={TOKEN}"}, 403),
        ("GET", f"/status.json?token={TOKEN}", {}, 403),
        ("GET", "/status.json", {"Host": "evil.example", "Authorization": f"Bearer {TOKEN}"}, 421),
        ("POST", "/status.json", {"Authorization": f"Bearer {TOKEN}"}, 405),
        ("OPTIONS", "/status.json", {"Origin": "http://evil.example"}, 405),
        ("BREW", "/", {}, 405),
        ("GET", "/none", {"Authorization": f"Bearer {TOKEN}"}, 404),
    ],
)
def test_over_http_every_reply_has_the_headers(
    port: int, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    got, received, _ = asked(port, method, path, **headers)

    assert got == status
    assert {name: received.get(name) for name in HEADERS} == HEADERS
    assert not {name for name in received if name.startswith("Access-Control") or name == "Set-Cookie"}


@pytest.mark.local
@pytest.mark.parametrize("sent", [b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\r\n\r\n"])
def test_what_is_no_request_ends_its_connection_alone(port: int, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.sendall(sent)
        while connection.recv(65536):
            pass

    assert asked(port, "GET", "/")[0] == 200


@pytest.mark.local
def test_two_pages_have_ports_and_tokens_of_their_own_and_only_on_loopback(port: int) -> None:
    with site() as other, serve(other):
        assert other.port != port
        assert asked(other.port, "GET", "/")[0] == asked(port, "GET", "/")[0] == 200
        with pytest.raises(OSError, match="in use"), serve(Site(Feed(dict)), port):
            pass
    assert Site(Feed(dict)).token != Site(Feed(dict)).token
    with socket.socket() as everywhere:
        everywhere.settimeout(60)
        assert everywhere.connect_ex(("127.0.0.2", port)) != 0
