"""Signatures and envelopes of messages between guards."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import replace

import pytest

from sparkops.guard import messages
from sparkops.guard.messages import Envelope, MessageRefused, Orders
from sparkops.swap import wire
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.orders import Order
from sparkops.swap.wire import WireError

KEY = messages.derive(b"fleet key", "spark-2")
ENVELOPE = Envelope("order", "spark-1", "spark-2", 3, 17, "link", "theirs", "mine")
ORDER = Order(Journal("chat", "spark-1", term=3, revision=17), "boot-2", (), None)


def packed(envelope: Envelope = ENVELOPE) -> bytes:
    return messages.pack(KEY, envelope, b'{"orders":{}}')


def test_the_key_of_a_node_is_its_own() -> None:
    expected = hmac.new(b"fleet key", b"sparkops node key 1\nspark-2", hashlib.sha256).digest()

    assert expected == KEY
    assert len({KEY, messages.derive(b"fleet key", "spark-1"), messages.derive(b"fleet kez", "spark-2")}) == 3


def test_a_message_is_three_lines_and_signs_two_of_them() -> None:
    signature, envelope, body = packed().split(b"\n")

    signed = b"sparkops message 1\n" + envelope + b"\n" + body
    assert signature == hmac.new(KEY, signed, hashlib.sha256).hexdigest().encode()
    assert messages.unpack(messages.verify(KEY, packed())) == (ENVELOPE, b'{"orders":{}}')


def test_a_change_of_any_byte_is_refused() -> None:
    message = packed()

    for at in range(len(message)):
        changed = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
        with pytest.raises(MessageRefused, match="its signature does not match the key of this node"):
            messages.verify(KEY, changed)


@pytest.mark.parametrize("cut", [b"", b"\n", b"\n\n", packed()[:-1], packed() + b" ", packed()[65:]])
def test_a_part_of_a_message_is_refused(cut: bytes) -> None:
    with pytest.raises(MessageRefused):
        messages.verify(KEY, cut)


class Guarded(bytes):
    """A signature that must not be compared by `==`: the time that this takes tells how many bytes are right."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared byte by byte")

    __ne__ = __eq__
    __hash__ = bytes.__hash__


def test_how_long_a_comparison_takes_tells_nothing_of_a_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    sign, message = messages.sign, packed()
    monkeypatch.setattr(messages, "sign", lambda key, content: Guarded(sign(key, content)))

    assert messages.verify(KEY, message)
    with pytest.raises(MessageRefused):
        messages.verify(KEY, b"0" * 64 + message[64:])


def test_a_message_for_another_node_is_refused() -> None:
    with pytest.raises(MessageRefused):
        messages.verify(messages.derive(b"fleet key", "spark-3"), packed())


@pytest.mark.parametrize(
    "changed",
    [{"direction": "report"}, {"receiver": "spark-3"}, {"term": 4}, {"revision": 16}, {"answers": ""}, {"link": "x"}],
)
def test_every_value_of_an_envelope_is_required(changed: dict[str, str | int]) -> None:
    content = messages.verify(KEY, packed(replace(ENVELOPE, **changed)))  # type: ignore[arg-type]
    envelope, _ = messages.unpack(content)
    (name,) = changed

    messages.require(envelope, **changed)
    with pytest.raises(MessageRefused, match=f"^message refused: {name} is "):
        messages.require(envelope, **{name: getattr(ENVELOPE, name)})


def test_the_envelope_has_the_highest_term_and_revision_of_the_orders() -> None:
    older = replace(ORDER, journal=replace(ORDER.journal, service="embed", revision=4))
    orders = Orders({"chat": ORDER, "embed": older, "other": None})
    assert (orders.term, orders.revision) == (3, 17)
    assert (Orders({"chat": None}).term, Orders({}).revision) == (0, 0)

    assert messages.read_orders(ENVELOPE, wire.dump(Orders, orders)) == messages.Message("spark-1", orders.orders)
    for wrong in (replace(ENVELOPE, term=2), replace(ENVELOPE, revision=18)):
        with pytest.raises(MessageRefused, match=r"message refused: (term|revision) is"):
            messages.read_orders(wrong, wire.dump(Orders, orders))


def test_a_message_of_another_format_is_refused_with_the_next_step() -> None:
    newer = json.loads(wire.dump(Envelope, ENVELOPE)) | {"schema": SCHEMA + 1, "colour": "blue"}

    with pytest.raises(WireError, match="Envelope has format 3, expected 2") as caught:
        messages.unpack(json.dumps(newer).encode() + b"\n{}")

    assert caught.value.next_step


def test_a_message_that_is_too_large_is_not_sent() -> None:
    with pytest.raises(MessageRefused, match=r"^message to spark-2: \d+ bytes, expected up to 4194304$"):
        messages.pack(KEY, ENVELOPE, bytes(messages.MAX_BYTES))
