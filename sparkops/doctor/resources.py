"""Findings about the resources of a node: disk, weights on it, memory, swap, page cache, clocks. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePath

from sparkops.command import quote
from sparkops.config.image import Image
from sparkops.docker.commands import model_dir
from sparkops.doctor.node_facts import NodeFacts, warning
from sparkops.errors import NodeError
from sparkops.network.finding import Finding
from sparkops.nodes.host import GIB
from sparkops.weights.checkpoint import ModelDirectory

DISK_GIB: float = Image.model_fields["disk_gib"].default  # needed by a build, unless its recipe has another value
MEMORY_GIB = 8.0  # spark-vllm-docker and NVIDIA's playbooks keep 8 to 10 GiB free
SWAP_GIB = 8.0  # the limit of "small" in spark-vllm-docker's advice (swap small or off, with earlyoom), set by sparkops
CACHE_GIB = 8.0  # of MemFree: tonyd2wild/GLM-5.3-Flash-NVFP4-DFlash2-2x-DGX-Spark PR#19 drops caches below it
BUSY_PERCENT, STUCK_SHARE = 80, 1 / 3  # eugr/spark-vllm-docker#334: 702 MHz under load, 2398 MHz after a power cycle
SKEW_S = 5.0
CACHED = "models--"
"""Prefix of a model's directory in the hub's own cache."""


def findings(node: NodeFacts) -> Iterator[Finding]:
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
    if samples and all(
        sample.busy_percent >= BUSY_PERCENT and sample.sm_mhz < STUCK_SHARE * sample.max_mhz for sample in samples
    ):
        last = samples[-1]
        problem = f"the GPU runs at {last.sm_mhz} of {last.max_mhz} MHz while {last.busy_percent} % busy"
        step = "sudo poweroff, unplug the power adapter for a few minutes, start again: a reboot does not help"
        yield warning("CLOCKS_LOW", node.name, problem, step)


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
