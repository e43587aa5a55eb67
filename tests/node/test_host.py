"""What a node says about itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.node import host
from sparkops.node.host import GpuMemory, HostFacts
from sparkops.node.local import LocalNode

H100, BUSY = GpuMemory(81079 / 1024, 81079 / 1024), GpuMemory(81079 / 1024, 1000 / 1024)
OLD = GpuMemory(81559 / 1024, 81079 / 1024)
SHORT = "arch aarch64\nnow 1.5\nMemTotal: 2097152\nMemAvailable: 1048576\n"


def test_a_whole_preflight(captured: Callable[[str], str]) -> None:
    facts = host.parse(captured("preflight.txt"))

    assert facts == HostFacts(
        arch="x86_64",
        now_s=1795305024.592212952,
        memory_total_gib=24684096 / 2**20,
        memory_available_gib=23150904 / 2**20,
        disk_free_gib=78379476 / 2**20,
        buildkit=True,
        listening=frozenset({22, 0x96A3}),
        cores=2,
    )


def test_what_a_node_does_not_say_is_not_there() -> None:
    assert host.parse(SHORT) == HostFacts("aarch64", 1.5, memory_total_gib=2.0, memory_available_gib=1.0)


def test_the_cores_of_a_node() -> None:
    assert host.parse(SHORT + "cores 20\n").cores == 20
    assert host.parse(SHORT + "cores \n").cores is None


@pytest.mark.parametrize(
    ("printed", "gpus", "discrete"),
    [
        # an H100 with driver 580.159.04, where torch.cuda.mem_get_info() has 81079 MiB in total
        ("81559, 81079, 480", (H100,), True),
        ("81559, 81079, 480\n81559, 1000, 480", (H100, BUSY), True),
        ("81559, 81079, [N/A]", (OLD,), True),
        ("81559, 81079", (OLD,), True),
        ("[N/A], [N/A], [N/A]", (None,), False),  # a GB10, as its owners print it
        ("No devices were found", (), False),
    ],
)
def test_nvidia_smi_tells_the_memory_of_gpus_that_have_their_own(
    tmp_path: Path, printed: str, gpus: tuple[GpuMemory | None, ...], discrete: bool
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho '{printed}'\n")
    program.chmod(0o755)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    facts = host.parse(LocalNode("here").run(replace(host.FREE, argv=("env", path, *host.FREE.argv))).stdout)

    assert (facts.gpus, facts.gpu_is_discrete) == (gpus, discrete)
    assert facts.gpu == (gpus[-1] if gpus else None)


@pytest.mark.parametrize(("model", "discrete"), [("NVIDIA GB10", False), ("NVIDIA H100 80GB HBM3", True), ("", False)])
def test_without_nvidia_smi_the_model_tells_whether_memory_is_shared(model: str, discrete: bool) -> None:
    facts = host.parse(SHORT + (f"gpu-model {model}\n" if model else ""))

    assert (facts.gpu_is_discrete, facts.gpu) == (discrete, None)


def test_a_disk_that_cannot_be_measured_is_unknown() -> None:
    assert host.parse(SHORT + "disk \n").disk_free_gib is None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "no 'arch' in ''"),
        ("arch x86_64\nnow 1\n", r"no 'MemTotal' in .*"),
        (SHORT.replace("1.5", "soon"), "could not convert string to float: 'soon'"),
    ],
)
def test_anything_else_is_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{error}$"):
        host.parse(text)


@pytest.mark.local
def test_this_machine_answers_the_query() -> None:
    facts = host.parse(LocalNode("here").run(host.MEMORY).stdout)

    assert facts.memory_total_gib > facts.memory_available_gib > 0


def test_addresses_are_sorted_and_every_one_is_read() -> None:
    assert host.parse_addresses("192.168.1.11 10.0.0.1 fd00::1 \n") == ("10.0.0.1", "192.168.1.11", "fd00::1")


@pytest.mark.parametrize("text", ["", " \n", "hostname: invalid option -- 'I'"])
def test_addresses_that_a_node_does_not_report_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no address|does not appear to be an IPv4 or IPv6 address"):
        host.parse_addresses(text)


@pytest.mark.local
def test_this_machine_counts_its_cores() -> None:
    assert host.parse(LocalNode("here").run(host.PREFLIGHT).stdout).cores == len(os.sched_getaffinity(0))


@pytest.mark.local
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_preflight_sees_who_listens(family: socket.AddressFamily, address: str) -> None:
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        listening = host.parse(LocalNode("here").run(host.PREFLIGHT).stdout).listening

    assert port in listening
