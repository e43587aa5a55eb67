"""Debian's packages in guard and gateway: what apt and dpkg print, and what differs between nodes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sparkops.errors import NodeError
from sparkops.operator.deploy.agents import packages
from sparkops.operator.deploy.agents.packages import AgentPackages, PackageUpdate
from sparkops.operator.status.doctor.run import packages_of
from tests.node.recording import RecordingNode
from tests.operator.status.doctor.test_run import member

INSTALLED = "haproxy 2.6.12-1+deb12u3\nlibc6 2.36-9+deb12u10\n"
# apt 2.6.1, `apt-get -qq --simulate dist-upgrade`, Debian 12 on 28 November 2026; haproxy's line is made up.
SIMULATED = """\
Inst base-files [12.4+deb12u11] (12.4+deb12u15 Debian:12.15/oldstable [amd64])
Conf base-files (12.4+deb12u15 Debian:12.15/oldstable [amd64])
Inst libgcrypt20-dev [1.10.1-3] (1.10.1-3+deb12u1 Debian:12.15/oldstable, Debian-Security:12/oldstable-security [amd64]) []
Inst haproxy [2.6.12-1+deb12u3] (2.6.12-1+deb12u4 Debian-Security:12/oldstable-security [arm64])
Inst linux-image-7 (7.1 Debian:12.15/oldstable [amd64])
"""  # noqa: E501
UPDATES = (
    PackageUpdate("base-files", "12.4+deb12u11", "12.4+deb12u15", security=False),
    PackageUpdate("libgcrypt20-dev", "1.10.1-3", "1.10.1-3+deb12u1", security=True),
    PackageUpdate("haproxy", "2.6.12-1+deb12u3", "2.6.12-1+deb12u4", security=True),
)
EXEC, RUN = "docker exec sparkops-gateway dpkg-query --show", "docker run --rm --network=host --user=0:0 --cap-drop=ALL"


def test_the_lines_of_apt_and_dpkg_are_read() -> None:
    assert packages.parse_updates(SIMULATED) == UPDATES
    assert packages.parse_installed(INSTALLED) == {"haproxy": "2.6.12-1+deb12u3", "libc6": "2.36-9+deb12u10"}


@pytest.mark.parametrize(
    "text", ["", "Inst", "Inst a [1] (2", "Inst a [1] ()", f"Inst a [{'1' * 101}] (2 Debian [arm64])"]
)
def test_other_lines_are_passed(text: str) -> None:
    assert packages.parse_updates(text) == ()
    assert packages.parse_installed(f"{text}\n\x1b[31m") == {}


def test_an_agent_is_compared_with_the_archive_in_a_container_of_its_image() -> None:
    node = RecordingNode("n1", {EXEC: INSTALLED, RUN: SIMULATED})

    found = packages_of(member(node), "sparkops-gateway", "sha256:a")

    assert found == AgentPackages(packages.parse_installed(INSTALLED), UPDATES)
    assert node.ran[1].argv[-4:] == ("--entrypoint=sh", "sha256:a", "-c", packages.SCRIPT)


@pytest.mark.parametrize("failing", [EXEC, RUN])
def test_an_archive_that_does_not_answer_is_no_sign_that_there_are_no_updates(failing: str) -> None:
    node = RecordingNode("n1", {EXEC: INSTALLED, RUN: SIMULATED}, {failing: 100})

    assert isinstance(packages_of(member(node), "sparkops-gateway", "sha256:a"), NodeError)


@pytest.mark.local
@pytest.mark.parametrize(("code", "printed"), [(0, "simulated\n"), (100, "")])
def test_without_the_lists_nothing_is_compared(tmp_path: Path, code: int, printed: str) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(
        f'#!/bin/sh\ncase "$*" in *--error-on=any*update) exit {code};; *dist-upgrade) echo simulated;; esac\n'
    )
    apt.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    ran = subprocess.run(("sh", "-c", packages.SCRIPT), env=env, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout) == (code, printed)


def test_versions_that_differ_between_nodes_are_named() -> None:
    one, other = {"haproxy": "1", "libc6": "2", "tini": "3"}, {"haproxy": "1", "libc6": "4"}

    assert [*packages.differing({"n1": one, "n2": other})] == ["libc6 2 on n1, 4 on n2", "tini 3 on n1, none on n2"]
    assert [*packages.differing({"n1": one, "n2": one})] == []
    assert [*packages.differing({})] == []
