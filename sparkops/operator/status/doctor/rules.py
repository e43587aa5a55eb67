"""The findings of doctor: about each node, its resources, agents and weights, and about each pair of nodes. Pure.

Each kind is one object: code, reason, severity, and where the facts of one node suffice, how it is found and fixed.
`AREAS` lists them all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import NamedTuple

from sparkops.command import quote
from sparkops.config.image import Image
from sparkops.config.node import NodeConfig
from sparkops.errors import NodeError, SparkopsError
from sparkops.node.docker.commands import model_dir
from sparkops.node.docker.places import CONTAINER, GATEWAY
from sparkops.node.host import POWER_CUT
from sparkops.node.network import firewall
from sparkops.node.network.finding import Finding, Kind, Same, Severity, problems
from sparkops.operator.build.weights.checkpoint import ModelDirectory
from sparkops.operator.deploy.agents.packages import AgentPackages, differing
from sparkops.operator.fleet.network import checks, environment, links, topology
from sparkops.operator.fleet.network.facts import Device, NodeFabric
from sparkops.operator.fleet.network.links import Link
from sparkops.operator.fleet.network.topology import Pair
from sparkops.operator.status import join
from sparkops.operator.status.doctor import repairs
from sparkops.operator.status.doctor.diagnosis import DeviceRow, Diagnosis, EndRow, LinkRow, NodeHealth, PairRow
from sparkops.operator.status.doctor.facts import NodeFacts
from sparkops.operator.status.doctor.repairs import Repair
from sparkops.operator.status.join import NEEDS_PERSON, without_node
from sparkops.operator.status.observation import NodeReport
from sparkops.operator.status.picture import Drift, Memory, NodeRow
from sparkops.serving.watch.finding import EngineFinding
from sparkops.serving.watch.rules import Rule
from sparkops.units import GIB

WARNING = Severity.WARNING


class Seen(NamedTuple):
    """What a rule has seen on a node. `fixable`: whether the rule's fix helps in this case."""

    problem: str
    next_step: str
    fixable: bool = False


Find = Callable[[NodeFacts], Iterator[Seen]]


@dataclass(frozen=True, kw_only=True)
class NodeRule(Kind):
    """A kind of finding about one node."""

    find: Find
    fix: Callable[[NodeConfig], Repair] | None = None
    """The command of `doctor --fix`."""

    def findings(self, node: NodeFacts) -> Iterator[Finding]:
        for problem, step, fixable in self.find(node):
            yield self.at(node.name, problem, step, fixable=fixable)


def rule(
    severity: Severity = Severity.PROBLEM, *, fix: Callable[[NodeConfig], Repair] | None = None
) -> Callable[[Find], NodeRule]:
    """Make a function the rule of its name. Its docstring is the reason that doctor prints."""
    return lambda find: NodeRule(
        find.__name__.upper(), " ".join((find.__doc__ or "").split()), severity, find=find, fix=fix
    )


GATEWAY_NODE = Kind(
    join.GATEWAY_NODE, "A deploy would start a second leader, and other next steps may name the wrong node."
)
NODE_NAME = Kind(join.NODE_NAME, "The journals name the node otherwise: other next steps may name the wrong node.")
UNREACHABLE = Kind("UNREACHABLE", "sparkops needs SSH and Docker to deploy to a node, read it or repair it.")

NEEDS_OPERATOR = Kind(
    NEEDS_PERSON, "The fleet does not continue by itself: each way on may cost requests or a release."
)
WATCHED = (
    Kind(
        Rule.STALLED,
        "Clients wait and get nothing, while /health returns 200 (vllm-project/vllm#2731, #39863).",
        WARNING,
    ),
    Kind(
        Rule.UNANSWERED,
        "The next client gets no answer either, while /health returns 200 (vllm-project/vllm#17972).",
        WARNING,
    ),
    Kind(Rule.RANK_DOWN, "A replica answers only while all of its ranks run.", WARNING),
    Kind(Rule.GARBAGE, "Clients get text without meaning, with status 200.", WARNING),
    Kind(
        Rule.RESTARTS,
        "The engine loses its requests at each restart, and its guard starts it no more.",
        WARNING,
    ),
    Kind(
        Rule.SLOW,
        "The same release was faster on the same node: a GPU at low clocks, a driver, or another program.",
        WARNING,
    ),
    Kind(
        Rule.LOW_MEMORY,
        "A program that takes the last memory of a GB10 hangs it (vllm-project/vllm#46307, #56824).",
        WARNING,
    ),
)
"""What the guards watch for."""
STATUS_FAILED = Kind("STATUS_FAILED", "`sparkops status` cannot show the node either.")

GUARD_SILENT = Kind("GUARD_SILENT", "sparkops cannot read the services of this guard, and deploys that need it fail.")
GUARD_NOT_REACHED = Kind("GUARD_NOT_REACHED", "Swaps wait for every guard that takes part.")
CORDONED = Kind("CORDONED", "No release starts on the node until it returns.", WARNING)
CORDON_UNREAD = Kind("CORDON_UNREAD", "Whether new releases may start on this node is unknown, so none does.")
STARTABLE = ("created", "exited")


def _down(container: str, node: NodeFacts) -> Iterator[Seen]:
    """Yield a container that exists and does not run."""
    state = node.agents.get(container, "running")
    if state != "running":
        startable = state in STARTABLE
        step = f"docker start {container}" if startable else f"docker logs --tail 50 {container}"
        yield Seen(f"the container {container} is {state}", step, startable)


GATEWAY_DOWN = NodeRule(
    "GATEWAY_DOWN",
    "Clients get no answer from any service behind the gateway.",
    find=partial(_down, GATEWAY),
    fix=repairs.start_gateway,
)
GATEWAY_CLOSED = Kind(
    "GATEWAY_CLOSED",
    "Clients call this address; a firewall, a wrong gateway.address or a stopped gateway closes it.",
    WARNING,
)
GUARD_DOWN = NodeRule(
    "GUARD_DOWN",
    "On this node no engine starts after a boot, no memory floor is enforced and no swap continues.",
    find=partial(_down, CONTAINER),
    fix=repairs.start_guard,
)


def _has_gpu(node: NodeFacts) -> bool:
    return node.config.gpu not in (None, "none")


@rule()
def gpu_silent(node: NodeFacts) -> Iterator[Seen]:
    """An engine cannot start. GB10 needs the open kernel modules: with the proprietary ones of 580.173.02 nvidia-smi
    finds no device (Start9Labs/start-technologies#3693)."""
    if _has_gpu(node) and node.machine.gpu_error:
        step = "nvidia-smi on the node; after an update of the driver: sudo reboot"
        yield Seen(f"nvidia-smi fails: {node.machine.gpu_error}", step)


@rule()
def no_driver(node: NodeFacts) -> Iterator[Seen]:
    """An engine with CUDA cannot start without the driver."""
    if _has_gpu(node) and not node.machine.gpu_error and not node.fabric.driver:
        other = f"`gpu: none` for {node.name} in the inventory"
        yield Seen(
            "no NVIDIA driver is loaded", f"sudo apt-get install nvidia-driver-580-open; sudo reboot; or {other}"
        )


TOOLKIT = "sudo apt-get install nvidia-container-toolkit"


@rule()
def no_toolkit(node: NodeFacts) -> Iterator[Seen]:
    """Docker's --gpus calls the programs of nvidia-container-toolkit."""
    if node.config.gpu == "runtime" and not node.machine.toolkit:
        cdi = node.machine.cdi
        step = f"{TOOLKIT}, or set `gpu: cdi` for {node.name}: {cdi[0]} exists" if cdi else TOOLKIT
        yield Seen("containers get no GPU", step)


OLDEST_TOOLKIT = "1.17.8"


@rule(WARNING)
def toolkit_old(node: NodeFacts) -> Iterator[Seen]:
    """With an older one, an image that sets LD_PRELOAD gets root on the node (CVE-2025-23266)."""
    version = node.machine.toolkit_version
    if _has_gpu(node) and node.machine.toolkit and _numbers(version) < _numbers(OLDEST_TOOLKIT):
        problem = f"NVIDIA Container Toolkit {version or 'of unknown version'}, expected {OLDEST_TOOLKIT} or newer"
        yield Seen(problem, f"sudo apt-get update; {TOOLKIT}")


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".") if number]


@rule(fix=repairs.generate_cdi_spec)
def no_cdi_spec(node: NodeFacts) -> Iterator[Seen]:
    """Docker reads the devices of a GPU from that file."""
    if node.config.gpu == "cdi" and not node.machine.cdi:
        generate, equipped = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml", node.machine.toolkit
        problem = "containers get no GPU: no CDI spec for nvidia.com/gpu in /etc/cdi or /var/run/cdi"
        yield Seen(problem, generate if equipped else f"{TOOLKIT}; {generate}", equipped)


@rule(WARNING)
def clocks_low(node: NodeFacts) -> Iterator[Seen]:
    """The GPU stays in a low-power state, at half the speed, until its power is cut (eugr/spark-vllm-docker#334,
    Blackwellboy/model-serving-minefield#55)."""
    # Yield a GPU that is busy and slow in every sample: an idle one is slow too, and one sample may be a transient.
    samples = node.machine.clocks
    if samples and all(sample.stuck for sample in samples):
        yield Seen(str(samples[-1]), POWER_CUT)


BAD_DRIVER = "590."


@rule(WARNING)
def driver_590(node: NodeFacts) -> Iterator[Seen]:
    """CUDA graph capture deadlocks with 590.x on GB10 (README of eugr/spark-vllm-docker)."""
    driver = node.fabric.driver
    if _has_gpu(node) and driver.startswith(BAD_DRIVER):
        problem = f"driver {driver}: 590.x hangs on a GB10 during CUDA graph capture; 580.x does not"
        yield Seen(problem, "sudo apt-get install nvidia-driver-580-open; sudo reboot")


@rule(WARNING)
def docker_tcp(node: NodeFacts) -> Iterator[Seen]:
    """Port 2375 has neither TLS nor a password (docs.docker.com, Protect the Docker daemon socket)."""
    for address in node.machine.docker_tcp:
        problem = f"Docker listens on {address}:2375 without TLS: any client that reaches it is root"
        yield Seen(
            problem, "Remove tcp:// from /etc/docker/daemon.json and dockerd's unit; sudo systemctl restart docker"
        )


DISK_GIB: float = Image.model_fields["disk_gib"].default  # needed by a build, unless its recipe has another value
MEMORY_GIB = 8.0  # spark-vllm-docker and NVIDIA's playbooks keep 8 to 10 GiB free
SWAP_GIB = 8.0  # the limit of "small" in spark-vllm-docker's advice (swap small or off, with earlyoom), set by sparkops
CACHE_GIB = 8.0  # of MemFree: tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark PR#19 drops caches below it
SKEW_S = 5.0


@rule(WARNING)
def memory(node: NodeFacts) -> Iterator[Seen]:
    """GPU and system share the memory of a Spark: a node without free memory answers no SSH until it is reset
    (NVIDIA/dgx-spark-playbooks#116, NVIDIA/open-gpu-kernel-modules#1358)."""
    available, total = node.host.memory_available_gib, node.host.memory_total_gib
    if available < MEMORY_GIB:
        problem = f"{available:.1f} of {total:.1f} GiB are available: a node without free memory may hang"
        yield Seen(problem, f"Keep {MEMORY_GIB:g} GiB free: sparkops status shows what runs.")


def _unified(node: NodeFacts) -> bool:
    """Return whether the GPU shares the node's memory."""
    return _has_gpu(node) and not node.host.gpu_is_discrete


@rule(WARNING)
def no_earlyoom(node: NodeFacts) -> Iterator[Seen]:
    """The kernel's OOM killer acts too late if the GPU holds the memory: the node hangs first (README of
    eugr/spark-vllm-docker, MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#193)."""
    if _unified(node) and not node.machine.oom_killers:
        problem = "neither earlyoom, systemd-oomd nor nohang runs: no daemon kills a process before memory runs out"
        yield Seen(problem, "sudo apt-get install earlyoom")


@rule(WARNING)
def oom_score(node: NodeFacts) -> Iterator[Seen]:
    """A node whose sshd or dockerd was killed cannot be repaired over SSH."""
    for daemon, score in sorted(node.machine.oom_score.items()):
        if score >= 0:
            unit = {"sshd": "ssh"}.get(daemon, "docker")
            problem = f"when memory runs out, the kernel may kill {daemon} like any program (oom_score_adj {score})"
            yield Seen(problem, f"sudo systemctl edit {unit}: OOMScoreAdjust=-500 under [Service], and restart it")


@rule(WARNING)
def swap(node: NodeFacts) -> Iterator[Seen]:
    """Under memory pressure, a node with a large swap thrashes instead of killing a process: keep swap small or off,
    and run earlyoom (README of eugr/spark-vllm-docker)."""
    swap_gib = node.machine.swap_gib
    if _unified(node) and swap_gib is not None and swap_gib > SWAP_GIB:
        problem = f"swap has {swap_gib:.1f} GiB, expected up to {SWAP_GIB:g}"
        yield Seen(problem, "sudo swapoff --all, and remove its line from /etc/fstab")


@rule(WARNING, fix=repairs.drop_pages)
def page_cache(node: NodeFacts) -> Iterator[Seen]:
    """CUDA counts the page cache as used on GB10, so a loader can abort although memory is available
    (MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#205, NVIDIA/xr-ai#440)."""
    free, available = node.host.memory_free_gib, node.host.memory_available_gib
    idle = not any(container.running for container in node.containers)
    if not _unified(node) or not node.host.gpu_shares_memory or not idle or free is None:
        return
    if free < CACHE_GIB <= available - free:
        problem = f"{free:.1f} GiB are free without the page cache, {available:.1f} GiB with it: CUDA counts the first"
        step = f"sparkops doctor --fix --node {node.name}: drops clean pages of {model_dir(node.config)}, without root"
        yield Seen(problem, step, fixable=True)


@rule()
def no_buildkit(node: NodeFacts) -> Iterator[Seen]:
    """Images of sparkops are built with cache mounts and secrets, which only BuildKit has."""
    if not node.host.buildkit:
        yield Seen("Docker has no BuildKit", "sudo apt-get install docker-buildx-plugin (docker-buildx on Debian)")


@rule(WARNING)
def no_live_restore(node: NodeFacts) -> Iterator[Seen]:
    """dockerd stops every container when it ends with SIGTERM, as in an update of its package: streams are cut, and
    every model loads again (docs.docker.com, Live restore)."""
    if node.machine.live_restore is False:
        problem = "a restart or an update of Docker stops gateway, guard and engines: live-restore is off"
        step = 'Set "live-restore": true in /etc/docker/daemon.json; sudo systemctl reload docker (nothing stops)'
        yield Seen(problem, step)


OLDEST_DOCKER = 24


@rule(WARNING)
def docker_old(node: NodeFacts) -> Iterator[Seen]:
    """sparkops is tested with Docker Engine 26; its builds and copies need BuildKit's streams."""
    if int(node.docker.split(".")[0]) < OLDEST_DOCKER:
        step = f"sudo apt-get install --only-upgrade docker-ce: version {OLDEST_DOCKER} or newer"
        yield Seen(f"Docker Engine is {node.docker}", step)


NO_MEMORY = "RDMA cannot register memory (ibv_reg_mr: ENOMEM)"


def _bad_kernel(node: NodeFacts, begin: str, step: str) -> Iterator[Seen]:
    """Yield a kernel with which RDMA fails, by the prefix of its version."""
    kernel = node.fabric.kernel
    if _has_gpu(node) and node.fabric.devices and kernel.startswith(begin):
        yield Seen(f"with kernel {kernel} {NO_MEMORY}", step)


@rule(WARNING)
def kernel_kho(node: NodeFacts) -> Iterator[Seen]:
    """NCCL cannot register memory, and exits at start (eugr/spark-vllm-docker#392)."""
    if not node.machine.kho_off:
        step = "Add kho=off to GRUB_CMDLINE_LINUX of /etc/default/grub; sudo update-grub; sudo reboot"
        yield from _bad_kernel(node, "7.0.0-1019", step)


@rule(WARNING)
def kernel_rdma(node: NodeFacts) -> Iterator[Seen]:
    """NCCL cannot register memory, and exits at start; 7.0.0-30 works
    (MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259)."""
    step = "Boot 7.0.0-30-generic; sudo apt-mark hold linux-image-generic-hwe-24.04"
    yield from _bad_kernel(node, "7.0.0-31-generic", step)


@rule(WARNING)
def disk(node: NodeFacts) -> Iterator[Seen]:
    """A build that fills the disk fails, and Docker with it."""
    free = node.host.disk_free_gib
    if free is not None and free < DISK_GIB:
        problem = f"{free:.1f} GiB are free for images; a build needs {DISK_GIB:g}"
        yield Seen(problem, "sparkops prune --dry-run; docker system df lists other data")


@rule()
def no_model_dir(node: NodeFacts) -> Iterator[Seen]:
    """Weights are downloaded and read there; an engine on the node cannot start without it."""
    if isinstance(node.weights, ModelDirectory) and not node.weights.exists:
        where = model_dir(node.config)
        yield Seen(f"the model directory {where} does not exist", node.weights.creation(where))


@rule(WARNING)
def weights_unread(node: NodeFacts) -> Iterator[Seen]:
    """A deploy verifies the weights first, and fails the same way."""
    if isinstance(node.weights, NodeError):
        yield Seen(node.weights.problem, node.weights.next_step or f"sparkops models list --node {node.name}")


CACHED = "models--"
"""Prefix of a model's directory in the hub's own cache."""


@rule(WARNING)
def weights_twice(node: NodeFacts) -> Iterator[Seen]:
    """Weights of 60 to 80 GB fill the disk (eugr/spark-vllm-docker#262, spark-arena/sparkrun#291)."""
    # Yield each further copy of a model: in the model directory, and in the hub's own cache of the SSH user. Copies
    # are recognized by the recorded model and commit, in the cache by the model alone. A symbolic link is none: the
    # files that it leads to exist once.
    checkpoints = node.weights.checkpoints.values() if isinstance(node.weights, ModelDirectory) else ()
    root, copies, places = model_dir(node.config), defaultdict[tuple[str, str], list[str]](list), set[str]()
    sizes = {f"{root}/{checkpoint.path}": checkpoint.size / GIB for checkpoint in checkpoints}
    for checkpoint in checkpoints:
        place = checkpoint.place or f"{root}/{checkpoint.path}"
        if place in places:
            continue
        if checkpoint.complete and checkpoint.origin and not checkpoint.origin.steps and checkpoint.commit:
            copies[checkpoint.origin.model, checkpoint.commit].append(f"{root}/{checkpoint.path}")
            places.add(place)
    for (model, _), (first, *others) in copies.items():
        for copy in others:
            yield _duplicate(model, first, copy, sizes[copy])
    kept = {model: directories[0] for (model, _), directories in copies.items()}
    for directory, size in node.machine.hub_cache.items():
        model = PurePath(directory).name.removeprefix(CACHED).replace("--", "/")
        linked = any(PurePath(place).is_relative_to(directory) for place in places)
        if model in kept and not PurePath(directory).is_relative_to(root) and not linked:
            yield _duplicate(model, kept[model], directory, size)


def _duplicate(model: str, first: str, copy: str, size_gib: float) -> Seen:
    problem = f"{model} exists twice: {first} and {copy} ({size_gib:.1f} GiB)"
    return Seen(problem, f"If no recipe's model.path or program names it: rm -r {quote(copy)}")


@rule(WARNING, fix=repairs.synchronize_clock)
def clock(node: NodeFacts) -> Iterator[Seen]:
    """Timestamps of logs and events cannot be compared, and TLS may refuse certificates."""
    if abs(node.skew_s) > SKEW_S:
        way = "ahead of" if node.skew_s > 0 else "behind"
        problem = f"its clock is {abs(node.skew_s):.0f} s {way} this machine's"
        step = "sudo timedatectl set-ntp true; timedatectl shows whether it is synchronized"
        yield Seen(problem, step, fixable=True)


SHOWN_PACKAGES = 3
ANOTHER_DAY = (
    "Set build.agent_packages to this day in the inventory: the next deploy replaces the guards, and with "
    "--apply-gateway the gateway."
)


@rule(WARNING)
def agent_updates(node: NodeFacts) -> Iterator[Seen]:
    """The image of an agent keeps the packages of the day of its build, also those with known holes."""
    for agent, packages in node.packages.items():
        updates = packages.updates if isinstance(packages, AgentPackages) else ()
        if updates:
            first = sorted(updates, key=lambda update: (not update.security, update.name))
            count, security = len(updates), sum(update.security for update in updates)
            words = f"{count} package{'s' * (count > 1)} in {agent}, {security} of them of its security team"
            yield Seen(f"Debian has newer versions of {words}: {_shown(first)}", ANOTHER_DAY)


def _shown(items: Sequence[object]) -> str:
    more = len(items) - SHOWN_PACKAGES
    return ", ".join(map(str, items[:SHOWN_PACKAGES])) + (f", and {more} more" if more > 0 else "")


@rule(WARNING)
def agent_updates_unknown(node: NodeFacts) -> Iterator[Seen]:
    """Whether Debian has security updates for an agent is unknown."""
    for agent, packages in node.packages.items():
        if isinstance(packages, NodeError):
            problem = f"the packages in {agent} could not be compared with Debian's archive: {packages.problem}"
            yield Seen(problem, "Retry where the node reaches Debian's archive.")


AGENTS_DIFFER = Kind(
    "AGENTS_DIFFER", "Agents that were built on different days have other packages, and other faults.", WARNING
)


def agents_differ(nodes: Sequence[NodeFacts]) -> Iterator[Finding]:
    """Yield a finding if the guards of the nodes have different versions of packages."""
    packages = {node.name: node.packages.get(CONTAINER) for node in nodes}
    installed = {name: of.installed for name, of in packages.items() if isinstance(of, AgentPackages)}
    if different := [*differing(installed)]:
        last = [*installed][-1]
        yield AGENTS_DIFFER.at(last, f"packages in {CONTAINER} differ: {_shown(different)}", ANOTHER_DAY)


DRIVERS = Kind("DRIVERS", checks.UNLIKE, WARNING)
KERNELS = Kind("KERNELS", checks.UNLIKE, WARNING)
FIRMWARE = Kind("FIRMWARE", "The vendor does not test links between different firmware versions.", WARNING)
HUB_LOGIN = Kind("HUB_LOGIN", "Without a valid token the hub refuses gated models, and may answer 416 for public ones.")

AREAS: Mapping[str, Sequence[Kind]] = {
    "inventory": (GATEWAY_NODE, NODE_NAME),
    "access": (UNREACHABLE,),
    "services": (NEEDS_OPERATOR, *WATCHED, GATEWAY_DOWN, GATEWAY_CLOSED, STATUS_FAILED),
    "guards": (GUARD_DOWN, GUARD_SILENT, GUARD_NOT_REACHED, CORDONED, CORDON_UNREAD),
    "updates": (agent_updates, agent_updates_unknown, AGENTS_DIFFER),
    "GPU": (gpu_silent, no_driver, no_toolkit, no_cdi_spec, toolkit_old, clocks_low, driver_590),
    "open ports": (docker_tcp, firewall.ENGINE_OPEN, firewall.FILTER_MISSING, firewall.FILTER_UNKNOWN),
    "memory": (memory, no_earlyoom, oom_score, swap, page_cache),
    "Docker": (no_buildkit, no_live_restore, docker_old),
    "network": (
        *(links.LINK_DOWN, checks.NO_RDMA, checks.NO_UVERBS, links.NO_GID, checks.NO_ANSWER, links.SAME_ADDRESS),
        *(links.SUBNET, links.FABRIC_NAMED, environment.ENVIRONMENT, links.MTU, checks.MTU_PATH, kernel_kho),
        *(
            kernel_rdma,
            links.SAME_SUBNET,
            links.LINK_LOCAL,
            links.NO_PEER,
            links.CROSSED,
            links.HALF_PORT,
            checks.SLOW_LINK,
            FIRMWARE,
        ),
        checks.NO_PING,
    ),
    "disk": (no_model_dir, disk, weights_unread, weights_twice),
    "versions": (DRIVERS, KERNELS),
    "clock": (clock,),
    "hub": (HUB_LOGIN,),
}
"""Every kind by area; areas and kinds with the most urgent first."""
KINDS = {kind.code: kind for kinds in AREAS.values() for kind in kinds}
URGENCY = {code: number for number, code in enumerate(KINDS)}
NODE_RULES = tuple(kind for kind in KINDS.values() if isinstance(kind, NodeRule))

UPDATE = "sudo apt-get update; sudo apt-get dist-upgrade; sudo reboot, on the older nodes"
UPDATE_FIRMWARE = "sudo fwupdmgr refresh; sudo fwupdmgr update, on all nodes"
SAME = (
    Same(DRIVERS, "the NVIDIA driver", UPDATE),
    Same(KERNELS, "the kernel", UPDATE),
    Same(FIRMWARE, "the firmware of the RDMA devices", UPDATE_FIRMWARE),
)


def urgency(finding: Finding) -> tuple[bool, int]:
    """Return what sorts problems first, then the most urgent kind; that of a newer guard last."""
    return finding.severity is WARNING, URGENCY.get(finding.code, len(URGENCY))


def skew(before_s: float, reported_s: float, after_s: float) -> float:
    """Return the seconds that a clock is ahead, read between two local times; 0 if it is between them."""
    return reported_s - min(max(reported_s, before_s), after_s)


def examine(node: NodeFacts) -> Iterator[Finding]:
    """Yield what the facts of one node show."""
    for rule in NODE_RULES:
        yield from rule.findings(node)
    if node.gateway:
        yield from firewall.engine_findings(node.name, node.containers, node.machine.open_ports, node.filtered)
    yield from firewall.rank_findings(node.name, node.containers, node.filtered)


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
        UNREACHABLE.at(name, without_node(error), error.next_step)
        for name, error in results.items()
        if isinstance(error, SparkopsError)
    ]
    of_nodes = [finding for node in nodes for finding in examine(node)]
    alike = [*_alike(nodes), *agents_differ(nodes)]
    unique = dict.fromkeys([*unreachable, *of_nodes, *alike, *topology.pair_findings(joined), *live])
    findings = sorted(unique, key=urgency)
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


Reports = Mapping[str, NodeReport | SparkopsError]


def reached(nodes: Sequence[NodeFacts], reports: Reports, drift: Sequence[Drift]) -> Iterator[Finding]:
    """Yield the agents that run and do not answer. `reports` and `drift` are those of status."""
    for node in nodes:
        yield from _of_node(node, reports.get(node.name))
    for row in drift:
        if row.code == GUARD_NOT_REACHED.code:
            step = f"docker logs --tail 50 {CONTAINER}, on both nodes"
            yield GUARD_NOT_REACHED.at(row.node, row.detail, step)


def _of_node(node: NodeFacts, report: NodeReport | SparkopsError | None) -> Iterator[Finding]:
    guard_runs, gateway_runs = (not any(rule.find(node)) for rule in (GUARD_DOWN, GATEWAY_DOWN))
    if isinstance(report, SparkopsError) and guard_runs:
        yield _unread(STATUS_FAILED, node.name, report)
    if not isinstance(report, NodeReport):
        return
    if report.guard_error and guard_runs:
        yield _unread(GUARD_SILENT, node.name, report.guard_error)
    if report.cordon_error:
        yield _unread(CORDON_UNREAD, node.name, report.cordon_error)
    if report.gateway and report.gateway.problem and gateway_runs:
        problem = f"{GATEWAY} does not answer: {report.gateway.problem}"
        yield GATEWAY_DOWN.at(node.name, problem, f"docker logs --tail 50 {GATEWAY}")


def _unread(kind: Kind, node: str, error: SparkopsError) -> Finding:
    return kind.at(node, without_node(error), error.next_step or "sparkops status")


def unresolved(drift: Sequence[Drift]) -> Iterator[Finding]:
    """Yield what an operator must decide, with the next step that status shows: services, and a wrong inventory."""
    kinds = {kind.code: kind for kind in (GATEWAY_NODE, NODE_NAME, NEEDS_OPERATOR)}
    for row in drift:
        if kind := kinds.get(row.code):
            yield kind.at(row.node, row.detail, row.next_step)


def watched(found: Sequence[EngineFinding]) -> Iterator[Finding]:
    """Yield the findings of the guards' watch, as status shows them; those of a newer guard too."""
    for finding in found:
        kind = KINDS.get(finding.code, Kind(finding.code, "", WARNING))
        yield kind.at(finding.node, f"{finding.container}: {finding.detail}", finding.next_step)


def cordoned(nodes: Sequence[NodeRow]) -> Iterator[Finding]:
    """Yield the nodes on which nothing new starts, and those to which services have not returned."""
    for node in nodes:
        taken = f"{', '.join(node.displaced)} not returned" if node.displaced else ""
        if problem := "; ".join(filter(None, (node.cordon and f"cordoned: {node.cordon}", taken))):
            yield CORDONED.at(node.name, problem, f"sparkops node return {node.name}")


def closed(node: str, address: str, why: str) -> Finding:
    """Return the finding for an address of the gateway that refuses connections from this machine."""
    problem = f"no connection from this machine to the gateway at {address}: {why}"
    step = "curl -v the address from a client; correct gateway.address of the inventory, or open the port"
    return GATEWAY_CLOSED.at(node, problem, step)
