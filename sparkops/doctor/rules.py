"""The rules of doctor: findings about each node and each pair, with the next step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkops.doctor import reasons, resources
from sparkops.doctor.diagnosis import DeviceRow, Diagnosis, EndRow, LinkRow, NodeHealth, PairRow
from sparkops.doctor.node_facts import NodeFacts, warning
from sparkops.errors import NodeError, SparkopsError
from sparkops.network import firewall, topology
from sparkops.network.facts import Device, NodeFabric
from sparkops.network.finding import Finding, Same, Severity, problems
from sparkops.network.links import Link
from sparkops.network.topology import Pair
from sparkops.status.node_row import Memory

OLDEST_DOCKER = 24
UPDATE = "sudo apt-get update; sudo apt-get dist-upgrade; sudo reboot, on the older nodes"
UPDATE_FIRMWARE = "sudo fwupdmgr refresh; sudo fwupdmgr update, on all nodes"
SAME = (
    Same("DRIVERS", "the NVIDIA driver", UPDATE, Severity.WARNING),
    Same("KERNELS", "the kernel", UPDATE, Severity.WARNING),
    Same("FIRMWARE", "the firmware of the RDMA devices", UPDATE_FIRMWARE, Severity.WARNING),
)

NO_MEMORY = "RDMA cannot register memory (ibv_reg_mr: ENOMEM)"


@dataclass(frozen=True)
class BadKernel:
    """A kernel with which RDMA fails, by the prefix of its version. `kho`: the boot option kho=off avoids it."""

    code: str
    begin: str
    step: str
    kho: bool = False


NO_KHO = "Add kho=off to GRUB_CMDLINE_LINUX of /etc/default/grub; sudo update-grub; sudo reboot"
OLDER = "Boot 7.0.0-30-generic; sudo apt-mark hold linux-image-generic-hwe-24.04"
KERNELS = (
    BadKernel("KERNEL_KHO", "7.0.0-1019", NO_KHO, kho=True),  # eugr/spark-vllm-docker#392
    BadKernel("KERNEL_RDMA", "7.0.0-31-generic", OLDER),  # MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259
)
DRIVER = "590."
"""Branch of the driver that deadlocks while CUDA graphs are captured: README of eugr/spark-vllm-docker."""


def skew(before_s: float, reported_s: float, after_s: float) -> float:
    """Return the seconds that a clock is ahead, read between two local times; 0 if it is between them."""
    return reported_s - min(max(reported_s, before_s), after_s)


def examine(node: NodeFacts) -> Iterator[Finding]:
    yield from _docker(node)
    yield from _gpu(node)
    yield from resources.findings(node)
    yield from resources.duplicates(node)
    if node.gateway:
        yield from firewall.engine_findings(node.name, node.containers, node.machine.open_ports, node.filtered)
    yield from firewall.rank_findings(node.name, node.containers, node.filtered)
    for daemon, score in sorted(node.machine.oom_score.items()):
        if score >= 0:
            unit = {"sshd": "ssh"}.get(daemon, "docker")
            problem = f"when memory runs out, the kernel may kill {daemon} like any program (oom_score_adj {score})"
            step = f"sudo systemctl edit {unit}: OOMScoreAdjust=-500 under [Service], and restart it"
            yield warning("OOM_SCORE", node.name, problem, step)


def _docker(node: NodeFacts) -> Iterator[Finding]:
    if int(node.docker.split(".")[0]) < OLDEST_DOCKER:
        step = f"sudo apt-get install --only-upgrade docker-ce: version {OLDEST_DOCKER} or newer"
        yield warning("DOCKER_OLD", node.name, f"Docker Engine is {node.docker}", step)
    if not node.host.buildkit:
        problem = "Docker has no BuildKit"
        step = "sudo apt-get install docker-buildx-plugin (docker-buildx on Debian)"
        yield Finding(code="NO_BUILDKIT", node=node.name, problem=problem, next_step=step)
    if node.machine.live_restore is False:
        problem = "a restart or an update of Docker stops gateway, guard and engines: live-restore is off"
        step = 'Set "live-restore": true in /etc/docker/daemon.json; sudo systemctl reload docker (nothing stops)'
        yield warning("NO_LIVE_RESTORE", node.name, problem, step)
    for address in node.machine.docker_tcp:
        problem = f"Docker listens on {address}:2375 without TLS: any client that reaches it is root"
        step = "Remove tcp:// from /etc/docker/daemon.json and dockerd's unit; sudo systemctl restart docker"
        yield warning("DOCKER_TCP", node.name, problem, step)


def _gpu(node: NodeFacts) -> Iterator[Finding]:
    error, name = node.machine.gpu_error, node.name
    if node.config.gpu in (None, "none"):
        return
    if error:
        step = "nvidia-smi on the node; after an update of the driver: sudo reboot"
        yield Finding(code="GPU_SILENT", node=name, problem=f"nvidia-smi fails: {error}", next_step=step)
    elif not node.fabric.driver:
        step = f"sudo apt-get install nvidia-driver-580-open; sudo reboot; or `gpu: none` for {name} in the inventory"
        yield Finding(code="NO_DRIVER", node=name, problem="no NVIDIA driver is loaded", next_step=step)
    yield from _gpu_access(node)
    yield from _known_bad(node)


def _known_bad(node: NodeFacts) -> Iterator[Finding]:
    """Yield versions of driver and kernel that are known to fail on a Spark."""
    driver, kernel = node.fabric.driver, node.fabric.kernel
    if driver.startswith(DRIVER):
        problem = f"driver {driver}: 590.x hangs on a GB10 during CUDA graph capture; 580.x does not"
        step = "sudo apt-get install nvidia-driver-580-open; sudo reboot"
        yield warning("DRIVER_590", node.name, problem, step)
    for bad in KERNELS if node.fabric.devices else ():
        if kernel.startswith(bad.begin) and not (bad.kho and node.machine.kho_off):
            yield warning(bad.code, node.name, f"with kernel {kernel} {NO_MEMORY}", bad.step)


def _gpu_access(node: NodeFacts) -> Iterator[Finding]:
    """Yield why containers get no GPU: --gpus needs the toolkit, CDI a spec, devices need neither."""
    machine, install = node.machine, "sudo apt-get install nvidia-container-toolkit"
    if node.config.gpu == "runtime" and not machine.toolkit:
        step = f"{install}, or set `gpu: cdi` for {node.name}: {machine.cdi[0]} exists" if machine.cdi else install
        yield Finding(code="NO_TOOLKIT", node=node.name, problem="containers get no GPU", next_step=step)
    if node.config.gpu == "cdi" and not machine.cdi:
        problem = "containers get no GPU: no CDI spec for nvidia.com/gpu in /etc/cdi or /var/run/cdi"
        generate, fix = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", machine.toolkit
        step = generate if fix else f"{install}; {generate}"
        yield Finding(code="NO_CDI_SPEC", node=node.name, problem=problem, next_step=step, fixable=fix)


def _alike(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    fabrics = {node.name: node.fabric for node in nodes}
    drivers = {name: fabric.driver for name, fabric in fabrics.items()}
    kernels = {name: fabric.kernel for name, fabric in fabrics.items()}
    firmware = {name: ", ".join(sorted({port.firmware for port in fabric.devices})) for name, fabric in fabrics.items()}
    for same, values in zip(SAME, (drivers, kernels, firmware), strict=True):
        yield from same.check({name: value for name, value in values.items() if value})


def diagnose(
    results: Mapping[str, NodeFacts | SparkopsError], joined: Sequence[Pair], live: Sequence[Finding]
) -> Diagnosis:
    """Return the diagnosis of nodes in this order, each with its facts or its error.

    `joined`: pairs of nodes. `live`: findings of packets between nodes, of agents and of the hub.
    """
    nodes = [node for node in results.values() if isinstance(node, NodeFacts)]
    unreachable = [
        Finding(code="UNREACHABLE", node=name, problem=_problem(error), next_step=error.next_step)
        for name, error in results.items()
        if isinstance(error, SparkopsError)
    ]
    of_nodes = [finding for node in nodes for finding in examine(node)]
    unique = dict.fromkeys([*unreachable, *of_nodes, *_alike(nodes), *topology.pair_findings(joined), *live])
    findings = sorted(map(reasons.explained, unique), key=lambda finding: finding.severity is Severity.WARNING)
    rows = [_row(name, node) for name, node in results.items()]
    return Diagnosis(ok=not problems(findings), nodes=rows, pairs=list(map(_pair_row, joined)), findings=findings)


def _problem(error: SparkopsError) -> str:
    return error.problem if isinstance(error, NodeError) else str(error)


def _row(name: str, node: NodeFacts | SparkopsError) -> NodeHealth:
    if isinstance(node, SparkopsError):
        return NodeHealth(name=name, reachable=False, error=_problem(node))
    host = node.host
    return NodeHealth(
        name=name,
        reachable=True,
        error=None,
        arch=host.arch,
        kernel=node.fabric.kernel,
        docker=node.docker,
        driver=node.fabric.driver,
        gpu=node.machine.gpu,
        memory=Memory(total_gib=round(host.memory_total_gib, 1), available_gib=round(host.memory_available_gib, 1)),
        disk_free_gib=None if host.disk_free_gib is None else round(host.disk_free_gib, 1),
        clock_skew_s=round(node.skew_s, 1),
        devices=[_device_row(device, node.fabric) for device in node.fabric.devices],
    )


def _device_row(device: Device, facts: NodeFabric) -> DeviceRow:
    interface = facts.interfaces.get(device.interface or "")
    return DeviceRow(
        device=device.name,
        interface=device.interface,
        state=device.state,
        rate=device.rate,
        firmware=device.firmware,
        addresses=list(map(str, interface.addresses)) if interface else [],
        gid_rows=[gid.index for gid in device.gids],
        mtu=interface.mtu if interface else None,
    )


def _pair_row(pair: Pair) -> PairRow:
    links = pair.survey.links
    return PairRow(
        nodes=list(pair.facts),
        transport=pair.survey.transport if links else None,
        links=[_link_row(link) for link in links],
        env={name: dict(rank.env) for name, rank in pair.fabric.ranks.items()} if pair.fabric else {},
        reasons=[] if links else list(pair.survey.reasons),
    )


def _link_row(link: Link) -> LinkRow:
    ends = [
        EndRow(
            node=end.node,
            device=end.device.name if end.device else None,
            interface=end.interface.name,
            address=str(end.address),
            gid_index=end.gid_index,
            mtu=end.interface.mtu,
            speed_mbit_s=end.interface.speed_mbit_s,
        )
        for end in link.ends
    ]
    return LinkRow(subnet=str(link.subnet), ends=ends)
