"""Versions of driver and kernel that are known to fail on a Spark, with their sources. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparkops.doctor.examined import Examined, warning
from sparkops.network.finding import Finding

NO_MEMORY = "RDMA gets no memory (ibv_reg_mr: ENOMEM)"


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


def findings(node: Examined) -> Iterator[Finding]:
    """Yield the known-bad versions of a node."""
    driver, kernel = node.fabric.driver, node.fabric.kernel
    if driver.startswith(DRIVER):
        problem = f"driver {driver}: 590.x hangs on a GB10 while CUDA graphs are captured; 580.x does not"
        step = "sudo apt-get install nvidia-driver-580-open; sudo reboot"
        yield warning("DRIVER_590", node.name, problem, step)
    for bad in KERNELS if node.fabric.devices else ():
        if kernel.startswith(bad.begin) and not (bad.kho and node.machine.kho_off):
            yield warning(bad.code, node.name, f"with kernel {kernel} {NO_MEMORY}", bad.step)
