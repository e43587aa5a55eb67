"""A moment in which no thread starts costs one attempt: the next one is as if it had not been."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparkops.command import Command, Completed
from sparkops.errors import ConnectionLost
from sparkops.gateway import commands
from sparkops.guard.disk.state import State
from sparkops.guard.follow.engines import ContainerReader
from sparkops.guard.follow.smoke_runs import light_pass
from sparkops.guard.lead.gateway_front import GatewayContainer, GatewayFront
from sparkops.guard.lead.lead import Lead
from sparkops.names import Slot
from sparkops.node.local import LocalNode
from sparkops.node.node import OnLine, Stream
from sparkops.serving.memory.relief import LOOKS
from sparkops.swap.model import Deployment, Replica
from tests.guard.promoted import promoted_rank
from tests.guard.test_reproductions import BOOT, SERVING, leadership
from tests.guard.watch.test_memory_floor import Here
from tests.node.recording import RecordingNode
from tests.node.threads import no_thread_starts

pytestmark = pytest.mark.local


@dataclass(frozen=True)
class RestartingGateway(RecordingNode):
    """A node whose gateway does not run: each command ends with an error of a real program."""

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        assert command == commands.SHOW
        return LocalNode(self.name).run(Command(("false",)), stdin=stdin, on_line=on_line)

    def pipe(self, command: Command) -> Stream:
        assert command == commands.SHOW_EACH
        return LocalNode(self.name).pipe(Command(("false",)))


def test_the_service_is_led_on(tmp_path: Path) -> None:
    lines: list[str] = []
    front = GatewayFront("chat", GatewayContainer(RestartingGateway("n1")))
    lead = Lead(SERVING, State(tmp_path, lambda: BOOT), front, dict, frozenset, lines.append)

    with no_thread_starts():
        lead.turn()
    lead.turn()

    assert lines == ["chat: n1: `false` cannot be run on this machine: can't start new thread"]
    assert not lead.frozen


def test_a_service_without_a_thread_is_not_taken_for_led(tmp_path: Path) -> None:
    leader = leadership(tmp_path, [])

    with no_thread_starts(), pytest.raises(RuntimeError, match="can't start new thread"):
        leader._lead(SERVING)

    assert not leader.leads


class HungInspect:
    """A Docker that lists one container and does not inspect it."""

    def __init__(self, _: LocalNode) -> None:
        pass

    def listed(self) -> list[dict[str, Any]]:
        return [{"Id": "1" * 64, "Names": ["/c"], "Labels": {}, "State": "running", "ImageID": "x", "Created": 1}]

    def container(self, name: str, _: float) -> None:
        raise ConnectionLost("n1", f"Docker's answer about {name} was cut off")

    def close(self) -> None:
        pass


def test_a_container_for_whose_inspect_no_thread_waits_is_inspected_by_the_next_read() -> None:
    connect: Any = HungInspect
    reader = ContainerReader(LocalNode("n1"), print, connect)

    with no_thread_starts():
        assert reader.read()

    assert (list(reader.unread), reader._hung) == (["c"], set())


def test_page_cache_that_no_thread_has_dropped_is_dropped_before_a_kill() -> None:
    here = Here("kill")
    with no_thread_starts(), pytest.raises(RuntimeError, match="can't start new thread"):
        here.looks(LOOKS)

    here.looks(1)

    assert (here.verbs, here.killed_for) == (["run"], [])


def test_a_release_that_cannot_be_asked_is_not_wrong() -> None:
    rank = promoted_rank().rank

    with no_thread_starts():
        assert light_pass(Deployment("q-1", Slot.BLUE, (Replica((rank,)),))) == ""
