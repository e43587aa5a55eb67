"""`serve.sticky` with the real HAProxy: a conversation stays with one of three servers, and only a dead one's move."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.names import Slot
from sparkops.operator.build.gateway.image import Service
from tests.gateway.live import CHAT, PORT, Live, wait_for

pytestmark = pytest.mark.fleet

BLUE = Slot.BLUE
RELEASE = "chat-0123456789"
PORTS = {"one": 9321, "two": 9322, "three": 9323}
PATH = "/v1/chat/completions"
SETTLED_S = 0.02
"""HAProxy counts a request for a moment after its response, and two at once may be too many for one server."""
Message = dict[str, Any]


@pytest.fixture
def three(alone: Live) -> Iterator[Live]:
    """The gateway with a sticky service and three engines behind it, and afterwards as it was."""
    alone.run(commands.switch_down("chat"))
    alone.configure(Service("chat", PORT, sticky=True))
    with alone.engine("one", PORTS["one"]), alone.engine("two", PORTS["two"]), alone.engine("three", PORTS["three"]):
        servers = [Endpoint("127.0.0.1", port, RELEASE) for port in PORTS.values()]
        alone.run(commands.point("chat", BLUE, RELEASE, servers))
        alone.run(commands.switch("chat", BLUE, RELEASE))
        yield alone
        alone.run(commands.switch_down("chat"))
    alone.configure(CHAT)
    alone.point(BLUE)


def message(role: str, content: object) -> Message:
    return {"role": role, "content": content}


def opening(number: int) -> list[Message]:
    """The first messages of a conversation; all have one system prompt."""
    return [message("system", "Be kind."), message("user", f"Question {number}")]


def grown(messages: list[Message]) -> Iterator[list[Message]]:
    """A conversation after each of its turns; the last ones do not fit into a buffer."""
    for turn, size in enumerate((0, 10, 1_000, 30_000, 90_000, 300_000)):
        answered = [message("assistant", f"{turn} \u2019 \\" + "x" * size), message("user", "And?")]
        messages = [*messages, *(answered if size else [])]
        yield messages


def engine_of(live: Live, body: object, path: str = PATH, *, escaped: bool = True) -> str:
    """The engine that answers a request."""
    sent = json.dumps(body, ensure_ascii=escaped).encode()
    time.sleep(SETTLED_S)
    with closing(live.connect()) as connection:
        connection.request("POST", path, sent, {"content-type": "application/json"})
        response = connection.getresponse()
        answer = response.read()
        assert response.status == 200, answer
        return response.headers["x-stand-in"]


def servers_of(live: Live, count: int = 60) -> dict[int, str]:
    """The engine of each of many conversations."""
    return {number: engine_of(live, {"messages": opening(number), "model": "chat"}) for number in range(count)}


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize(
    "first",
    [
        opening(1),
        [message("user", "Question 3")],
        [
            message("developer", '\u4f60\u597d / \\u "x"'),
            message("user", [{"type": "text", "text": "Question 4 \u2019"}]),
        ],
        [message("user", [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": "5"}])],
        [message("system", "s" * 100_000), message("user", "Question 6")],
        [message("system", "Be kind."), message("user", "u" * 100_000)],
    ],
    ids=["system and user", "user", "parts and escapes", "image", "large system prompt", "large question"],
)
def test_a_conversation_stays_with_one_server_as_it_grows(three: Live, first: list[Message], *, escaped: bool) -> None:
    engines = [
        engine_of(three, {"model": "chat", "messages": messages, "stream": False}, escaped=escaped)
        for messages in grown(first)
        for _ in range(4)
    ]

    assert len({*engines}) == 1, engines


@pytest.mark.parametrize(
    ("path", "bodies"),
    [
        ("/v1/completions", [{"prompt": "p" * size} for size in (1024, 2000, 300_000)]),
        ("/v1/responses", [{"input": "Question", "temperature": part} for part in (0.1, 0.25)]),
        ("/v1/responses", [{"input": messages} for messages in grown(opening(7))]),
        ("/v1/messages", [{"system": "Be kind.", "messages": messages} for messages in grown([message("user", "8")])]),
    ],
    ids=["completions", "responses, text", "responses", "messages"],
)
def test_other_paths_have_conversations_too(three: Live, path: str, bodies: list[object]) -> None:
    assert len({engine_of(three, body, path) for body in bodies for _ in range(4)}) == 1


def test_conversations_spread_and_only_those_of_a_dead_server_move_and_come_back(three: Live) -> None:
    before = servers_of(three)
    shares = Counter(before.values())
    assert {*shares} == {*PORTS}
    assert min(shares.values()) >= 8, shares
    assert servers_of(three) == before

    engine = three.engines["two"]
    assert engine.stdin
    engine.stdin.close()
    engine.wait()
    stayed = {number: name for number, name in before.items() if name != "two"}
    unnoticed = servers_of(three)  # a failed connection goes to another server
    assert {number: unnoticed[number] for number in stayed} == stayed
    wait_for("down", lambda: three.slot(BLUE).down == (f"127.0.0.1:{PORTS['two']}",))
    down = servers_of(three)
    assert {number: down[number] for number in stayed} == stayed
    assert {name for number, name in down.items() if number not in stayed} == {"one", "three"}
    assert servers_of(three) == down

    with three.engine("two", PORTS["two"]):
        wait_for("up", lambda: three.slot(BLUE).down == ())
        assert servers_of(three) == before


def test_a_reload_moves_no_conversation(three: Live) -> None:
    before = servers_of(three, 12)

    assert three.facts.services["chat"].sticky
    three.configure(Service("chat", PORT, ("fast",), sticky=True))

    assert servers_of(three, 12) == before


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (PATH, {"messages": []}),
        (PATH, ["no object"]),
        ("/v1/embeddings", {"input": "x"}),
        ("/tokenize", {"prompt": "x"}),
    ],
)
def test_requests_without_a_conversation_are_spread(three: Live, path: str, body: object) -> None:
    assert len({engine_of(three, body, path) for _ in range(20)}) > 1


def test_a_setting_of_the_service_turns_it_off(three: Live) -> None:
    three.configure(CHAT)

    assert not three.facts.services["chat"].sticky
    assert len({engine_of(three, {"messages": opening(1)}) for _ in range(12)}) == 3
