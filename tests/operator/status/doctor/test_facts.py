"""What doctor asks of a node. The trees have the kernel's files, as proc(5) describes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.node.host import Clocks
from sparkops.node.local import LocalNode
from sparkops.operator.status.doctor import facts
from sparkops.operator.status.doctor.facts import MachineFacts

SMALLEST = MachineFacts(False, {}, (), toolkit=False, gpu="", gpu_error="")
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    put(tmp_path, "proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1\n")
    return tmp_path


def put(tree: Path, name: str, text: str) -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_text(text)


def process(tree: Path, number: int, name: str, score: int) -> None:
    put(tree, f"proc/{number}/comm", f"{name}\n")
    put(tree, f"proc/{number}/oom_score_adj", f"{score}\n")


def program(tree: Path, name: str, body: str) -> None:
    put(tree, f"usr/bin/{name}", f"#!/bin/sh\n{body}\n")
    (tree / f"usr/bin/{name}").chmod(0o755)


def read(tree: Path) -> MachineFacts:
    return facts.parse_machine(LocalNode("here").run(facts.machine_query(str(tree))).stdout)


@pytest.mark.parametrize(
    ("options", "off"), [("quiet kho=off", True), ("kho=on", False), ("xkho=off", False), ("", False)]
)
def test_a_boot_option(tree: Path, options: str, off: bool) -> None:
    put(tree, "proc/cmdline", f"BOOT_IMAGE=/vmlinuz {options}\n")

    assert read(tree).kho_off is off


def test_a_daemon_s_score_is_that_of_its_best_protected_process(tree: Path) -> None:
    for number, name, score in ((7, "sshd", -1000), (8, "sshd", 0), (90, "dockerd", -500), (91, "python3", 5)):
        process(tree, number, name, score)
    (tree / "proc/92").mkdir()  # it ended while it was looked at

    assert read(tree).oom_score == {"sshd": -1000, "dockerd": -500}


@pytest.mark.parametrize(
    ("file", "address", "expected"),
    [
        ("tcp", "0100007F:0947", ()),
        ("tcp", "00000000:0947", ("0.0.0.0",)),
        ("tcp", "0A01A8C0:0947", ("192.168.1.10",)),
        ("tcp", "00000000:0948", ()),
        ("tcp6", "00000000000000000000000001000000:0947", ()),
        ("tcp6", "00000000000000000000000000000000:0947", ("::",)),
        ("tcp6", "B80D0120000000000000000001000000:0947", ("2001:db8::1",)),
    ],
)
def test_docker_without_tls_is_seen_where_others_can_reach_it(
    tree: Path, file: str, address: str, expected: tuple[str, ...]
) -> None:
    put(tree, f"proc/net/{file}", f"{HEAD}   0: {address} 00000000:0000 0A 00000000:00000000\n")

    assert read(tree).docker_tcp == expected


def test_ports_are_open_where_something_listens_beyond_loopback(tree: Path) -> None:
    rows = ("0100007F:1F41", "00000000:1F42", "0A01A8C0:1F43", "0A01A8C0:1F44")
    states = ("0A", "0A", "0A", "01")
    text = "".join(f"   0: {row} 00000000:0000 {state} 0\n" for row, state in zip(rows, states, strict=True))
    put(tree, "proc/net/tcp", f"{HEAD}{text}")
    put(tree, "proc/net/tcp6", f"{HEAD}   0: {'0' * 32}:1F45 {'0' * 32}:0000 0A 0\n")

    assert read(tree).open_ports == {8002, 8003, 8005}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n", ("/etc/cdi/nvidia.yaml",)),
        ("var/run/cdi/nvidia.json", '{"kind": "nvidia.com/gpu"}', ("/var/run/cdi/nvidia.json",)),
        ("etc/cdi/other.yaml", "kind: vendor.com/net\n", ()),
        ("etc/cdi/nvidia.yaml.old", "kind: nvidia.com/gpu\n", ()),
    ],
)
def test_a_cdi_spec_for_gpus_is_found_where_docker_looks(
    tree: Path, name: str, text: str, expected: tuple[str, ...]
) -> None:
    put(tree, name, text)

    assert read(tree).cdi == expected


def test_a_connection_to_that_port_is_no_listener(tree: Path) -> None:
    put(tree, "proc/net/tcp", f"{HEAD}   0: 0A01A8C0:0947 0B01A8C0:C350 01 00000000:00000000\n")

    assert read(tree).docker_tcp == ()


@pytest.mark.parametrize(
    ("body", "gpu", "error"),
    [
        ("echo NVIDIA GB10", "NVIDIA GB10", ""),
        ("echo A; echo B", "A", ""),
        ("echo 'No devices were found'; exit 6", "", "No devices were found"),
        ("echo one; echo 'Driver/library version mismatch' >&2; exit 18", "", "Driver/library version mismatch"),
        ("exit 124", "", "no output within 8 s"),
    ],
)
def test_the_gpu_is_asked_for_its_name(tree: Path, body: str, gpu: str, error: str) -> None:
    program(tree, "nvidia-smi", body)

    assert (read(tree).gpu, read(tree).gpu_error) == (gpu, error)


def test_the_container_toolkit_is_a_program(tree: Path) -> None:
    program(tree, "nvidia-ctk", "true")

    assert (read(tree).toolkit, read(tree).toolkit_version) == (True, "")


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d"),
        ("nvidia-container-cli", "cli-version: 1.17.8\nlib-version: 1.17.8\nbuild date: 2025-05-30T13:47+00:00"),
    ],
)
def test_the_container_toolkit_is_asked_for_its_version(tree: Path, name: str, printed: str) -> None:
    program(tree, name, f"echo '{printed}'")

    assert read(tree).toolkit_version == "1.17.8"


def test_what_a_node_does_not_say_is_not_there() -> None:
    assert facts.parse_machine("kho \n") == SMALLEST


def test_anything_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no 'kho' in 'sh: not found'$"):
        facts.parse_machine("sh: not found")


def test_swap_and_programs_that_end_others_are_read(tree: Path) -> None:
    put(tree, "proc/meminfo", "MemTotal: 127600000 kB\nSwapCached: 4 kB\nSwapTotal:      16777212 kB\nSwapFree: 1 kB\n")
    process(tree, 7, "earlyoom", 0)
    process(tree, 8, "systemd-oomd", 0)

    facts = read(tree)

    assert facts.swap_gib == pytest.approx(16.0, abs=0.001)
    assert facts.oom_killers == {"earlyoom", "systemd-oomd"}


def test_a_tree_without_them_says_nothing(tree: Path) -> None:
    facts = read(tree)

    assert (facts.swap_gib, facts.oom_killers, facts.clocks, facts.hub_cache) == (None, frozenset(), (), {})


@pytest.mark.parametrize(
    ("row", "clocks"),
    [("702, 3003, 96", Clocks(702, 3003, 96)), ("345, 1980, [N/A]", None), ("No devices were found", None)],
)
def test_clocks_are_two_samples(tree: Path, row: str, clocks: Clocks | None) -> None:
    program(tree, "nvidia-smi", f"case $* in *clocks.sm*) echo '{row}';; *) echo NVIDIA GB10;; esac")

    assert read(tree).clocks == ((clocks, clocks) if clocks else ())


def test_models_in_the_hub_s_own_cache_have_their_size(tree: Path) -> None:
    home = f"{Path.home()}/.cache/huggingface/hub"
    put(tree, f"{home[1:]}/models--a--b/blobs/1", "x" * 2**20)
    put(tree, f"{home[1:]}/datasets--a--b/blobs/1", "x")

    assert read(tree).hub_cache == {f"{home}/models--a--b": pytest.approx(2**20 / 2**30, rel=0.2)}


@pytest.mark.parametrize(
    ("body", "enabled"),
    [("echo true", True), ("echo false", False), ("echo Cannot connect to the Docker daemon >&2; exit 1", None)],
)
def test_whether_containers_survive_dockerd_is_docker_s_own_word(tree: Path, body: str, enabled: bool | None) -> None:
    program(tree, "docker", f'test "$*" = "info --format {{{{.LiveRestoreEnabled}}}}" || exit 2; {body}')

    assert read(tree).live_restore is enabled
