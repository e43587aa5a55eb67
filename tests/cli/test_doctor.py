"""What doctor prints for people."""

from __future__ import annotations

from pathlib import Path

from sparkops.cli.doctor import lines
from sparkops.doctor.diagnosis import FixRow
from sparkops.doctor.reasons import REASONS
from sparkops.errors import NotReachable
from tests.doctor.test_rules import diagnose, examined
from tests.sparks import port_1, spark


def test_nodes_devices_pairs_and_findings_each_have_their_lines(tmp_path: Path) -> None:
    one = examined(tmp_path, "a", spark(1, functions=port_1("192.168.100.10/24", "192.168.101.10/24")))
    two = examined(tmp_path, "b", spark(2, functions=port_1("192.168.100.11/24", "192.168.101.11/24", row=5)))
    lost = NotReachable("c", "no answer", next_step="Check that it is on.\nAnd its cable.")

    health = (
        "100.0 of 119.7 GiB available · disk 500 GiB free · Docker 28.5.1 · NVIDIA GB10, driver 580.95.05"
        f" · kernel {one.fabric.kernel}"
    )
    assert list(lines(diagnose(one, two, c=lost))) == [
        f"a              {health}",
        "               rocep1s0f1 (enp1s0f1np1) ACTIVE  192.168.100.10/24  GID 3  MTU 9000",
        "               roceP2p1s0f1 (enP2p1s0f1np1) ACTIVE  192.168.101.10/24  GID 3  MTU 9000",
        f"b              {health}",
        "               rocep1s0f1 (enp1s0f1np1) ACTIVE  192.168.100.11/24  GID 5  MTU 9000",
        "               roceP2p1s0f1 (enP2p1s0f1np1) ACTIVE  192.168.101.11/24  GID 5  MTU 9000",
        "c              unreachable",
        "\na + b: RoCE",
        "  192.168.100.0/24: a rocep1s0f1 (enp1s0f1np1) 192.168.100.10/24 - "
        "b rocep1s0f1 (enp1s0f1np1) 192.168.100.11/24",
        "  192.168.101.0/24: a roceP2p1s0f1 (enP2p1s0f1np1) 192.168.101.10/24 - "
        "b roceP2p1s0f1 (enP2p1s0f1np1) 192.168.101.11/24",
        "\nproblem UNREACHABLE on c: no answer",
        f"  reason: {REASONS['UNREACHABLE']}",
        "  next: Check that it is on.",
        "  next: And its cable.",
        "\n1 problem",
    ]


def test_one_sound_node_is_one_line_and_a_verdict(tmp_path: Path) -> None:
    _, *devices, verdict = lines(diagnose(examined(tmp_path, "a", spark(1))))

    assert (len(devices), verdict) == (4, "\nno problems found")


def test_what_fix_ran_is_reported_before_the_verdict(tmp_path: Path) -> None:
    rows = [
        FixRow(node="a", code="GUARD_DOWN", command="docker start sparkops-guard", done=True),
        FixRow(node="a", code="CLOCK", command="sudo timedatectl", done=False, detail="a password is required"),
    ]

    diagnosis = diagnose(examined(tmp_path, "a", spark(1))).model_copy(update={"fixes": rows})

    assert [*lines(diagnosis)][-4:] == [
        "",
        "a: GUARD_DOWN fixed: docker start sparkops-guard",
        "a: CLOCK not fixed: sudo timedatectl: a password is required",
        "\nno problems found",
    ]
