"""What nvidia-smi and the dynamic linker print, and what an inventory says of it."""

from __future__ import annotations

import pytest

from sparkops.config.node import Gpu as Way
from tests.lab.gpu import machine
from tests.lab.gpu.machine import Gpu

LDCONFIG = """\
1432 libs found in cache `/etc/ld.so.cache'
	libnvidia-ptxjitcompiler.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1
	libnvidia-ml.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libnvidia-ml.so.1
	libnvidia-ml.so.1 (libc6) => /lib/i386-linux-gnu/libnvidia-ml.so.1
	libcudart.so.13 (libc6,x86-64) => /usr/local/cuda/lib64/libcudart.so.13
	libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
"""


def test_each_gpu_has_a_name_memory_in_gib_driver_and_capability() -> None:
    text = "NVIDIA H100 80GB HBM3, 81559, 580.159.04, 9.0\nNVIDIA L4, 23034, 580.159.04, 8.9\n"

    first, second = machine.parse(text)

    assert first == Gpu("NVIDIA H100 80GB HBM3", 81559 / 1024, "580.159.04", "9.0")
    assert second.name == "NVIDIA L4"


@pytest.mark.parametrize("text", ["No devices were found", "NVIDIA GB10, [N/A], 580.95, 12.1"])
def test_what_is_no_gpu_with_memory_of_its_own_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|invalid literal"):
        machine.parse(text)


def test_the_driver_is_found_among_the_libraries_of_the_system() -> None:
    assert [*machine.driver_files(LDCONFIG)] == [
        "/lib/x86_64-linux-gnu/libcuda.so.1",
        "/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
        "/lib/x86_64-linux-gnu/libnvidia-ptxjitcompiler.so.1",
        "/usr/bin/nvidia-smi",
    ]


@pytest.mark.parametrize("way", ["runtime", "cdi"])
def test_a_node_with_the_toolkit_or_a_cdi_spec_names_no_devices(way: Way) -> None:
    assert machine.config(way, [0]).model_dump(exclude_unset=True) == {"transport": "local", "gpu": way}
