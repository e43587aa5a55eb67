"""A container of an agent: wait until it replies, or remove it. Guards import this too, so it builds no image."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sparkops.errors import CommandFailed, ConnectionLost, NodeError, StartFailed
from sparkops.node.docker import commands
from sparkops.node.member import Member
from sparkops.node.waiting import Waiting

PATIENCE_S, POLL_S = 30.0, 0.2
LOG_TAIL = 10
T = TypeVar("T")


def discard(member: Member, name: str, stop_s: int) -> None:
    """Stop a container within `stop_s` seconds, remove it, and its image unless something else needs it."""
    container = member.engine.container(name)
    if container is None:
        return
    if container["State"]["Running"]:
        member.node.run(commands.stop(name, stop_s))
    member.node.run(commands.remove(name))
    with suppress(CommandFailed):
        member.node.run(commands.remove_image(container["Image"]))


def answered(member: Member, container: str, attempt: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Return the reply of a container that may still be starting. Raises StartFailed with the end of its log."""
    try:
        return Waiting(POLL_S, patience_s, member.node.cancel).retry(attempt, _may_pass)
    except (NodeError, ValueError) as error:
        if not _may_pass(error):
            raise
        log = member.engine.log(container, tail=LOG_TAIL)
        raise StartFailed(member.name, f"{container} does not answer: {error}\n{log}") from error


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, NodeError | ValueError) and not isinstance(error, ConnectionLost)
