"""The rules of doctor: findings about each node and each pair, with the next step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparkops.doctor import duplicates, known_bad, pressure, reasons
from sparkops.doctor.diagnosis import DeviceRow, Diagnosis, EndRow, LinkRow, NodeHealth, PairRow
from sparkops.doctor.examined import Examined, warning
from sparkops.errors import NodeError, SparkopsError
from sparkops.network import firewall, topology
from sparkops.network.facts import Device, NodeFabric
from sparkops.network.finding import Finding, Same, Severity, problems
from sparkops.network.links import Link
from sparkops.network.topology import Pair
from sparkops.status.picture import Memory

OLDEST_DOCKER = 24
UPDATE = "sudo apt-get update; sudo apt-get dist-upgrade; sudo reboot, on the older nodes"
SAME = (
    Same("DRIVERS", "the NVIDIA driver", UPDATE, Severity.WARNING),
    Same("KERNELS", "the kernel", UPDATE, Severity.WARNING),
    Same(
        "FIRMWARE",
        "the firmware of the RDMA devices",
        "sudo fwupdmgr refresh; sudo fwupdmgr update, on all nodes",
        Severity.WARNING,
    ),
)


def skew(before_s: float, said_s: float, after_s: float) -> float:
    """Return the seconds that a clock is ahead, read between two local times; 0 if it is between them."""
    return said_s - min(max(said_s, before_s), after_s)


def examine(node: Examined) -> Iterator[Finding]:
    """Yield the findings about one node by itself."""
    yield from _docker(node)
    yield from _gpu(node)
    yield from pressure.findings(node)
    yield from duplicates.findings(node)
    if node.gateway:
        yield from firewall.engine_findings(node.name, node.containers, node.machine.open_ports, node.filtered)
    yield from firewall.rank_findings(node.name, node.containers, node.filtered)
    for daemon, score in sorted(node.machine.oom_score.items()):
        if score >= 0:
            unit = {"sshd": "ssh"}.get(daemon, "docker")
            problem = f"when memory runs out, the kernel may kill {daemon} like any program (oom_score_adj {score})"
            step = f"sudo systemctl edit {unit}: OOMScoreAdjust=-500 under [Service], and restart it"
            yield warning("OOM_SCORE", node.name, problem, step)


def _docker(node: Examined) -> Iterator[Finding]:
    if int(node.docker.split(".")[0]) < OLDEST_DOCKER:
        step = f"sudo apt-get install --only-upgrade docker-ce: version {OLDEST_DOCKER} or newer"
        yield warning("DOCKER_OLD", node.name, f"Docker Engine is {node.docker}", step)
    if not node.host.buildkit:
        step = "sudo apt-get install docker-buildx-plugin (docker-buildx on Debian)"
        yield Finding(
            code="NO_BUILDKIT", node=node.name, problem="Docker has no BuildKit to build with", next_step=step
        )
    for address in node.machine.docker_tcp:
        problem = f"Docker listens on {address}:2375 without TLS: any client that reaches it is root"
        step = "Remove tcp:// from `hosts` in /etc/docker/daemon.json and from dockerd's unit, and restart Docker."
        yield warning("DOCKER_TCP", node.name, problem, step)


def _gpu(node: Examined) -> Iterator[Finding]:
    said, name = node.machine, node.name
    if node.config.gpu in (None, "none"):
        return
    if said.gpu_error:
        step = "nvidia-smi on the node; after an update of the driver: sudo reboot"
        yield Finding(code="GPU_SILENT", node=name, problem=f"nvidia-smi fails: {said.gpu_error}", next_step=step)
    elif not node.fabric.driver:
        step = f"sudo apt-get install nvidia-driver-580-open; sudo reboot; or `gpu: none` for {name} in the inventory"
        yield Finding(code="NO_DRIVER", node=name, problem="no NVIDIA driver is loaded", next_step=step)
    yield from _containers_get_it(node)
    yield from known_bad.findings(node)


def _containers_get_it(node: Examined) -> Iterator[Finding]:
    """Yield why containers get no GPU: --gpus needs the toolkit, CDI a spec, devices need neither."""
    said, install = node.machine, "sudo apt-get install nvidia-container-toolkit"
    if node.config.gpu == "runtime" and not said.toolkit:
        step = f"{install}, or set `gpu: cdi` for {node.name}: {said.cdi[0]} exists" if said.cdi else install
        yield Finding(code="NO_TOOLKIT", node=node.name, problem="containers get no GPU", next_step=step)
    if node.config.gpu == "cdi" and not said.cdi:
        problem = "containers get no GPU: no CDI spec for nvidia.com/gpu in /etc/cdi or /var/run/cdi"
        step = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        yield Finding(
            code="NO_CDI_SPEC",
            node=node.name,
            problem=problem,
            next_step=step if said.toolkit else f"{install}; {step}",
            fixable=said.toolkit,
        )


def _alike(nodes: Sequence[Examined]) -> Iterator[Finding]:
    """Yield differences of driver, kernel and firmware between the nodes."""
    firmware = {node.name: ", ".join(sorted({each.firmware for each in node.fabric.devices})) for node in nodes}
    said = (
        {node.name: node.fabric.driver for node in nodes},
        {node.name: node.fabric.kernel for node in nodes},
        firmware,
    )
    for same, values in zip(SAME, said, strict=True):
        yield from same.check({name: value for name, value in values.items() if value})


def diagnose(
    order: Sequence[str],
    seen: Mapping[str, Examined | SparkopsError],
    found: Sequence[Pair],
    tried: Sequence[Finding],
) -> Diagnosis:
    """Return the diagnosis. `tried`: findings of the packets between nodes."""
    nodes = [node for name in order if isinstance(node := seen[name], Examined)]
    lost = [_lost(name, error) for name in order if isinstance(error := seen[name], SparkopsError)]
    alone = [each for node in nodes for each in examine(node)]
    every = dict.fromkeys([*lost, *alone, *_alike(nodes), *topology.pair_findings(found), *tried])
    told = sorted(map(reasons.explained, every), key=lambda each: each.severity is Severity.WARNING)
    rows = [_row(name, seen[name]) for name in order]
    return Diagnosis(ok=not problems(told), nodes=rows, pairs=[_pair_row(each) for each in found], findings=told)


def _lost(name: str, error: SparkopsError) -> Finding:
    return Finding(code="UNREACHABLE", node=name, problem=_problem(error), next_step=error.next_step)


def _problem(error: SparkopsError) -> str:
    return error.problem if isinstance(error, NodeError) else str(error)


def _row(name: str, node: Examined | SparkopsError) -> NodeHealth:
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
        addresses=[str(each) for each in interface.addresses] if interface else [],
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
