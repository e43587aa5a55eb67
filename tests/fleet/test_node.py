"""The options of a node's container, and what a failed command of Docker is reported with."""

from __future__ import annotations

import pytest

from tests.fleet.node import capabilities
from tests.fleet.shell import last_line

EARLIER = ("--cap-add=ALL", "--cap-drop=SYS_RESOURCE")
REASON = (
    "docker: Error response from daemon: invalid CapDrop: capability not supported by your kernel or not available in "
    'the current environment: "CAP_SYS_RESOURCE".'
)


@pytest.mark.parametrize(
    ("version", "options"),
    [
        ("20.10.24+dfsg1", EARLIER),
        ("22.06.0-beta.0", EARLIER),
        ("23.0.0", ("--cap-add=ALL",)),
        ("26.1.5+dfsg1", ("--cap-add=ALL",)),
    ],
)
def test_only_an_engine_that_does_not_know_its_own_capabilities_drops_one(
    version: str, options: tuple[str, ...]
) -> None:
    assert capabilities(version) == options


@pytest.mark.parametrize(
    "hint",
    [
        "See 'docker run --help'.\n",  # Docker 20.10 and 26.1
        "\nRun 'docker run --help' for more information\n",  # later clients, as users quote them
        "",
    ],
)
def test_a_failed_command_is_reported_with_its_reason_not_with_the_hint_at_its_usage(hint: str) -> None:
    assert last_line(f"{REASON}\n{hint}".encode()) == REASON


@pytest.mark.parametrize("printed", ["", "\n \n", "See 'docker run --help'.\n"])
def test_a_command_that_prints_no_reason_is_reported_so(printed: str) -> None:
    assert last_line(printed.encode()) == "it gave no reason"
