"""What GPUs do now, as nvidia-smi prints it with --format=csv,noheader,nounits."""

from __future__ import annotations

import pytest

from sparkops.nodes.host import GpuState, parse_gpu_states

pytestmark = pytest.mark.unit


def test_the_figures_of_two_gpus_are_read() -> None:
    """Those of an H100 with an engine, from nvidia-smi's table (driver 580.159.04), and of a busy one."""
    assert parse_gpu_states("0, 119.23, 37, 1980\n97, 612.50, 61, 1755\n") == (
        GpuState(0.0, 119.23, 37.0, 1980.0),
        GpuState(0.97, 612.5, 61.0, 1755.0),
    )


def test_what_the_driver_does_not_have_is_unknown_and_not_0() -> None:
    assert parse_gpu_states("12, [N/A], 54, [N/A]\n") == (GpuState(0.12, None, 54.0, None),)
    assert parse_gpu_states("[N/A], [Not Supported], 54, 702\n") == (GpuState(None, None, 54.0, 702.0),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed, because, of, it\n",
        "1, 2\n",
        "[N/A], [N/A], [N/A], [N/A]\n",
    ],
)
def test_a_message_is_no_gpu(text: str) -> None:
    assert parse_gpu_states(text) == ()
