"""The record of a demonstration: kept by Docker, and read for its removal."""

from __future__ import annotations

import pytest

from sparkops.errors import SparkopsError
from sparkops.operator.demo import record
from sparkops.operator.demo.record import DemoRecord

RECORD = DemoRecord(
    "/home/ops/.local/state/sparkops/demo",
    1000,
    ("sparkops/guard:0", "sparkops-state"),
    ("/home/ops/.local/state/sparkops/demo", "/home/ops/.local/state/sparkops"),
)


def test_what_docker_keeps_is_what_is_read() -> None:
    label = RECORD.keep().argv[3]

    assert label.startswith("--label=sparkops.demo=")
    assert record.parse(f"{label.removeprefix('--label=sparkops.demo=')}\n") == RECORD
    assert record.parse("\n") is None


@pytest.mark.parametrize("label", ["true", "{}", '{"directory": "/d", "user": 1, "spared": 1, "created": []}'])
def test_another_label_is_an_error_with_a_next_step(label: str) -> None:
    with pytest.raises(SparkopsError, match=r"volume sparkops-demo: label sparkops\.demo") as raised:
        record.parse(label)

    assert raised.value.next_step.endswith("docker volume rm --force sparkops-demo")


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("sparkops/stand-in:1", False),
        ("sparkops-candidate/vllm:1", False),
        ("sparkops/guard:1", False),
        ("sparkops/sglang:1", True),
        ("sparkops/guard:0", True),
        ("sha256:1", False),
        ("sparkops-trusted-gateway-1-2", False),
        ("sparkops-trusted-llama-cpp-1-2", True),
        ("sparkops-cache-demo-1", False),
        ("sparkops-cache-122b-1", True),
        ("sparkops-gateway", False),
        ("sparkops-state", True),
    ],
)
def test_images_and_volumes_of_others_stay(name: str, kept: bool) -> None:
    assert RECORD.stays(name) is kept
