"""The one address of a real gateway: services by the model of the body, or by the path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from sparkops.config.inventory import Gateway
from sparkops.gateway import commands
from sparkops.names import Slot
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.build.gateway.image import Service
from sparkops.swap.effects import RequestHold
from tests.gateway.live import METRICS, PORT, RELEASES, SERVED_BY, Answer, Live, is_documented_refusal, wait_for

pytestmark = pytest.mark.fleet

ONE = 9380
KEY = "sk-valid-0123456789abcdef"
BLUE, GREEN = Slot
CHAT = "/v1/chat/completions"


@pytest.fixture
def one(live: Live) -> Iterator[Live]:
    """The gateway with its one address; chat is served by blue, embed by green."""
    live.gateway = Gateway(node="n", metrics_port=METRICS, port=ONE)
    live.configure(Service("chat", PORT), Service("embed", PORT + 3))
    live.point(GREEN, "embed")
    live.switch(GREEN, "embed")
    yield live
    live.run(commands.switch_down("embed"))
    live.run(commands.forget("embed"))
    live.gateway = Gateway(node="n", metrics_port=METRICS)
    live.configure()


def send(live: Live, body: bytes, path: str = CHAT) -> Answer:
    with closing(live.connect(ONE)) as connection:
        connection.request("POST", path, body)
        return Answer.of(connection.getresponse())


def test_an_alias_names_the_service_in_body_and_path_and_is_listed(one: Live) -> None:
    one.configure(Service("chat", PORT, ("fast", "org/chat")), Service("embed", PORT + 3))

    for name in ("fast", "org/chat"):
        assert one.ask(CHAT, {"model": name}, port=ONE).served_by == SERVED_BY[BLUE]
        listed = one.ask(f"/v1/models/{name}", port=ONE).json
        assert (listed["id"], listed["root"], listed["release"]) == (name, "chat", RELEASES[BLUE])
    assert one.ask("/fast/v1/models", port=ONE).served_by == SERVED_BY[BLUE]
    assert [model["id"] for model in one.ask("/v1/models", port=ONE).json["data"]] == [
        "chat",
        "fast",
        "org/chat",
        "embed",
    ]
    assert one.facts.services["chat"].aliases == ("fast", "org/chat")
    assert one.ask("/v1/models/../sleep", port=ONE).json["error"]["code"] == "unknown_path"


def test_the_model_of_the_body_names_the_service(one: Live) -> None:
    padding = {"messages": "x" * 90_000}  # OpenAI's clients send the model last

    assert one.ask(CHAT, {"model": "chat"}, port=ONE).served_by == SERVED_BY[BLUE]
    assert one.ask(CHAT, {**padding, "model": "embed"}, port=ONE).served_by == SERVED_BY[GREEN]
    assert one.ask(CHAT, {"model": "embed"}).served_by == SERVED_BY[BLUE]  # a port of its own asks no body


@pytest.mark.parametrize("size", [100_000, 1_000_000, 20_000_000])
def test_the_model_of_a_large_body_names_the_service(one: Live, size: int) -> None:
    for fields in ({"messages": "x" * size, "model": "embed"}, {"model": "embed", "messages": "x" * size}):
        assert send(one, json.dumps(fields).encode()).served_by == SERVED_BY[GREEN]


def test_a_body_whose_model_is_not_read_is_told_the_path(one: Live) -> None:
    one.gateway = one.gateway.model_copy(update={"max_body_mib": 64})
    one.configure(Service("chat", PORT), Service("embed", PORT + 3))

    answer = send(one, json.dumps({"prompt": "x" * 2**25, "model": "chat"}).encode())

    assert (answer.status, answer.json["error"]["code"]) == (413, "request_too_large")
    assert "up to 32 MiB only. For larger ones, use the path /SERVICE/v1/..." in answer.json["error"]["message"]


def test_large_requests_wait_and_are_answered(one: Live) -> None:
    body = json.dumps({"messages": "x" * 1_000_000, "model": "embed"}).encode()
    one.run(commands.hold("embed", RequestHold("1.2", 60.0, 540.0, 10)))
    with ThreadPoolExecutor() as clients:
        waiting = [clients.submit(send, one, body) for _ in range(3)]
        wait_for("waiting", lambda: (hold := one.facts.services["embed"].hold) and hold.waiting == 3)
        one.switch(GREEN, "embed")
        assert [answer.result().served_by for answer in waiting] == [SERVED_BY[GREEN]] * 3


def test_the_path_names_the_service_whatever_the_body_is(one: Live) -> None:
    assert one.ask("/embed/v1/models", port=ONE).served_by == SERVED_BY[GREEN]
    large = json.dumps({"model": "embed", "prompt": "x" * 3_000_000}).encode()
    assert send(one, large, "/chat/v1/completions").served_by == SERVED_BY[BLUE]


def test_a_service_without_a_port_of_its_own_is_called_and_previewed_at_the_one_address(one: Live) -> None:
    one.configure(Service("chat", PORT), Service("embed", ONE))

    embed = one.facts.services["embed"]
    assert (embed.port, embed.path) == (ONE, "/embed")
    assert one.ask(CHAT, {"model": "embed"}, port=ONE).served_by == SERVED_BY[GREEN]
    assert one.run(commands.preview("embed", GREEN)) == RELEASES[GREEN]
    one.point(BLUE, "embed")
    for slot in Slot:
        assert one.ask("/embed/v1/models", port=ONE, x_sparkops_slot=slot.value).served_by == SERVED_BY[GREEN]
    assert one.facts.services["chat"].path == ""
    with pytest.raises(OSError, match="refused"):
        one.ask(port=PORT + 3)


def test_the_models_are_listed_with_their_releases(one: Live) -> None:
    listed = one.ask("/v1/models", port=ONE).json

    assert listed["object"] == "list"
    known = {model["id"]: (model["release"], model["state"]) for model in listed["data"]}
    assert known == {"chat": (RELEASES[BLUE], "serving"), "embed": (RELEASES[GREEN], "serving")}
    one.run(commands.switch_down("embed"))
    assert one.ask("/v1/models/embed", port=ONE).json["state"] == "down"


@pytest.mark.parametrize(
    ("body", "status", "code", "text"),
    [
        (b'{"model": "other"}', 404, "model_not_found", "Expected one of: chat, embed."),
        (b'{"messages": []}', 400, "invalid_request", "/SERVICE/v1/..."),
        (b"--x\r\nno JSON", 400, "invalid_request", "/SERVICE/v1/..."),
        (
            json.dumps({"prompt": "x" * 200_000, "model": "other"}).encode(),
            404,
            "model_not_found",
            "Expected one of: chat, embed.",
        ),
        (json.dumps({"prompt": "x" * 20_000_000}).encode(), 400, "invalid_request", "/SERVICE/v1/..."),
    ],
    ids=["unknown", "no model", "no JSON", "large and unknown", "large without a model"],
)
def test_a_body_that_names_no_service_is_told_what_to_do(
    one: Live, body: bytes, status: int, code: str, text: str
) -> None:
    answer = send(one, body)

    assert (answer.status, answer.json["error"]["code"]) == (status, code)
    assert text in answer.json["error"]["message"]


def test_keys_and_routes_hold_on_the_one_address(one: Live) -> None:
    one.gateway = Gateway(node="n", metrics_port=METRICS, port=ONE, api_keys=["key"])
    one.secrets = Secrets((KEY,))
    one.configure(Service("chat", PORT), Service("embed", PORT + 3))
    key = f"Bearer {KEY}"
    try:
        for path, body in (("/v1/models", None), ("/chat/v1/models", None), (CHAT, {"model": "chat"})):
            assert one.ask(path, body, port=ONE).status == 401
            assert one.ask(path, body, port=ONE, authorization=key).status == 200
        for path in (
            "/sleep",
            "/chat/sleep",
            "/chat/metrics",
            "/chat//sleep",
            "/metrics/waiting",
            "/chat/embed/v1/models",
        ):
            answer = one.ask(path, port=ONE, authorization=key)
            assert (answer.status, answer.json["error"]["code"]) == (404, "unknown_path"), path
    finally:
        one.secrets = Secrets()


def test_requests_of_one_service_wait_and_those_of_another_do_not(one: Live) -> None:
    one.run(commands.hold("embed", RequestHold("1.2", 60.0, 540.0, 10)))
    with ThreadPoolExecutor() as clients:
        waiting = clients.submit(one.ask, CHAT, {"model": "embed"}, port=ONE)
        wait_for("waiting", lambda: (hold := one.facts.services["embed"].hold) and hold.waiting == 1)

        assert one.ask(CHAT, {"model": "chat"}, port=ONE).served_by == SERVED_BY[BLUE]
        assert one.ask("/v1/models/embed", port=ONE).json["state"] == "waiting"
        one.switch(GREEN, "embed")
        assert waiting.result().served_by == SERVED_BY[GREEN]
    one.run(commands.switch_down("embed"))
    assert is_documented_refusal(one.ask(CHAT, {"model": "embed"}, port=ONE))
