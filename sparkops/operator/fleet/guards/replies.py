"""Replies of a guard to operators: errors, invalid lines, and past events. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar

from sparkops.errors import Busy, NeedsOperator, NodeError, NotUnderstood, PlanRefused, SparkopsError
from sparkops.node.docker.places import CONTAINER
from sparkops.swap.catalogue import NoticeState
from sparkops.swap.wire import UNKNOWN, WireError

Read = TypeVar("Read")


def unfit(op: str, line: str, limit: int) -> str:
    """Return why a line is not a reply of at most `limit` characters; empty for a reply."""
    if len(line) > limit:
        return f"the guard's reply to `{op}` has more than {limit} characters"
    if line and not line.startswith("{"):
        return f"the guard did not receive `{op}`: {line.strip()}"
    return "" if line.endswith("\n") else f"the guard ended before it replied to `{op}`"


def refusal(node: str, reply: Mapping[str, Any]) -> SparkopsError:
    """Return the error in a guard's reply, with its exit code; with 1 for a code that is none of an error."""
    text, step, code = str(reply["error"]), str(reply.get("next_step", "")), reply.get("exit_code")
    if kind := next((kind for kind in (Busy, PlanRefused, NeedsOperator) if kind.exit_code == code), None):
        return kind(f"{node}: {text}", next_step=step)
    error = (NotUnderstood if text.startswith(UNKNOWN) else NodeError)(node, text, next_step=step)
    error.exit_code = code if isinstance(code, int) and 0 < code < 256 else 1
    return error


def parsed(node: str, op: str, reply: Any, read: Callable[[Any], Read]) -> Read:
    """Return the reply to a request as `read` reads it. Raises WireError for one of another form."""
    try:
        return read(reply)
    except (WireError, LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = str(error) if isinstance(error, WireError) else repr(error)[:200]
        step = getattr(error, "next_step", "") or f"docker logs {CONTAINER}, on {node}"
        raise WireError(f"{node}: the guard's reply to `{op}` has another form: {why}", next_step=step) from None


Record = Mapping[str, Any]
"""One event as a guard keeps it."""


def records(reply: Any) -> list[dict[str, Any]]:
    """Return the events of a reply. Raises an error for what lacks number, time, kind or text."""
    return [
        {**event, "n": int(event["n"]), **{key: str(event[key]) for key in ("at", "kind", "text")}} for event in reply
    ]


def merge(*histories: Iterable[Record]) -> list[Record]:
    """Join the lasting events of several guards by time. Each event is one guard's alone, also of a former leader."""
    joined = (event for event in chain.from_iterable(histories) if event.get("lasting", True))
    return sorted(joined, key=lambda event: str(event["at"]))


def notable(histories: Mapping[str, Iterable[Record]]) -> list[Record]:
    """Return the events of all services that an operator must know, by time, each with its `service`."""
    events = [
        {**event, "service": service}
        for service, history in histories.items()
        for event in history
        if isinstance(event.get("notice"), Mapping)
    ]
    return sorted(events, key=lambda event: str(event["at"]))


def notable_line(event: Record) -> str:
    """Return the line of an event that an operator must know: time, code, service and text."""
    notice, text = event["notice"], str(event["text"]).partition("\n")[0]
    state = "" if notice.get("state") == NoticeState.ONCE else f" {notice.get('state')}"
    node = f"{event['node']}: " if event.get("node") else ""
    return f"{event['at']}  {notice.get('code')}{state}  {event['service']}: {node}{text}"


def lines(event: Record) -> Iterator[str]:
    """Yield the lines of one event: time, kind and text; then where its evidence is."""
    first, *rest = str(event.get("text", "")).splitlines() or [""]
    node = f"{event['node']}: " if event.get("node") else ""
    yield f"{event['at']}  {event.get('kind', ''):<8} {node}{first}".rstrip()
    yield from (f"  {line}" for line in rest)
    yield from (f"  evidence: {where}" for where in event.get("evidence") or ())
