"""What doctor finds wrong with nodes and pairs, and what it says where all is well."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.fabric import FabricRules as Rules
from sparkops.config.reference import reference
from sparkops.errors import NodeError, NotReachable, SparkopsError
from sparkops.node.host import Clocks
from sparkops.node.network.finding import Kind, Severity
from sparkops.operator.deploy.agents.packages import AgentPackages, PackageUpdate
from sparkops.operator.fleet.network import checks, topology
from sparkops.operator.fleet.network.topology import Transport
from sparkops.operator.status.doctor import rules
from sparkops.operator.status.doctor.diagnosis import Diagnosis
from sparkops.operator.status.doctor.facts import MachineFacts, NodeFacts
from sparkops.operator.status.doctor.rules import NodeRule, Seen
from sparkops.serving.watch.rules import Rule
from tests import sparks
from tests.examples import HOST, container, node, rank
from tests.places import ROOT
from tests.sparks import Spark, port_0, port_1, spark

pytestmark = pytest.mark.local  # real shells read real files

WELL = MachineFacts(
    kho_off=False,
    oom_score={"sshd": -1000, "dockerd": -500},
    docker_tcp=(),
    toolkit=True,
    toolkit_version="1.17.8",
    gpu="NVIDIA GB10",
    gpu_error="",
    swap_gib=0.0,
    oom_killers=frozenset({"earlyoom"}),
    live_restore=True,
)
STUCK = Clocks(702, 3003, 96)
"""Under load: eugr/spark-vllm-docker#334; 3003 MHz is the rating in NVIDIA/open-gpu-kernel-modules#1358."""
SERVING = Clocks(2398, 3003, 96)
"""The same node after a power cycle."""
SHARED = replace(HOST, gpu_model="NVIDIA GB10", memory_free_gib=91.0)
CACHED = replace(SHARED, memory_free_gib=7.9)


@pytest.fixture
def sound(tmp_path: Path) -> NodeFacts:
    """A Spark of which there is nothing to be said."""
    return examined(tmp_path, "a", spark(1))


def examined(root: Path, name: str, hardware: Spark, **config: Any) -> NodeFacts:
    facts = sparks.facts(root / name, hardware)
    return NodeFacts(name, node(**{"gpu": "runtime", **config}), HOST, WELL, facts, docker="28.5.1", skew_s=0.0)


def changed(sound: NodeFacts, changes: dict[str, Any]) -> NodeFacts:
    fabric = {key: value for key, value in changes.items() if key in ("driver", "kernel")}
    rest = {key: value for key, value in changes.items() if key not in fabric}
    return replace(sound, **rest, fabric=replace(sound.fabric, **fabric))


def codes(facts: NodeFacts) -> list[tuple[str, Severity]]:
    return [(finding.code, finding.severity) for finding in rules.examine(facts)]


def diagnose(*reports: NodeFacts, **lost: SparkopsError) -> Diagnosis:
    facts, configs = (
        {report.name: report.fabric for report in reports},
        {report.name: report.config for report in reports},
    )
    pairs = topology.pairs(facts, configs, Rules())
    everything: dict[str, NodeFacts | SparkopsError] = {**{report.name: report for report in reports}, **lost}
    return rules.diagnose(dict(sorted(everything.items())), pairs, [])


def test_a_sound_node_has_no_findings(sound: NodeFacts) -> None:
    assert codes(sound) == []


SPEC = ("/etc/cdi/nvidia.yaml",)
PROBLEM, WARNING = Severity.PROBLEM, Severity.WARNING


@pytest.mark.parametrize(
    ("changes", "code", "severity"),
    [
        ({"docker": "23.0.1"}, "DOCKER_OLD", WARNING),
        ({"host": replace(HOST, buildkit=False)}, "NO_BUILDKIT", PROBLEM),
        ({"host": replace(HOST, disk_free_gib=39.9)}, "DISK", WARNING),
        ({"host": replace(HOST, memory_available_gib=7.9)}, "MEMORY", WARNING),
        ({"skew_s": 6.0}, "CLOCK", WARNING),
        ({"skew_s": -6.0}, "CLOCK", WARNING),
        ({"machine": replace(WELL, docker_tcp=("0.0.0.0",))}, "DOCKER_TCP", WARNING),
        ({"machine": replace(WELL, live_restore=False)}, "NO_LIVE_RESTORE", WARNING),
        ({"machine": replace(WELL, oom_score={"sshd": 0})}, "OOM_SCORE", WARNING),
        ({"machine": replace(WELL, gpu="", gpu_error="No devices were found")}, "GPU_SILENT", PROBLEM),
        ({"machine": replace(WELL, toolkit=False)}, "NO_TOOLKIT", PROBLEM),
        ({"machine": replace(WELL, toolkit=False, cdi=SPEC)}, "NO_TOOLKIT", PROBLEM),
        ({"machine": replace(WELL, toolkit_version="1.17.7")}, "TOOLKIT_OLD", WARNING),
        ({"machine": replace(WELL, toolkit_version="1.9.10")}, "TOOLKIT_OLD", WARNING),
        ({"machine": replace(WELL, toolkit_version="")}, "TOOLKIT_OLD", WARNING),
        ({"config": node(gpu="cdi")}, "NO_CDI_SPEC", PROBLEM),
        ({"config": node(gpu="cdi"), "machine": replace(WELL, toolkit=False)}, "NO_CDI_SPEC", PROBLEM),
        ({"driver": ""}, "NO_DRIVER", PROBLEM),
        ({"driver": "590.44.01"}, "DRIVER_590", WARNING),
        ({"kernel": "7.0.0-1019-nvidia"}, "KERNEL_KHO", WARNING),
        ({"kernel": "7.0.0-31-generic"}, "KERNEL_RDMA", WARNING),
        ({"machine": replace(WELL, oom_killers=frozenset())}, "NO_EARLYOOM", WARNING),
        ({"machine": replace(WELL, swap_gib=8.1)}, "SWAP", WARNING),
        ({"machine": replace(WELL, clocks=(STUCK, STUCK))}, "CLOCKS_LOW", WARNING),
        ({"host": CACHED}, "PAGE_CACHE", WARNING),
    ],
)
def test_what_is_wrong_with_a_node_is_found(
    sound: NodeFacts, changes: dict[str, Any], code: str, severity: Severity
) -> None:
    [finding] = rules.examine(changed(sound, changes))

    assert (finding.code, finding.severity, finding.node) == (code, severity, "a")
    assert finding.next_step
    kind = rules.KINDS[code]
    assert not finding.fixable or (isinstance(kind, NodeRule) and kind.fix)


@pytest.mark.parametrize(
    "changes",
    [
        {"docker": "24.0.0"},
        {"docker": "26.1.5+dfsg1"},
        {"host": replace(HOST, disk_free_gib=None)},
        {"host": replace(HOST, disk_free_gib=40.0)},
        {"host": replace(HOST, memory_available_gib=8.0)},
        {"skew_s": 5.0},
        {"skew_s": -5.0},
        {"machine": replace(WELL, oom_score={})},
        {"machine": replace(WELL, oom_score={"sshd": -1})},
        {"config": node(gpu="cdi"), "machine": replace(WELL, toolkit=False, cdi=SPEC)},
        {"config": node(gpu="devices"), "machine": replace(WELL, toolkit=False)},
        {"config": node(gpu="none"), "machine": replace(WELL, toolkit_version="1.17.7")},
        {"machine": replace(WELL, toolkit_version="1.18.0")},
        {"machine": replace(WELL, toolkit_version="2.0.0")},
        {"kernel": "7.0.0-30-generic"},
        {"driver": "580.178.03"},
        {"machine": replace(WELL, swap_gib=8.0)},
        {"machine": replace(WELL, swap_gib=None)},
        {"machine": replace(WELL, clocks=(STUCK, SERVING))},
        {"machine": replace(WELL, clocks=(SERVING, SERVING))},
        {"machine": replace(WELL, clocks=(replace(STUCK, busy_percent=0),) * 2)},
        {"host": SHARED},
        {"host": replace(CACHED, memory_available_gib=15.8)},
        {"host": CACHED, "containers": (container(rank()),)},
        {"host": replace(CACHED, gpu_model="NVIDIA H100 80GB HBM3"), "machine": replace(WELL, oom_killers=frozenset())},
    ],
)
def test_what_is_just_well_or_not_known_is_no_finding(sound: NodeFacts, changes: dict[str, Any]) -> None:
    assert codes(changed(sound, changes)) == []


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"skew_s": 6.4}, "its clock is 6 s ahead of this machine's"),
        ({"skew_s": -6.4}, "its clock is 6 s behind this machine's"),
        (
            {"host": replace(HOST, memory_available_gib=7.94)},
            "7.9 of 119.7 GiB are available: a node without free memory may hang",
        ),
        ({"host": replace(HOST, disk_free_gib=39.94)}, "39.9 GiB are free for images; a build needs 40"),
    ],
)
def test_a_finding_has_the_measured_value(sound: NodeFacts, changes: dict[str, Any], problem: str) -> None:
    assert [finding.problem for finding in rules.examine(replace(sound, **changes))] == [problem]


@pytest.mark.parametrize(("daemon", "unit"), [("sshd", "ssh"), ("dockerd", "docker")])
def test_the_step_for_the_oom_score_names_the_unit_of_the_daemon(sound: NodeFacts, daemon: str, unit: str) -> None:
    [finding] = rules.examine(replace(sound, machine=replace(WELL, oom_score={daemon: 0})))

    assert finding.next_step == f"sudo systemctl edit {unit}: OOMScoreAdjust=-500 under [Service], and restart it"


@pytest.mark.parametrize(("gateway", "expected"), [(True, ["ENGINE_OPEN"]), (False, [])])
def test_an_engine_that_clients_call_themselves_is_open_on_purpose(
    sound: NodeFacts, gateway: bool, expected: list[str]
) -> None:
    machine = replace(WELL, open_ports=frozenset({8001}))
    node = replace(sound, machine=machine, containers=(container(rank()),), gateway=gateway)

    assert [code for code, _ in codes(node)] == expected


@pytest.mark.parametrize("gateway", [True, False])
def test_open_ports_of_ranks_are_found_with_and_without_a_gateway(sound: NodeFacts, gateway: bool) -> None:
    one = container(rank(), rank=1, peers=("10.0.0.1", "10.0.0.2"), rendezvous_port=8003)

    facts = replace(sound, containers=(one,), filtered=frozenset(), gateway=gateway)
    assert codes(facts) == [("FILTER_MISSING", Severity.WARNING)]


def test_a_row_has_what_its_node_reported(sound: NodeFacts) -> None:
    host = replace(HOST, memory_total_gib=119.67, memory_available_gib=100.04, disk_free_gib=500.06)
    without = replace(sound.fabric.devices[1], interface=None)
    fabric = replace(sound.fabric, devices=(*sound.fabric.devices[:2], without), kernel="6.17.0")

    [row] = diagnose(replace(sound, host=host, fabric=fabric, skew_s=1.26)).nodes

    assert row.model_dump(exclude={"devices"}) == {
        "name": "a",
        "reachable": True,
        "error": None,
        "arch": HOST.arch,
        "kernel": "6.17.0",
        "docker": "28.5.1",
        "driver": sparks.DRIVER,
        "gpu": "NVIDIA GB10",
        "memory": {"total_gib": 119.7, "available_gib": 100.0},
        "disk_free_gib": 500.1,
        "clock_skew_s": 1.3,
    }
    assert [(device.interface, device.addresses, device.gid_rows, device.mtu) for device in row.devices] == [
        ("enp1s0f0np0", [], [], 1500),
        ("enp1s0f1np1", ["192.168.100.10/24"], [3], 9000),
        (None, [], [3], None),
    ]


def test_a_row_leaves_out_the_disk_that_was_not_read(sound: NodeFacts) -> None:
    assert diagnose(replace(sound, host=replace(HOST, disk_free_gib=None))).nodes[0].disk_free_gib is None


def test_a_node_without_a_gpu_is_not_asked_for_its_driver(tmp_path: Path) -> None:
    bare = examined(tmp_path, "a", Spark(driver=""), gpu="none")

    assert codes(replace(bare, machine=replace(WELL, toolkit=False, gpu=""))) == []


def test_devices_need_no_toolkit(tmp_path: Path) -> None:
    given = examined(tmp_path, "a", spark(1), gpu="devices", gpu_devices=["/dev/nvidia0"])

    assert codes(replace(given, machine=replace(WELL, toolkit=False))) == []


def test_a_boot_option_mends_the_kernel(sound: NodeFacts) -> None:
    fabric = replace(sound.fabric, kernel="7.0.0-1019-nvidia")

    assert codes(replace(sound, fabric=fabric, machine=replace(WELL, kho_off=True))) == []


@pytest.mark.parametrize(("before", "reported", "after", "skew"), [(10, 11, 12, 0), (10, 9, 12, -1), (10, 20, 12, 8)])
def test_a_clock_is_wrong_by_what_the_network_does_not_explain(
    before: float, reported: float, after: float, skew: float
) -> None:
    assert rules.skew(before, reported, after) == skew


def test_a_sound_pair_with_its_links_and_environment(tmp_path: Path) -> None:
    diagnosis = diagnose(examined(tmp_path, "a", spark(1)), examined(tmp_path, "b", spark(2)))

    assert (diagnosis.ok, diagnosis.findings) == (True, [])
    [pair] = diagnosis.pairs
    assert (pair.nodes, pair.transport, pair.reasons) == (["a", "b"], Transport.ROCE, [])
    assert [link.subnet for link in pair.links] == ["192.168.100.0/24", "192.168.101.0/24"]
    assert pair.links[0].ends[1].model_dump() == {
        "node": "b",
        "device": "rocep1s0f1",
        "interface": "enp1s0f1np1",
        "address": "192.168.100.11/24",
        "gid_index": 3,
        "mtu": 9000,
        "speed_mbit_s": 200000,
    }
    assert pair.env["b"]["VLLM_HOST_IP"] == "192.168.100.11"
    assert [device.device for device in diagnosis.nodes[0].devices] == [
        "rocep1s0f0",
        "rocep1s0f1",
        "roceP2p1s0f0",
        "roceP2p1s0f1",
    ]


def test_a_broken_link_is_a_problem_and_gives_no_environment(tmp_path: Path) -> None:
    small = spark(2, functions=port_1("192.168.100.11/24", "192.168.101.11/24", mtu=1500))

    diagnosis = diagnose(examined(tmp_path, "a", spark(1)), examined(tmp_path, "b", small))

    assert (diagnosis.ok, [finding.code for finding in diagnosis.findings]) == (False, ["MTU", "MTU"])
    assert diagnosis.pairs[0].env == {}
    assert len(diagnosis.pairs[0].links) == 2


def test_a_wrong_environment_of_the_inventory_is_a_problem(tmp_path: Path) -> None:
    other = examined(tmp_path, "b", spark(2), env={"GLOO_SOCKET_IFNAME": "eth9"})

    diagnosis = diagnose(examined(tmp_path, "a", spark(1)), other)

    assert [(finding.code, finding.node) for finding in diagnosis.findings] == [("ENVIRONMENT", "b")]


def test_nodes_without_a_network_between_them_are_no_problem(tmp_path: Path) -> None:
    diagnosis = diagnose(*(examined(tmp_path, name, Spark(driver="580.1")) for name in "ab"))

    assert (diagnosis.ok, diagnosis.findings) == (True, [])
    assert (diagnosis.pairs[0].transport, diagnosis.pairs[0].links) == (None, [])
    assert diagnosis.pairs[0].reasons == ["a has no RDMA device", "b has no RDMA device"]


def test_a_port_that_leads_to_a_third_node_is_well(tmp_path: Path) -> None:
    """A ring: a and b, b and c, c and a have a cable each."""

    def ring(first: str, second: str) -> Spark:
        return Spark((port_0(f"{first}/24", None)[0], port_1(f"{second}/24", None)[0]))

    nodes = {"a": ring("10.1.0.1", "10.3.0.1"), "b": ring("10.1.0.2", "10.2.0.2"), "c": ring("10.2.0.3", "10.3.0.3")}

    diagnosis = diagnose(*(examined(tmp_path, name, hardware) for name, hardware in nodes.items()))

    assert [len(pair.links) for pair in diagnosis.pairs] == [1, 1, 1]
    assert diagnosis.findings == []


def test_a_port_that_leads_to_no_node_at_all_is_said(tmp_path: Path) -> None:
    lonely = spark(1, functions=(*port_0("172.20.0.1/24", None), *port_1("192.168.100.10/24", "192.168.101.10/24")))

    diagnosis = diagnose(
        *(examined(tmp_path, name, hardware) for name, hardware in {"a": lonely, "b": spark(2), "c": spark(3)}.items())
    )

    assert [(finding.code, finding.node, finding.severity) for finding in diagnosis.findings] == [
        ("NO_PEER", "a", WARNING)
    ]
    assert diagnosis.ok


@pytest.mark.parametrize(
    ("change", "code"),
    [({"driver": "580.178.03"}, "DRIVERS"), ({"kernel": "6.17.0-1"}, "KERNELS")],
)
def test_nodes_that_differ_are_said(tmp_path: Path, change: dict[str, Any], code: str) -> None:
    one, two = examined(tmp_path, "a", spark(1)), examined(tmp_path, "b", spark(2))

    diagnosis = diagnose(one, replace(two, fabric=replace(two.fabric, **change)))

    assert [(finding.code, finding.node, finding.severity) for finding in diagnosis.findings] == [(code, "b", WARNING)]


def test_a_node_without_driver_and_rdma_devices_differs_from_none(tmp_path: Path) -> None:
    diagnosis = diagnose(examined(tmp_path, "a", spark(1)), examined(tmp_path, "b", Spark(driver=""), gpu="none"))

    assert [finding.code for finding in diagnosis.findings if finding.code in ("DRIVERS", "FIRMWARE")] == []


def test_other_firmware_is_said(tmp_path: Path) -> None:
    one, two = examined(tmp_path, "a", spark(1)), examined(tmp_path, "b", spark(2))
    devices = tuple(replace(device, firmware="28.42.1000") for device in two.fabric.devices)

    [finding] = diagnose(one, replace(two, fabric=replace(two.fabric, devices=devices))).findings

    assert finding.problem == "the firmware of the RDMA devices differs: 28.45.4028 at a, 28.42.1000 at b"


def test_a_node_that_cannot_be_reached_is_a_problem_with_its_next_step(tmp_path: Path) -> None:
    lost = NotReachable("b", "cannot connect to ops@b:22: no answer", next_step="Check that the node is on.")

    diagnosis = diagnose(examined(tmp_path, "a", spark(1)), b=lost)

    [finding] = diagnosis.findings
    assert (finding.code, finding.node, finding.problem) == (
        "UNREACHABLE",
        "b",
        "cannot connect to ops@b:22: no answer",
    )
    assert finding.next_step == "Check that the node is on."
    assert [(row.name, row.reachable, row.error) for row in diagnosis.nodes] == [
        ("a", True, None),
        ("b", False, "cannot connect to ops@b:22: no answer"),
    ]


def test_problems_come_before_warnings(tmp_path: Path) -> None:
    slow = replace(examined(tmp_path, "a", spark(1)), skew_s=9.0)

    diagnosis = diagnose(slow, b=SparkopsError("gone"))

    assert [finding.code for finding in diagnosis.findings] == ["UNREACHABLE", "CLOCK"]
    assert not diagnosis.ok


def test_each_node_with_a_link_is_tried_once(tmp_path: Path) -> None:
    facts = {name: sparks.facts(tmp_path / name, spark(number)) for number, name in enumerate("abc", 1)}
    pairs = topology.pairs(facts, {name: node() for name in facts}, Rules())

    assert [list(pair.facts) for pair, _ in topology.pairs_to_test(pairs)] == [["a", "b"], ["a", "c"]]


def test_it_is_plain_json(tmp_path: Path) -> None:
    diagnosis = diagnose(examined(tmp_path, "a", spark(1)), b=SparkopsError("gone"))

    assert json.loads(diagnosis.model_dump_json()) == diagnosis.model_dump(mode="json")
    assert diagnosis.model_dump(mode="json")["findings"][0]["severity"] == "problem"


def test_a_kind_is_one_object(sound: NodeFacts) -> None:
    """Its finding, reason and row in the documentation come from it; `AREAS` lists it."""
    hot = NodeRule("HOT", "A hot node is slow.", WARNING, find=lambda _: iter([Seen("91 degrees", "Clean its fan.")]))

    [finding] = hot.findings(sound)

    assert (finding.code, finding.node, finding.problem, finding.next_step) == (
        "HOT",
        "a",
        "91 degrees",
        "Clean its fan.",
    )
    assert (finding.severity, finding.reason, finding.fixable) == (WARNING, "A hot node is slow.", False)
    assert table([hot]).endswith("| `HOT` | A hot node is slow. |\n")


def test_no_code_stands_for_two_kinds_and_each_rule_of_the_watch_has_one() -> None:
    codes = [kind.code for kinds in (*rules.AREAS.values(), checks.BEFORE_DEPLOY) for kind in kinds]

    assert len(codes) == len(set(codes))
    assert set(Rule) < set(codes)


HAPROXY = PackageUpdate("haproxy", "2.6.12-1+deb12u3", "2.6.12-1+deb12u4", security=True)
OTHERS = tuple(PackageUpdate(f"lib{number}", "1", "2", security=False) for number in range(4))


def test_newer_packages_of_debian_are_a_warning_with_those_for_security_first(sound: NodeFacts) -> None:
    updates = AgentPackages({}, (*OTHERS, HAPROXY))
    [finding] = rules.examine(
        replace(sound, packages={"sparkops-gateway": updates, "sparkops-guard": AgentPackages({})})
    )

    assert (finding.code, finding.severity) == ("AGENT_UPDATES", WARNING)
    assert finding.problem == (
        "Debian has newer versions of 5 packages in sparkops-gateway, 1 of them of its security team: "
        "haproxy 2.6.12-1+deb12u3 (2.6.12-1+deb12u4), lib0 1 (2), lib1 1 (2), and 2 more"
    )
    assert "build.agent_packages" in finding.next_step


def test_packages_that_could_not_be_compared_are_a_warning(sound: NodeFacts) -> None:
    [finding] = rules.examine(replace(sound, packages={"sparkops-guard": NodeError("a", "exit code 100")}))

    assert (finding.code, finding.severity) == ("AGENT_UPDATES_UNKNOWN", WARNING)
    assert finding.problem.endswith("could not be compared with Debian's archive: exit code 100")


def test_guards_with_other_packages_are_a_warning(sound: NodeFacts) -> None:
    one, other = AgentPackages({"tini": "1"}), AgentPackages({"tini": "2"})
    nodes = [replace(sound, name=name, packages={"sparkops-guard": of}) for name, of in (("a", one), ("b", other))]

    [finding] = rules.agents_differ(nodes)

    assert (finding.code, finding.node) == ("AGENTS_DIFFER", "b")
    assert finding.problem == "packages in sparkops-guard differ: tini 1 on a, 2 on b"
    assert [*rules.agents_differ([nodes[0], replace(nodes[0], name="b")])] == []


def table(kinds: Iterable[Kind]) -> str:
    rows = (f"| `{kind.code}` | {kind.why} |\n" for kind in sorted(kinds, key=lambda kind: kind.code))
    return f"| code | why it matters |\n| --- | --- |\n{''.join(rows)}"


def page() -> str:
    """docs/doctor.md: the reason of each kind, then the models."""
    keys = reference(Diagnosis).removeprefix("# Diagnosis\n\nDiagnosis of the fleet.\n")
    return (
        "# Diagnosis\n\nFindings of `sparkops doctor`, and its `--json`.\n\n"
        f"## Codes\n\n{table(rules.KINDS.values())}\n"
        "A deploy to several nodes tests them with the image of its ranks, too, and stops at these:\n\n"
        f"{table(checks.BEFORE_DEPLOY)}\n## Keys of the JSON\n{keys}"
    )


def test_the_reference_is_as_the_models_say() -> None:
    """If not: print page() of this module to docs/doctor.md."""
    assert (ROOT / "docs/doctor.md").read_text() == page()


def test_a_finding_of_a_diagnosis_has_its_reason(sound: NodeFacts) -> None:
    [finding] = diagnose(replace(sound, skew_s=9.0)).findings

    assert (finding.code, finding.reason) == ("CLOCK", rules.clock.why)
