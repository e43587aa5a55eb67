"""A diagnosis as lines of text."""

from __future__ import annotations

from pathlib import Path

from sparkops.errors import NotReachable
from sparkops.node.network.finding import Finding, Severity
from sparkops.operator.status.doctor.diagnosis import Diagnosis, FixRow
from sparkops.operator.status.doctor.rules import AREAS, KINDS
from sparkops.operator.status.doctor.view import lines
from tests.operator.status.doctor.test_rules import diagnose, examined
from tests.sparks import port_1, spark

FINE = f"no findings about {', '.join(AREAS)}"


def found(code: str, node: str, problem: str, step: str, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(code=code, node=node, problem=problem, next_step=step, severity=severity, reason=KINDS[code].why)


def shown(*findings: Finding) -> list[str]:
    """Lines of findings on nodes whose facts are not shown."""
    return [*lines(Diagnosis(ok=True, nodes=[], pairs=[], findings=[*findings]))]


def test_nodes_pairs_and_findings_each_have_their_lines(tmp_path: Path) -> None:
    one = examined(tmp_path, "a", spark(1, functions=port_1("192.168.100.10/24", "192.168.101.10/24")))
    two = examined(tmp_path, "b", spark(2, functions=port_1("192.168.100.11/24", "192.168.101.11/24", row=5)))
    lost = NotReachable("c", "no answer", next_step="Check that it is on.\nAnd its cable.")

    health = (
        "100.0 of 119.7 GiB available · disk 500 GiB free · Docker 28.5.1 · NVIDIA GB10, driver 580.95.05"
        f" · kernel {one.fabric.kernel}"
    )
    assert list(lines(diagnose(one, two, c=lost))) == [
        f"a              {health}",
        f"b              {health}",
        "c              unreachable",
        "\na + b: RoCE",
        "  192.168.100.0/24: a rocep1s0f1 (enp1s0f1np1) 192.168.100.10/24 - "
        "b rocep1s0f1 (enp1s0f1np1) 192.168.100.11/24",
        "  192.168.101.0/24: a roceP2p1s0f1 (enP2p1s0f1np1) 192.168.101.10/24 - "
        "b roceP2p1s0f1 (enP2p1s0f1np1) 192.168.101.11/24",
        "",
        "problem UNREACHABLE on c: no answer",
        f"  reason: {KINDS['UNREACHABLE'].why}",
        "  next: Check that it is on.",
        "  next: And its cable.",
        "",
        FINE.replace(" access,", "").replace(" services, guards,", "") + " on a, b",
        "unknown of c: services and guards; `sparkops status` shows what the fleet reports",
        "1 problem",
    ]


def test_devices_are_listed_where_the_network_has_a_finding(tmp_path: Path) -> None:
    one = examined(tmp_path, "a", spark(1, functions=port_1("192.168.100.10/24", "192.168.101.10/24")))
    two = examined(tmp_path, "b", spark(2, functions=port_1("192.168.100.11/24", "192.168.101.11/24", mtu=1500)))

    diagnosis = diagnose(one, two)
    named = {finding.node for finding in diagnosis.findings}
    devices = [line for line in lines(diagnosis) if "ACTIVE" in line]

    assert named == {"b"}
    assert [line.split()[3] for line in devices] == ["192.168.100.11/24", "192.168.101.11/24"]


def test_one_sound_node_is_one_line_and_a_verdict(tmp_path: Path) -> None:
    _, *verdict = lines(diagnose(examined(tmp_path, "a", spark(1))))

    assert verdict == ["", FINE, "no problems found"]


def test_a_finding_of_two_nodes_is_one_line_and_its_step_as_root_is_in_a_list() -> None:
    """On two nodes without a protected daemon these four findings took 16 lines."""
    kill, edit = "the kernel may kill {} like any program", "sudo systemctl edit {}: OOMScoreAdjust=-500"
    findings = [
        found("OOM_SCORE", node, kill.format(daemon), edit.format(unit))
        for node in ("spark-1", "spark-2")
        for daemon, unit in (("dockerd", "docker"), ("sshd", "ssh"))
    ]

    assert shown(*findings) == [
        "",
        "warning OOM_SCORE on spark-1, spark-2: the kernel may kill dockerd like any program",
        f"  reason: {KINDS['OOM_SCORE'].why}",
        "warning OOM_SCORE on spark-1, spark-2: the kernel may kill sshd like any program",
        "\nnext, as root:",
        "  spark-1, spark-2  OOM_SCORE  systemctl edit docker: OOMScoreAdjust=-500",
        "  spark-1, spark-2  OOM_SCORE  systemctl edit ssh: OOMScoreAdjust=-500",
        "",
        "2 warnings",
    ]


def test_measured_values_differ_and_share_reason_and_step() -> None:
    step = "sparkops prune --dry-run"

    assert shown(found("DISK", "a", "34.2 GiB are free", step), found("DISK", "b", "9.1 GiB are free", step))[1:5] == [
        "warning DISK on a: 34.2 GiB are free",
        "warning DISK on b: 9.1 GiB are free",
        f"  reason: {KINDS['DISK'].why}",
        f"  next: {step}",
    ]


def test_problems_precede_warnings_and_the_most_urgent_code_is_first() -> None:
    findings = [
        found("CLOCK", "a", "behind", "wait"),
        found("MEMORY", "a", "full", "stop one"),
        found("NO_BUILDKIT", "a", "none", "install", Severity.PROBLEM),
        found("GUARD_DOWN", "a", "exited", "start", Severity.PROBLEM),
    ]

    heads = [line.split()[1] for line in shown(*findings) if " on a: " in line]

    assert heads == ["GUARD_DOWN", "NO_BUILDKIT", "MEMORY", "CLOCK"]


def test_a_code_of_a_newer_guard_is_shown_after_the_known_ones_and_without_a_reason() -> None:
    newer = Finding(code="NEWER", node="a", problem="new", next_step="look", severity=Severity.WARNING)

    assert shown(newer, found("CLOCK", "a", "late", "set"))[:7] == [
        "",
        "warning CLOCK on a: late",
        f"  reason: {KINDS['CLOCK'].why}",
        "  next: set",
        "",
        "warning NEWER on a: new",
        "  next: look",
    ]


def test_what_fix_ran_is_reported_before_the_verdict(tmp_path: Path) -> None:
    rows = [
        FixRow(node="a", code="GUARD_DOWN", command="docker start sparkops-guard", done=True),
        FixRow(node="a", code="CLOCK", command="sudo timedatectl", done=False, detail="a password is required"),
    ]

    diagnosis = diagnose(examined(tmp_path, "a", spark(1))).model_copy(update={"fixes": rows})

    assert [*lines(diagnosis)][-6:] == [
        "",
        "a: GUARD_DOWN fixed: docker start sparkops-guard",
        "a: CLOCK not fixed: sudo timedatectl: a password is required",
        "",
        FINE,
        "no problems found",
    ]
