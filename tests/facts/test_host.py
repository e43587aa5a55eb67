"""What a node says about itself."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from sparkops.facts import host
from sparkops.facts.host import HostFacts
from sparkops.nodes.local import LocalNode

SHORT = "arch aarch64\nnow 1.5\nboot b1\nMemTotal: 2097152\nMemAvailable: 1048576\n"


def test_a_whole_preflight(captured: Callable[[str], str]) -> None:
    facts = host.parse(captured("preflight.txt"))

    ports = {0x93AD, 0xA41B, 0xA0B9, 0xA013, 8001, 0xA319, 22, 0xB525, 0x89CB, 0x8935}
    assert facts == HostFacts(
        arch="x86_64",
        boot_id="cafaa3be-c05c-40b5-93ec-c81e312f9e54",
        now_s=1795221436.504140499,
        memory_total_gib=24684084 / 2**20,
        memory_available_gib=18898152 / 2**20,
        disk_free_gib=60634820 / 2**20,
        buildkit=True,
        listening=frozenset(ports | {0x822F, 0x9C75, 0x9D49, 0x95B3, 0x961F, 0x92E5}),
    )


def test_what_a_node_does_not_say_is_not_there() -> None:
    assert host.parse(SHORT) == HostFacts("aarch64", "b1", 1.5, memory_total_gib=2.0, memory_available_gib=1.0)


def test_a_disk_that_cannot_be_measured_is_unknown() -> None:
    assert host.parse(SHORT + "disk \n").disk_free_gib is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no 'arch' in ''"),
        ("arch x86_64\nnow 1\nboot b\n", r"no 'MemTotal' in .*"),
        (SHORT.replace("1.5", "soon"), "could not convert string to float: 'soon'"),
    ],
)
def test_anything_else_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{error}$"):
        host.parse(text)


def test_this_machine_answers_the_query() -> None:
    facts = host.parse(LocalNode("here").run(host.MEMORY).stdout)

    assert facts.memory_total_gib > facts.memory_available_gib > 0


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_preflight_sees_who_listens(family: socket.AddressFamily, address: str) -> None:
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        listening = host.parse(LocalNode("here").run(host.PREFLIGHT).stdout).listening

    assert port in listening
