"""The record of a demonstration: kept by Docker, and read for its removal."""

from __future__ import annotations

import pytest

from sparkops.command import Command
from sparkops.demo import record
from sparkops.demo.record import DemoRecord
from sparkops.demo.scene import NODE
from sparkops.errors import SparkopsError
from sparkops.prune.plan import Removal

RECORD = DemoRecord(
    "/home/ops/.local/state/sparkops/demo",
    1000,
    ((NODE, "image", "sparkops/guard:0"), (NODE, "firewall", "table inet sparkops")),
    ("/home/ops/.local/state/sparkops/demo", "/home/ops/.local/state/sparkops"),
)


def test_what_docker_keeps_is_what_is_read() -> None:
    label = RECORD.keep().argv[3]

    assert label.startswith("--label=sparkops.demo=")
    assert record.parse(f"{label.removeprefix('--label=sparkops.demo=')}\n") == RECORD
    assert record.parse("\n") is None


@pytest.mark.parametrize("label", ["true", "{}", '{"directory": "/d", "user": 1, "spared": [["demo"]], "created": []}'])
def test_another_label_is_an_error_with_a_next_step(label: str) -> None:
    with pytest.raises(SparkopsError, match=r"volume sparkops-demo: label sparkops\.demo") as raised:
        record.parse(label)

    assert raised.value.next_step.endswith("docker volume rm --force sparkops-demo")


@pytest.mark.parametrize(
    ("kind", "name", "kept"),
    [
        ("image", "sparkops/demo:1, sparkops-candidate/demo:1", False),
        ("image", "sparkops/guard:1", False),
        ("image", "sparkops/122b:1", True),
        ("image", "sparkops/guard:0", True),
        ("image", "sha256:1", False),
        ("volume", "sparkops-trusted-gateway-1-2", False),
        ("volume", "sparkops-trusted-demo-x-1-2", True),
        ("volume", "sparkops-cache-demo-1", False),
        ("volume", "sparkops-cache-122b-1", True),
        ("volume", "sparkops-state", False),
        ("firewall", "table inet sparkops", False),
        ("container", "sparkops-guard", False),
    ],
)
def test_images_and_volumes_of_others_stay(kind: str, name: str, kept: bool) -> None:
    assert RECORD.stays(Removal(NODE, kind, name, 0, Command(("true",)))) is kept
