"""The findings of doctor: about each node, its resources, agents and weights, and about each pair of nodes. Pure.

Each has a reason, an area and a next step.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from sparkops.command import quote
from sparkops.config.image import Image
from sparkops.docker.commands import model_dir
from sparkops.docker.places import CONTAINER, GATEWAY
from sparkops.doctor.diagnosis import DeviceRow, Diagnosis, EndRow, LinkRow, NodeHealth, PairRow
from sparkops.doctor.facts import NodeFacts
from sparkops.errors import NodeError, SparkopsError
from sparkops.network import firewall, topology
from sparkops.network.facts import Device, NodeFabric
from sparkops.network.finding import Finding, Same, Severity, problems
from sparkops.network.links import Link
from sparkops.network.topology import Pair
from sparkops.nodes.host import GIB, POWER_CUT
from sparkops.status.join import NEEDS_PERSON, without_node
from sparkops.status.observation import NodeReport
from sparkops.status.picture import Drift, Memory, NodeRow
from sparkops.watch.finding import EngineFinding
from sparkops.weights.checkpoint import ModelDirectory

NCCL_FAILS = "Ranks use this link: NCCL fails on it, or waits for its timeout of 600 s."
OPEN = "Any client that reaches the port can use the engine without a key, or disturb the ranks."
UNLIKE = (
    "Two Sparks with different drivers and kernels were 2.4 times slower than with the same ones (reported by al-engr)."
)
AREAS: Mapping[str, Mapping[str, str]] = {
    "access": {
        "UNREACHABLE": "sparkops needs SSH and Docker to deploy to a node, read it or repair it.",
    },
    "services": {
        "NEEDS_PERSON": "The fleet does not continue by itself: each way on may cost requests or a release.",
        "STALLED": "Clients wait and get nothing, while /health returns 200 (vllm-project/vllm#2731, #39863).",
        "UNANSWERED": "The next client gets no answer either, while /health returns 200 (vllm-project/vllm#17972).",
        "RANK_DOWN": "A replica answers only while all of its ranks run.",
        "GARBAGE": "Clients get text without meaning, with status 200.",
        "RESTARTS": "The engine loses its requests at each restart, and its guard starts it no more.",
        "SLOW": "The same release was faster on the same node: a GPU at low clocks, a driver, or another program.",
        "LOW_MEMORY": "A program that takes the last memory of a GB10 hangs it (vllm-project/vllm#46307, #56824).",
        "GATEWAY_DOWN": "Clients get no answer from any service behind the gateway.",
        "GATEWAY_CLOSED": "Clients call this address; a firewall, a wrong gateway.address or a stopped gateway "
        "closes it.",
        "STATUS_FAILED": "`sparkops status` cannot show the node either.",
    },
    "guards": {
        "GUARD_DOWN": "On this node no engine starts after a boot, no memory floor is enforced and no swap continues.",
        "GUARD_SILENT": "sparkops cannot read the services of this guard, and deploys that need it fail.",
        "GUARD_NOT_REACHED": "Swaps wait for every guard that takes part.",
        "CORDONED": "No release starts on the node until it returns.",
        "CORDON_UNREAD": "Whether new releases may start on this node is unknown, so none does.",
    },
    "GPU": {
        "GPU_SILENT": "An engine cannot start. GB10 needs the open kernel modules: with the proprietary ones of "
        "580.173.02 nvidia-smi finds no device (Start9Labs/start-technologies#3693).",
        "NO_DRIVER": "An engine with CUDA cannot start without the driver.",
        "NO_TOOLKIT": "Docker's --gpus calls the programs of nvidia-container-toolkit.",
        "NO_CDI_SPEC": "Docker reads the devices of a GPU from that file.",
        "CLOCKS_LOW": "The GPU stays in a low-power state, at half the speed, until its power is cut "
        "(eugr/spark-vllm-docker#334, Blackwellboy/model-serving-minefield#55).",
        "DRIVER_590": "CUDA graph capture deadlocks with 590.x on GB10 (README of eugr/spark-vllm-docker).",
    },
    "open ports": {
        "DOCKER_TCP": "Port 2375 has neither TLS nor a password (docs.docker.com, Protect the Docker daemon socket).",
        "ENGINE_OPEN": OPEN,
        "FILTER_MISSING": OPEN,
        "FILTER_UNKNOWN": OPEN,
    },
    "memory": {
        "MEMORY": "GPU and system share the memory of a Spark: a node without free memory answers no SSH until it "
        "is reset (NVIDIA/dgx-spark-playbooks#116, NVIDIA/open-gpu-kernel-modules#1358).",
        "NO_EARLYOOM": "The kernel's OOM killer acts too late if the GPU holds the memory: the node hangs first "
        "(README of eugr/spark-vllm-docker, MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#193).",
        "OOM_SCORE": "A node whose sshd or dockerd was killed cannot be repaired over SSH.",
        "SWAP": "Under memory pressure, a node with a large swap thrashes instead of killing a process: keep swap "
        "small or off, and run earlyoom (README of eugr/spark-vllm-docker).",
        "PAGE_CACHE": "CUDA counts the page cache as used on GB10, so a loader can abort although memory is available "
        "(MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#205, NVIDIA/xr-ai#440).",
    },
    "Docker": {
        "NO_BUILDKIT": "Images of sparkops are built with cache mounts and secrets, which only BuildKit has.",
        "NO_LIVE_RESTORE": "dockerd stops every container when it ends with SIGTERM, as in an update of its package: "
        "streams are cut, and every model loads again (docs.docker.com, Live restore).",
        "DOCKER_OLD": "sparkops is tested with Docker Engine 26; its builds and copies need BuildKit's streams.",
    },
    "network": {
        "LINK_DOWN": NCCL_FAILS,
        "NO_RDMA": NCCL_FAILS,
        "NO_UVERBS": "A container without these files has no RDMA.",
        "NO_GID": NCCL_FAILS,
        "NO_ANSWER": NCCL_FAILS,
        "SAME_ADDRESS": NCCL_FAILS,
        "SUBNET": NCCL_FAILS,
        "FABRIC_NAMED": "The inventory names a port that the node does not have.",
        "ENVIRONMENT": "NCCL and Gloo select the interface by name, and fail without it.",
        "MTU": "TCP negotiates a packet size; RoCE drops larger packets without an error.",
        "MTU_PATH": "TCP negotiates a packet size; RoCE drops larger packets without an error.",
        "KERNEL_KHO": "NCCL cannot register memory, and exits at start (eugr/spark-vllm-docker#392).",
        "KERNEL_RDMA": "NCCL cannot register memory, and exits at start; 7.0.0-30 works "
        "(MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259).",
        "SAME_SUBNET": "The kernel answers for both ports through either of them (docs/NETWORKING.md of "
        "eugr/spark-vllm-docker).",
        "NO_PEER": "A port without a peer carries no traffic.",
        "CROSSED": "NCCL pairs devices by their order (AINode 0.5.11: ibv_modify_qp timed out).",
        "HALF_PORT": "98 instead of 161 Gbit/s "
        "(tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35).",
        "SLOW_LINK": "Tensor parallelism waits for this link at every layer.",
        "FIRMWARE": "The vendor does not test links between different firmware versions.",
        "NO_PING": "The link was not tested.",
    },
    "disk": {
        "DISK": "A build that fills the disk fails, and Docker with it.",
        "WEIGHTS_UNREAD": "A deploy verifies the weights first, and fails the same way.",
        "WEIGHTS_TWICE": "Weights of 60 to 80 GB fill the disk (eugr/spark-vllm-docker#262, spark-arena/sparkrun#291).",
    },
    "versions": {
        "DRIVERS": UNLIKE,
        "KERNELS": UNLIKE,
    },
    "clock": {
        "CLOCK": "Timestamps of logs and events cannot be compared, and TLS may refuse certificates.",
    },
    "hub": {
        "HUB_LOGIN": "Without a valid token the hub refuses gated models, and may answer 416 for public ones.",
    },
}
"""Why each code matters, with its source unless it is a rule of sparkops, by area.

Areas and codes stand with the most urgent first.
"""
REASONS = {code: reason for codes in AREAS.values() for code, reason in codes.items()}
URGENCY = {code: number for number, code in enumerate(REASONS)}


def warning(code: str, node: str, problem: str, step: str, *, fixable: bool = False) -> Finding:
    """Return a finding that stops no deploy."""
    severity = Severity.WARNING
    return Finding(code=code, node=node, problem=problem, next_step=step, severity=severity, fixable=fixable)


def explained(finding: Finding) -> Finding:
    """Return a finding with its reason; without one for a code of a newer guard."""
    return finding.model_copy(update={"reason": REASONS.get(finding.code, "")})


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
    yield from resources(node)
    yield from duplicates(node)
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
        Finding(code="UNREACHABLE", node=name, problem=without_node(error), next_step=error.next_step)
        for name, error in results.items()
        if isinstance(error, SparkopsError)
    ]
    of_nodes = [finding for node in nodes for finding in examine(node)]
    unique = dict.fromkeys([*unreachable, *of_nodes, *_alike(nodes), *topology.pair_findings(joined), *live])
    findings = sorted(map(explained, unique), key=lambda finding: finding.severity is Severity.WARNING)
    rows = [_row(name, node) for name, node in results.items()]
    return Diagnosis(ok=not problems(findings), nodes=rows, pairs=list(map(_pair_row, joined)), findings=findings)


def _row(name: str, node: NodeFacts | SparkopsError) -> NodeHealth:
    if isinstance(node, SparkopsError):
        return NodeHealth(name=name, reachable=False, error=without_node(node))
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


DISK_GIB: float = Image.model_fields["disk_gib"].default  # needed by a build, unless its recipe has another value
MEMORY_GIB = 8.0  # spark-vllm-docker and NVIDIA's playbooks keep 8 to 10 GiB free
SWAP_GIB = 8.0  # the limit of "small" in spark-vllm-docker's advice (swap small or off, with earlyoom), set by sparkops
CACHE_GIB = 8.0  # of MemFree: tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark PR#19 drops caches below it
SKEW_S = 5.0
CACHED = "models--"
"""Prefix of a model's directory in the hub's own cache."""


def resources(node: NodeFacts) -> Iterator[Finding]:
    disk, memory = node.host.disk_free_gib, node.host.memory_available_gib
    if disk is not None and disk < DISK_GIB:
        problem = f"{disk:.1f} GiB are free for images; a build needs {DISK_GIB:g}"
        yield warning("DISK", node.name, problem, "sparkops prune --dry-run; docker system df lists other data")
    if memory < MEMORY_GIB:
        problem = (
            f"{memory:.1f} of {node.host.memory_total_gib:.1f} GiB are available: a node without free memory may hang"
        )
        yield warning("MEMORY", node.name, problem, f"Keep {MEMORY_GIB:g} GiB free: sparkops status shows what runs.")
    if node.config.gpu not in (None, "none") and not node.host.gpu_is_discrete:
        yield from _unified(node)
    if abs(node.skew_s) > SKEW_S:
        way = "ahead of" if node.skew_s > 0 else "behind"
        problem = f"its clock is {abs(node.skew_s):.0f} s {way} this machine's"
        step = "sudo timedatectl set-ntp true; timedatectl shows whether it is synchronized"
        yield warning("CLOCK", node.name, problem, step, fixable=True)
    yield from _clocks(node)


def _unified(node: NodeFacts) -> Iterator[Finding]:
    """Yield the findings about a node whose GPU shares its memory."""
    machine, host = node.machine, node.host
    if not machine.oom_killers:
        problem = "neither earlyoom, systemd-oomd nor nohang runs: no daemon kills a process before memory runs out"
        yield warning("NO_EARLYOOM", node.name, problem, "sudo apt-get install earlyoom")
    if machine.swap_gib is not None and machine.swap_gib > SWAP_GIB:
        problem = f"swap has {machine.swap_gib:.1f} GiB, expected up to {SWAP_GIB:g}"
        yield warning("SWAP", node.name, problem, "sudo swapoff --all, and remove its line from /etc/fstab")
    free, available = host.memory_free_gib, host.memory_available_gib
    idle = not any(container.running for container in node.containers)
    if idle and host.gpu_shares_memory and free is not None and free < CACHE_GIB <= available - free:
        problem = f"{free:.1f} GiB are free without the page cache, {available:.1f} GiB with it: CUDA counts the first"
        step = f"sparkops doctor --fix --node {node.name}: drops clean pages of {model_dir(node.config)}, without root"
        yield warning("PAGE_CACHE", node.name, problem, step, fixable=True)


def _clocks(node: NodeFacts) -> Iterator[Finding]:
    """Yield a GPU that is busy and slow in every sample: an idle one is slow too, and one sample may be a transient."""
    samples = node.machine.clocks
    if samples and all(sample.stuck for sample in samples):
        yield warning("CLOCKS_LOW", node.name, str(samples[-1]), POWER_CUT)


def duplicates(node: NodeFacts) -> Iterator[Finding]:
    """Yield each further copy of a model: in the model directory, and in the hub's own cache of the SSH user.

    Copies are recognized by the recorded model and commit, in the cache by the model alone.
    """
    if isinstance(node.weights, NodeError):
        step = node.weights.next_step or f"sparkops models list --node {node.name}"
        yield warning("WEIGHTS_UNREAD", node.name, node.weights.problem, step)
    checkpoints = node.weights.checkpoints.values() if isinstance(node.weights, ModelDirectory) else ()
    root, copies = model_dir(node.config), defaultdict[tuple[str, str], list[str]](list)
    sizes = {f"{root}/{checkpoint.path}": checkpoint.size / GIB for checkpoint in checkpoints}
    for checkpoint in checkpoints:
        if checkpoint.complete and checkpoint.origin and not checkpoint.origin.steps and checkpoint.commit:
            copies[checkpoint.origin.model, checkpoint.commit].append(f"{root}/{checkpoint.path}")
    for (model, _), (first, *others) in copies.items():
        for copy in others:
            yield _duplicate(node.name, model, first, copy, sizes[copy])
    kept = {model: directories[0] for (model, _), directories in copies.items()}
    for directory, size in node.machine.hub_cache.items():
        model = PurePath(directory).name.removeprefix(CACHED).replace("--", "/")
        if model in kept and not PurePath(directory).is_relative_to(root):
            yield _duplicate(node.name, model, kept[model], directory, size)


def _duplicate(node: str, model: str, first: str, copy: str, size_gib: float) -> Finding:
    problem = f"{model} exists twice: {first} and {copy} ({size_gib:.1f} GiB)"
    step = f"If no recipe's model.path or program names it: rm -r {quote(copy)}"
    return warning("WEIGHTS_TWICE", node, problem, step)


STARTABLE = ("created", "exited")
NOT_REACHED = "GUARD_NOT_REACHED"
Reports = Mapping[str, NodeReport | SparkopsError]


def reached(nodes: Sequence[NodeFacts], reports: Reports, drift: Sequence[Drift]) -> Iterator[Finding]:
    """Yield the agents that do not run or do not answer. `reports` and `drift` are those of status."""
    for node in nodes:
        yield from _of_node(node, reports.get(node.name))
    for row in drift:
        if row.code == NOT_REACHED:
            step = f"docker logs --tail 50 {CONTAINER}, on both nodes; docs/security.md lists the port"
            yield Finding(code="GUARD_NOT_REACHED", node=row.node, problem=row.detail, next_step=step)


def unresolved(drift: Sequence[Drift]) -> Iterator[Finding]:
    """Yield the services that need an operator, with the next step that status shows."""
    for row in drift:
        if row.code == NEEDS_PERSON:
            yield Finding(code="NEEDS_PERSON", node=row.node, problem=row.detail, next_step=row.next_step)


def watched(found: Sequence[EngineFinding]) -> Iterator[Finding]:
    """Yield the findings of the guards' watch, as status shows them."""
    for finding in found:
        problem = f"{finding.container}: {finding.detail}"
        yield warning(finding.code, finding.node, problem, finding.next_step)


def cordoned(nodes: Sequence[NodeRow]) -> Iterator[Finding]:
    """Yield the nodes on which nothing new starts, and those to which services have not returned."""
    for node in nodes:
        taken = f"{', '.join(node.displaced)} not returned" if node.displaced else ""
        if problem := "; ".join(filter(None, (node.cordon and f"cordoned: {node.cordon}", taken))):
            yield warning("CORDONED", node.name, problem, f"sparkops node return {node.name}")


def _of_node(node: NodeFacts, report: NodeReport | SparkopsError | None) -> Iterator[Finding]:
    if down := _down("GUARD_DOWN", CONTAINER, node):
        yield down
    elif isinstance(report, SparkopsError):
        yield _unread(code="STATUS_FAILED", node=node.name, error=report)
    elif report and report.guard_error:
        yield _unread(code="GUARD_SILENT", node=node.name, error=report.guard_error)
    if isinstance(report, NodeReport) and report.cordon_error:
        yield _unread(code="CORDON_UNREAD", node=node.name, error=report.cordon_error)
    if down := _down("GATEWAY_DOWN", GATEWAY, node):
        yield down
    elif isinstance(report, NodeReport) and report.gateway and report.gateway.problem:
        problem, step = f"{GATEWAY} does not answer: {report.gateway.problem}", f"docker logs --tail 50 {GATEWAY}"
        yield Finding(code="GATEWAY_DOWN", node=node.name, problem=problem, next_step=step)


def _down(code: str, container: str, node: NodeFacts) -> Finding | None:
    """Return a finding if a container exists and does not run."""
    state = node.agents.get(container, "running")
    if state == "running":
        return None
    startable = state in STARTABLE
    step = f"docker start {container}" if startable else f"docker logs --tail 50 {container}"
    problem = f"the container {container} is {state}"
    return Finding(code=code, node=node.name, problem=problem, next_step=step, fixable=startable)


def _unread(*, code: str, node: str, error: SparkopsError) -> Finding:
    return Finding(code=code, node=node, problem=without_node(error), next_step=error.next_step or "sparkops status")


def closed(node: str, address: str, why: str) -> Finding:
    """Return the finding for an address of the gateway that refuses connections from this machine."""
    problem = f"no connection from this machine to the gateway at {address}: {why}"
    step = "curl -v the address from a client; correct gateway.address of the inventory, or open the port"
    return warning("GATEWAY_CLOSED", node, problem, step)
