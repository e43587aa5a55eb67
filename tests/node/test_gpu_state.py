"""What GPUs do now, as nvidia-smi prints it with --format=csv,noheader,nounits."""

from __future__ import annotations

import pytest

from sparkops.node.host import Gpu, parse_gpu_states

pytestmark = pytest.mark.unit


def test_the_figures_of_two_gpus_are_read() -> None:
    """An H100 (driver 580.159.04) without a program, and with one that has 4 GiB of it; both as it printed them."""
    assert parse_gpu_states("0, 70.69, 30, 345, 0, 81559\n3, 78.53, 31, 1980, 4715, 81559\n") == (
        Gpu(0.0, 70.69, 30.0, 345.0, 0.0, 81559 / 1024),
        Gpu(0.03, 78.53, 31.0, 1980.0, 4715 / 1024, 81559 / 1024),
    )


def test_what_the_driver_does_not_have_is_unknown_and_not_0() -> None:
    shared = "[N/A], [N/A]"
    assert parse_gpu_states(f"12, [N/A], 54, [N/A], {shared}\n") == (Gpu(0.12, None, 54.0, None),)
    assert parse_gpu_states(f"[N/A], [Not Supported], 54, 702, {shared}\n") == (Gpu(None, None, 54.0, 702.0),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed, because, of, it\n",
        "1, 2\n",
        "0, 119.23, 37, 1980\n",
        "[N/A], [N/A], [N/A], [N/A], [N/A], [N/A]\n",
    ],
)
def test_a_message_is_no_gpu(text: str) -> None:
    assert parse_gpu_states(text) == ()
