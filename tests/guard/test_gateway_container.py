"""The gateway's state is read through one process, and by a new one where that has ended."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from sparkops.command import Command
from sparkops.gateway import commands
from sparkops.guard.lead.gateway_front import GatewayContainer
from sparkops.node.local import LocalNode
from sparkops.node.node import Stream
from tests.guard.lead.test_gateway_front import DRAINING, NEW
from tests.node.recording import RecordingNode

pytestmark = pytest.mark.unit

PIDS = "while read -r _; do echo $$; done"


@dataclass(frozen=True)
class GatewayNode(RecordingNode):
    """A node with a shell script of this machine in place of the gateway's program that answers each line."""

    script: str = PIDS

    def pipe(self, command: Command) -> Stream:
        assert command == commands.SHOW_EACH
        return LocalNode(self.name).pipe(Command(("sh", "-c", self.script)))


def test_one_process_answers_until_it_dies() -> None:
    desk = GatewayContainer(GatewayNode("n1"))
    pid = int(desk.printed())
    assert int(desk.printed()) == pid

    os.kill(pid, signal.SIGKILL)

    assert desk.printed() == ""
    later = int(desk.printed())
    assert later != pid
    desk.stream.close()


def test_a_gateway_that_knows_no_stream_is_asked_by_a_command() -> None:
    old = GatewayContainer(GatewayNode("n1", {str(commands.SHOW): NEW}, script="exit 1"))
    new = GatewayContainer(GatewayNode("n1", script=f"read -r _; printf '%s\\n' '{json.dumps(json.loads(DRAINING))}'"))

    by_command, by_stream = old.show(), new.show()
    new.stream.close()

    assert by_command is not None
    assert by_stream is not None
    assert by_command.services != by_stream.services


def test_services_that_read_at_once_get_the_replies_to_their_own_requests() -> None:
    """A thread of each service reads one gateway. A reply that is older than its request belongs to another one."""
    long = "x" * 20000  # a reply that is read in several parts
    script = f"while read -r _; do echo $(date +%s%N) {long}; done"
    gateway = GatewayContainer(GatewayNode("n1", script=script))

    def read_often(_: int) -> list[tuple[int, str]]:
        return [(time.time_ns(), gateway.printed()) for _ in range(40)]

    with ThreadPoolExecutor(4) as services:
        replies = [reply for of_one in services.map(read_often, range(4)) for reply in of_one]
    gateway.stream.close()

    for sent_ns, reply in replies:
        answered_ns, padding = reply.split()
        assert padding == long
        assert int(answered_ns) >= sent_ns
