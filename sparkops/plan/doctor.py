"""Look at each node and each pair, and say what is not as it should be, with the next step. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparkops.config.image import Image
from sparkops.config.inventory import NodeConfig
from sparkops.errors import NodeError, SparkopsError
from sparkops.facts.docker import Container
from sparkops.facts.fabric import Device, NodeFabric
from sparkops.facts.host import HostFacts
from sparkops.facts.machine import MachineFacts
from sparkops.plan import exposure, pairs
from sparkops.plan.diagnosis import DeviceRow, Diagnosis, EndRow, LinkRow, NodeHealth, PairRow
from sparkops.plan.finding import Finding, Same, Severity, problems
from sparkops.plan.links import Link
from sparkops.plan.pairs import Pair
from sparkops.plan.picture import Memory

OLDEST_DOCKER = 24
DISK_GIB: float = Image.model_fields["disk_gib"].default  # what a build wants, unless its recipe says otherwise
MEMORY_GIB = 8.0  # spark-vllm-docker and NVIDIA's playbooks keep 8 to 10 GiB free
SKEW_S = 5.0
SAME = (
    Same("DRIVERS", "the NVIDIA driver", "Install one driver on all nodes.", Severity.WARNING),
    Same("KERNELS", "the kernel", "Update all nodes to one kernel.", Severity.WARNING),
    Same("FIRMWARE", "the firmware of the RDMA devices", "Update it on all nodes: fwupdmgr update", Severity.WARNING),
)


@dataclass(frozen=True)
class Examined:
    """All that one node said. `skew_s` is how far its clock is ahead of ours, in seconds.

    `containers` are engines of a fleet with a gateway, `filtered` the ports that only the gateway reaches; None where
    the guard did not report them.
    """

    name: str
    config: NodeConfig
    host: HostFacts
    machine: MachineFacts
    fabric: NodeFabric
    docker: str
    skew_s: float
    containers: tuple[Container, ...] = ()
    filtered: frozenset[int] | None = None


def skew(before_s: float, said_s: float, after_s: float) -> float:
    """How far a clock is ahead that was read between two moments of ours; 0 within them."""
    return said_s - min(max(said_s, before_s), after_s)


def examine(node: Examined) -> Iterator[Finding]:
    """What is wrong with one node by itself."""
    yield from _docker(node)
    yield from _gpu(node)
    yield from _resources(node)
    yield from exposure.findings(node.name, node.containers, node.machine.open_ports, node.filtered)
    for daemon, score in sorted(node.machine.oom_score.items()):
        if score >= 0:
            unit = {"sshd": "ssh"}.get(daemon, "docker")
            problem = f"when memory runs out, the kernel may kill {daemon} as any other program (oom_score_adj {score})"
            step = f"sudo systemctl edit {unit}: OOMScoreAdjust=-500 under [Service], and restart it"
            yield _warning("OOM_SCORE", node.name, problem, step)


def _docker(node: Examined) -> Iterator[Finding]:
    if int(node.docker.split(".")[0]) < OLDEST_DOCKER:
        step = f"Update Docker Engine to {OLDEST_DOCKER} or newer."
        yield _warning("DOCKER_OLD", node.name, f"Docker Engine is {node.docker}", step)
    if not node.host.buildkit:
        step = "sudo apt-get install docker-buildx-plugin (docker-buildx on Debian)"
        yield Finding(
            code="NO_BUILDKIT", node=node.name, problem="Docker has no BuildKit to build with", next_step=step
        )
    for address in node.machine.docker_tcp:
        problem = f"Docker listens on {address}:2375 without a key: whoever reaches it is root"
        step = "Take tcp:// out of `hosts` in /etc/docker/daemon.json and out of dockerd's unit, and restart Docker."
        yield _warning("DOCKER_TCP", node.name, problem, step)


def _gpu(node: Examined) -> Iterator[Finding]:
    said, name = node.machine, node.name
    if node.config.gpu in (None, "none"):
        return
    if said.gpu_error:
        step = "nvidia-smi on the node; after an update of the driver: sudo reboot"
        yield Finding(code="GPU_SILENT", node=name, problem=f"nvidia-smi says: {said.gpu_error}", next_step=step)
    elif not node.fabric.driver:
        step = f"Install NVIDIA's driver, or set `gpu: none` for {name} in the inventory."
        yield Finding(code="NO_DRIVER", node=name, problem="there is no NVIDIA driver", next_step=step)
    yield from _containers_get_it(node)
    if node.fabric.driver.startswith("590."):
        problem = f"driver {node.fabric.driver}: 590.x hangs on a GB10 while CUDA graphs are captured"
        yield _warning("DRIVER_590", name, problem, "Install a driver of 580.x.")
    if node.fabric.kernel.startswith("7.0.0-1019") and node.fabric.devices and not said.kho_off:
        problem = f"with kernel {node.fabric.kernel} RDMA gets no memory (ibv_reg_mr: ENOMEM)"
        yield _warning("KERNEL_KHO", name, problem, "Add kho=off to the boot options, and reboot.")


def _containers_get_it(node: Examined) -> Iterator[Finding]:
    """Docker's own --gpus calls the toolkit's programs; a CDI spec is a file; devices need neither."""
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
        )


def _resources(node: Examined) -> Iterator[Finding]:
    disk, memory = node.host.disk_free_gib, node.host.memory_available_gib
    if disk is not None and disk < DISK_GIB:
        problem = f"{disk:.1f} GiB are free for images; a build wants {DISK_GIB:g}"
        yield _warning("DISK", node.name, problem, "docker system df shows what takes it.")
    if memory < MEMORY_GIB:
        problem = f"{memory:.1f} of {node.host.memory_total_gib:.1f} GiB are available: a node that runs out may hang"
        yield _warning("MEMORY", node.name, problem, f"Keep {MEMORY_GIB:g} GiB free: sparkops status shows what runs.")
    if abs(node.skew_s) > SKEW_S:
        way = "ahead of" if node.skew_s > 0 else "behind"
        problem = f"its clock is {abs(node.skew_s):.0f} s {way} this machine's"
        yield _warning("CLOCK", node.name, problem, "timedatectl on both shows which one is not synchronised.")


def _warning(code: str, node: str, problem: str, step: str) -> Finding:
    return Finding(code=code, node=node, problem=problem, next_step=step, severity=Severity.WARNING)


def _alike(nodes: Sequence[Examined]) -> Iterator[Finding]:
    """What makes nodes of one fleet differ, where they have it."""
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
    """Join it all. `tried` is what packets between nodes showed."""
    nodes = [node for name in order if isinstance(node := seen[name], Examined)]
    lost = [_lost(name, error) for name in order if isinstance(error := seen[name], SparkopsError)]
    alone = [each for node in nodes for each in examine(node)]
    every = dict.fromkeys([*lost, *alone, *_alike(nodes), *pairs.findings(found), *tried])
    told = sorted(every, key=lambda each: each.severity is Severity.WARNING)
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
        env={name: dict(rank.env) for name, rank in pair.made.ranks.items()} if pair.made else {},
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
