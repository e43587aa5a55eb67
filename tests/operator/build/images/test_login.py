"""A login at a registry: what runs on a node, and what is said of one that the registry refuses."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from sparkops.config.inventory import Fleet
from sparkops.errors import NodeError
from sparkops.node.docker_api import Engine
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.operator.build.images.login import command, log_in
from sparkops.operator.fleet.connected import Connected
from tests.examples import node

REGISTRY = """#!/bin/sh
read -r password
echo "$*" > "$0.argv"
[ "$password" = right ] && exit 0
echo "Error response from daemon: login attempt to http://$4/v2/ failed with status: 401 Unauthorized" >&2
exit 1
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker that answers as a registry with one password."""
    file = tmp_path / "docker"
    file.write_text(REGISTRY)
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return file


@pytest.fixture
def connected() -> Connected:
    member = Member("a", node(), LocalNode("a"), cast("Engine", None))
    return Connected(cast("Fleet", None), {"a": member})


def test_the_password_is_neither_an_argument_nor_printed(program: Path, connected: Connected) -> None:
    log_in(connected, "ghcr.io", "ann", "right")

    assert Path(f"{program}.argv").read_text() == "login --username=ann --password-stdin ghcr.io\n"
    assert "right" not in f"{command('ghcr.io', 'ann', 'right')} {command('ghcr.io', 'ann', 'right')!r}"


@pytest.mark.usefixtures("program")
def test_a_refused_login_is_told_in_the_registry_s_words(connected: Connected) -> None:
    with pytest.raises(NodeError, match=r"the login at ghcr\.io failed: .* 401 Unauthorized$") as refused:
        log_in(connected, "ghcr.io", "ann", "wrong")

    assert refused.value.next_step == "Check the registry, the user and the password."
