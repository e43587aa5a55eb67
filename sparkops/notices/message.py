"""A notice as JSON for receivers, and its signature. Pure.

A receiver verifies `sparkops-signature: t=SECONDS,v1=HEX`, where HEX is the HMAC-SHA256, by the key of the webhook, of
the text `SECONDS.` and the body. SECONDS is the Unix time of the attempt, by the clock of the sending node: a receiver
that refuses old ones is safe from replays.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.notices.catalogue import CATALOGUE, Code, Notice

SCHEMA = 1
SIGNATURE, EVENT_ID = "sparkops-signature", "sparkops-event-id"
"""Names of headers."""
MOST_TEXT = 1000
"""Most characters of a text: chat services refuse longer messages, and a queue of many must stay small."""


@dataclass(frozen=True)
class Numbered:
    """A notice with its place among those of its node. `n` grows by one; `id` is the same at each attempt to send it.

    `at`: UTC, such as 2026-11-26T15:00:00Z, by the clock of the node.
    """

    n: int
    id: str
    at: str
    notice: Notice


def as_json(node: str, numbered: Numbered, lost: int = 0) -> dict[str, Any]:
    """Return a notice of a node as receivers and `sparkops events --json` have it.

    `lost`: how many notices of this node right before it the receiver will never get.
    """
    notice = numbered.notice
    entry = CATALOGUE[notice.code]
    return {
        "schema": SCHEMA,
        "id": numbered.id,
        "node": node,
        "n": numbered.n,
        "at": numbered.at,
        "code": notice.code.value,
        "state": notice.state.value,
        "severity": entry.severity.value,
        "service": notice.service or None,
        "subject": notice.subject,
        "text": notice.text,
        "next_step": notice.next_step,
        "lost": lost,
    }


def packed(message: Mapping[str, Any]) -> bytes:
    """Return the body of a request."""
    return json.dumps(message).encode()


def signature(key: str, body: bytes, at: int) -> str:
    """Return the value of the header SIGNATURE. `at`: Unix time in seconds."""
    digest = hmac.new(key.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def shown(message: Mapping[str, Any]) -> str:
    """Return one line for people."""
    state = "" if message["state"] == "once" else f" {message['state']}"
    service = f"{message['service']}: " if message.get("service") else ""
    line = f"{message['at']}  {message['severity']:<8} {message['code']}{state}  {message['node']}: {service}"
    return f"{line}{str(message['text']).partition(chr(10))[0]}"


TEST = Notice(Code.TEST, "test of the webhook: nothing has happened")
