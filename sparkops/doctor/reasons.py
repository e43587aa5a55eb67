"""The reason of each finding of doctor, with its source unless it is a rule of sparkops, and its area. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sparkops.network.finding import Finding

NCCL_FAILS = "Ranks use this link: NCCL fails on it, or waits for its timeout of 600 s."
OPEN = "Any client that reaches the port can use the engine without a key, or disturb the ranks."
UNLIKE = (
    "Two Sparks with different drivers and kernels were 2.4 times slower than with the same ones (reported by al-engr)."
)
REASONS: Mapping[str, str] = {
    "UNREACHABLE": "sparkops needs SSH and Docker to deploy to a node, read it or repair it.",
    "DOCKER_OLD": "sparkops is tested with Docker Engine 26; its builds and copies need BuildKit's streams.",
    "NO_BUILDKIT": "Images of sparkops are built with cache mounts and secrets, which only BuildKit has.",
    "DOCKER_TCP": "Port 2375 has neither TLS nor a password (docs.docker.com, Protect the Docker daemon socket).",
    "NO_LIVE_RESTORE": "dockerd stops every container when it ends with SIGTERM, as in an update of its package: "
    "streams are cut, and every model loads again (docs.docker.com, Live restore).",
    "GPU_SILENT": "An engine cannot start. GB10 needs the open kernel modules: with the proprietary ones of 580.173.02 "
    "nvidia-smi finds no device (Start9Labs/start-technologies#3693).",
    "NO_DRIVER": "An engine with CUDA cannot start without the driver.",
    "NO_TOOLKIT": "Docker's --gpus calls the programs of nvidia-container-toolkit.",
    "NO_CDI_SPEC": "Docker reads the devices of a GPU from that file.",
    "DRIVER_590": "CUDA graph capture deadlocks with 590.x on GB10 (README of eugr/spark-vllm-docker).",
    "KERNEL_KHO": "NCCL cannot register memory, and exits at start (eugr/spark-vllm-docker#392).",
    "KERNEL_RDMA": "NCCL cannot register memory, and exits at start; 7.0.0-30 works "
    "(MiaAI-Lab/DeepSeek-v4-Flash-DSpark-2x-DGX-Spark#259).",
    "DISK": "A build that fills the disk fails, and Docker with it.",
    "MEMORY": "GPU and system share the memory of a Spark: a node without free memory answers no SSH until it is reset "
    "(NVIDIA/dgx-spark-playbooks#116, NVIDIA/open-gpu-kernel-modules#1358).",
    "NO_EARLYOOM": "The kernel's OOM killer acts too late if the GPU holds the memory: the node hangs first "
    "(README of eugr/spark-vllm-docker, MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#193).",
    "SWAP": "Under memory pressure, a node with a large swap thrashes instead of killing a process: keep swap small or "
    "off, and run earlyoom (README of eugr/spark-vllm-docker).",
    "PAGE_CACHE": "CUDA counts the page cache as used on GB10, so a loader can abort although memory is available "
    "(MiaAI-Lab/GLM-5.3-Flash-EXL3-2x-DGX-Sparks#205, NVIDIA/xr-ai#440).",
    "CLOCKS_LOW": "The GPU stays in a low-power state, at half the speed, until its power is cut "
    "(eugr/spark-vllm-docker#334, Blackwellboy/model-serving-minefield#55).",
    "CLOCK": "Timestamps of logs and events cannot be compared, and TLS may refuse certificates.",
    "OOM_SCORE": "A node whose sshd or dockerd was killed cannot be repaired over SSH.",
    "WEIGHTS_TWICE": "Weights of 60 to 80 GB fill the disk (eugr/spark-vllm-docker#262, spark-arena/sparkrun#291).",
    "WEIGHTS_UNREAD": "A deploy verifies the weights first, and fails the same way.",
    "HUB_LOGIN": "Without a valid token the hub refuses gated models, and may answer 416 for public ones.",
    "GATEWAY_DOWN": "Clients get no answer from any service behind the gateway.",
    "GATEWAY_CLOSED": "Clients call this address; a firewall, a wrong gateway.address or a stopped gateway closes it.",
    "GUARD_DOWN": "On this node no engine starts after a boot, no memory floor is enforced and no swap continues.",
    "GUARD_SILENT": "sparkops cannot read the services of this guard, and deploys that need it fail.",
    "CORDON_UNREAD": "Whether new releases may start on this node is unknown, so none does.",
    "STATUS_FAILED": "`sparkops status` cannot show the node either.",
    "GUARD_NOT_REACHED": "Swaps wait for every guard that takes part.",
    "NEEDS_PERSON": "The fleet does not continue by itself: each way on may cost requests or a release.",
    "STALLED": "Clients wait and get nothing, while /health returns 200 (vllm-project/vllm#2731, #39863).",
    "UNANSWERED": "The next client gets no answer either, while /health returns 200 (vllm-project/vllm#17972).",
    "GARBAGE": "Clients get text without meaning, with status 200.",
    "RESTARTS": "The engine loses its requests at each restart, and its guard starts it no more.",
    "SLOW": "The same release was faster on the same node: a GPU at low clocks, a driver, or another program.",
    "RANK_DOWN": "A replica answers only while all of its ranks run.",
    "CORDONED": "No release starts on the node until it returns.",
    "DRIVERS": UNLIKE,
    "KERNELS": UNLIKE,
    "FIRMWARE": "The vendor does not test links between different firmware versions.",
    "ENGINE_OPEN": OPEN,
    "FILTER_UNKNOWN": OPEN,
    "FILTER_MISSING": OPEN,
    "SAME_ADDRESS": NCCL_FAILS,
    "LINK_DOWN": NCCL_FAILS,
    "NO_GID": NCCL_FAILS,
    "SAME_SUBNET": "The kernel answers for both ports through either of them (docs/NETWORKING.md of "
    "eugr/spark-vllm-docker).",
    "MTU": "TCP negotiates a packet size; RoCE drops larger packets without an error.",
    "MTU_PATH": "TCP negotiates a packet size; RoCE drops larger packets without an error.",
    "SUBNET": NCCL_FAILS,
    "NO_PEER": "A port without a peer carries no traffic.",
    "CROSSED": "NCCL pairs devices by their order (AINode 0.5.11: ibv_modify_qp timed out).",
    "HALF_PORT": "98 instead of 161 Gbit/s "
    "(tonyd2wild/DeepSeek-v4-Flash-Vision-Exp-DSpark-1M-NVFP4-KV-2x-DGX-Spark#35).",
    "FABRIC_NAMED": "The inventory names a port that the node does not have.",
    "ENVIRONMENT": "NCCL and Gloo select the interface by name, and fail without it.",
    "NO_UVERBS": "A container without these files has no RDMA.",
    "NO_PING": "The link was not tested.",
    "NO_ANSWER": NCCL_FAILS,
    "NO_RDMA": NCCL_FAILS,
    "SLOW_LINK": "Tensor parallelism waits for this link at every layer.",
}
AREAS: Mapping[str, tuple[str, ...]] = {
    "access": ("UNREACHABLE",),
    "services": (
        *("NEEDS_PERSON", "STALLED", "UNANSWERED", "RANK_DOWN", "GARBAGE", "RESTARTS", "SLOW"),
        *("GATEWAY_DOWN", "GATEWAY_CLOSED", "STATUS_FAILED"),
    ),
    "guards": ("GUARD_DOWN", "GUARD_SILENT", "GUARD_NOT_REACHED", "CORDONED", "CORDON_UNREAD"),
    "GPU": ("GPU_SILENT", "NO_DRIVER", "NO_TOOLKIT", "NO_CDI_SPEC", "CLOCKS_LOW", "DRIVER_590"),
    "open ports": ("DOCKER_TCP", "ENGINE_OPEN", "FILTER_MISSING", "FILTER_UNKNOWN"),
    "memory": ("MEMORY", "NO_EARLYOOM", "OOM_SCORE", "SWAP", "PAGE_CACHE"),
    "Docker": ("NO_BUILDKIT", "NO_LIVE_RESTORE", "DOCKER_OLD"),
    "network": (
        *("LINK_DOWN", "NO_RDMA", "NO_UVERBS", "NO_GID", "NO_ANSWER", "SAME_ADDRESS", "SUBNET", "FABRIC_NAMED"),
        *("ENVIRONMENT", "MTU", "MTU_PATH", "KERNEL_KHO", "KERNEL_RDMA", "SAME_SUBNET", "NO_PEER", "CROSSED"),
        *("HALF_PORT", "SLOW_LINK", "FIRMWARE", "NO_PING"),
    ),
    "disk": ("DISK", "WEIGHTS_UNREAD", "WEIGHTS_TWICE"),
    "versions": ("DRIVERS", "KERNELS"),
    "clock": ("CLOCK",),
    "hub": ("HUB_LOGIN",),
}
"""Codes by area, the most urgent area and code first."""
URGENCY = {code: number for number, code in enumerate(code for codes in AREAS.values() for code in codes)}


def explained(finding: Finding) -> Finding:
    """Return a finding with its reason; without one for a code of a newer guard."""
    return finding.model_copy(update={"reason": REASONS.get(finding.code, "")})
