"""What a real gateway said, read back. The captured replies are those of HAProxy 2.6.12."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkops.gateway import facts
from sparkops.gateway.facts import GatewayFacts, HoldFacts, SlotFacts
from sparkops.names import Slot
from sparkops.swap.journal import SCHEMA
from sparkops.swap.wire import OtherFormat
from tests.gateway.counts import Counts, counts

CAPTURED = Path(__file__).parent / "captured"
BLUE, GREEN = Slot


def load(name: str) -> Any:
    return json.loads((CAPTURED / f"{name}.json").read_text())


def parse(of: Any) -> GatewayFacts:
    return facts.parse_gateway(json.dumps(of))


def test_a_new_gateway_serves_nobody() -> None:
    gateway = parse(load("new"))

    assert list(gateway.services) == ["chat"]
    chat = gateway.services["chat"]
    assert (chat.port, chat.file, chat.runtime, chat.active) == (9300, "be_down", "be_down", None)
    assert chat.slots[BLUE] == SlotFacts("chat", BLUE, release="", named="", servers=())
    assert (gateway.loaded, gateway.drift) == (True, ())
    assert set(gateway.files) == {"gateway.cfg", "services/chat.cfg"}


def test_a_draining_slot_counts_the_sessions_of_old_workers() -> None:
    gateway = parse(load("draining"))

    chat = gateway.services["chat"]
    assert chat.active == chat.slots[GREEN]
    assert chat.slots[BLUE] == SlotFacts(
        service="chat",
        slot=BLUE,
        release="chat-0123456789",
        named="chat-0123456789",
        servers=("127.0.0.1:9311",),
        serving=("127.0.0.1:9311",),
        sessions=2,
    )
    assert chat.slots[GREEN].sessions == 0
    assert counts(load("draining"), BLUE) == Counts(workers=2, old_sessions=1, requests=3, errors=0, answers_5xx=0)
    assert counts(load("draining"), GREEN).requests == 1
    assert gateway.drift == ()


def test_requests_of_an_old_worker_that_does_not_reply_are_not_counted_as_none() -> None:
    shown = load("draining")
    shown["haproxy"]["statistics"].popitem()

    chat = parse(shown).services["chat"]

    assert (chat.slots[BLUE].sessions, chat.active) == (None, chat.slots[GREEN])


def test_a_service_without_a_port_of_its_own_has_that_of_the_one_address_and_a_path() -> None:
    shown = load("new")

    own = parse({**shown, "ports": {"chat": 8001}, "port": 8000}).services["chat"]
    shared = parse({**shown, "ports": {"chat": 0}, "port": 8000}).services["chat"]

    assert (own.port, own.path) == (8001, "")
    assert (shared.port, shared.path) == (8000, "/chat")


def test_a_sticky_service_is_shown_and_an_earlier_gateway_shows_none() -> None:
    shown = load("new")

    assert not parse(shown).services["chat"].sticky
    assert parse({**shown, "sticky": ["chat"]}).services["chat"].sticky


def test_requests_that_wait_are_counted_with_their_bounds() -> None:
    shown = load("new")
    shown["holds"] = {"chat": {"mark": "1.2+", "until": 1e9, "left_s": 60.0, "longest_s": 540.0, "most": 500}}
    shown["map"], shown["haproxy"]["map"] = "chat be_chat_wait\n", "0x1 chat be_chat_wait\n"
    room = {"waiting_requests": 3, "longest_wait_seconds": 41.5, "remaining_seconds": 12.5}

    chat = parse({**shown, "room": {"chat": room}}).services["chat"]
    assert chat.hold == HoldFacts("1.2+", longest_s=540.0, most=500, waiting=3, wait_s=41.5, left_s=12.5)
    assert (chat.active, chat.holds) == (None, True)

    closed = parse({**shown, "room": None}).services["chat"]
    assert closed.hold == HoldFacts("1.2+", longest_s=540.0, most=500, waiting=0, wait_s=0.0, left_s=0)
    assert parse(load("new")).services["chat"].hold is None


def test_without_haproxy_the_files_are_known() -> None:
    gateway = parse(load("down"))

    chat = gateway.services["chat"]
    assert (chat.file, chat.runtime) == ("be_chat_green", "")
    assert chat.active == chat.slots[GREEN]
    assert chat.slots[GREEN].servers == ("127.0.0.1:9312",)
    assert gateway.problem.startswith("HAProxy does not answer: ")
    assert gateway.drift == (("GATEWAY_DOWN", gateway.problem),)


@pytest.mark.parametrize(
    ("change", "drift"),
    [
        (
            {"map": "chat be_chat_blue\nembed be_down\n"},
            ("MAP_RUNTIME_DIFF", "chat: be_chat_blue in the file, be_chat_green in HAProxy"),
        ),
        (
            {"map": "chat be_chat_green\nemb"},
            ("MAP_RUNTIME_DIFF", "embed: nothing in the file, be_down in HAProxy"),
        ),
        ({"loaded": False}, ("GATEWAY_NOT_LOADED", "HAProxy does not run with the gateway's files")),
    ],
)
def test_a_disagreement_has_a_name(change: dict[str, Any], drift: tuple[str, str]) -> None:
    assert parse({**load("draining"), **change}).drift == (drift,)


def test_what_haproxy_names_must_be_what_the_slot_was_pointed_at() -> None:
    changed = load("draining")
    changed["haproxy"]["releases"] = changed["haproxy"]["releases"].replace("chat-0123456789", "chat-other")

    problem = "chat blue: pointed at chat-0123456789, HAProxy names chat-other"
    assert parse(changed).drift == (("RELEASE_DIFF", problem),)


def test_servers_must_be_where_the_slot_was_pointed() -> None:
    changed = load("draining")
    changed["slots"]["be_chat_blue"]["servers"] = ["10.0.0.9:8001"]

    problem = "chat blue: pointed at 10.0.0.9:8001, HAProxy has 127.0.0.1:9311"
    assert parse(changed).drift == (("SERVERS_DIFF", problem),)


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
def test_a_gateway_of_another_format_is_refused_with_its_format(schema: int) -> None:
    with pytest.raises(OtherFormat, match=f"^the gateway has format {schema}, expected {SCHEMA}$") as refused:
        parse({"format": schema})
    assert "sparkops" in refused.value.next_step


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"haproxy": {}}', "null"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|unexpected output of the gateway"):
        facts.parse_gateway(text)


def test_errors_of_a_service_are_counted_by_process_with_those_of_requests_that_waited() -> None:
    shown = load("draining")
    statistics = shown["haproxy"]["statistics"]
    for pid, text in statistics.items():
        head, *rows = text.splitlines()
        at = head.removeprefix("# ").split(",").index("hrsp_5xx")
        cells = [row.split(",") for row in rows if row]
        cells += [["be_chat_wait", *row[1:]] for row in cells if row[:2] == ["be_chat_blue", "BACKEND"]]
        for row in cells:
            row[at] = "2" if row[1] == "BACKEND" else row[at]
        statistics[pid] = "\n".join([head, *map(",".join, cells)])

    assert parse(shown).services["chat"].errors == {"57": 6, "18": 6}
