"""The apt-get of the prepared base images: Debian's own, unless it would have nothing to do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.fleet.images import LAZY_APT

pytestmark = pytest.mark.local

DEBIAN = "/usr/bin/apt-get"
INSTALLED = ("haproxy", "python3")
QUERY = f"""#!/bin/sh
for package; do :; done
case $package in {"|".join(INSTALLED)}) printf installed ;; removed) printf config-files ;; *) exit 1 ;; esac
"""


def called(tmp_path: Path, *argv: str, fails: str = "nothing") -> tuple[int, list[str]]:
    """The exit code, and how Debian's apt-get was called; it fails for the subcommand `fails`."""
    log, apt, query, lazy = (tmp_path / name for name in ("log", "debian", "dpkg-query", "lazy"))
    log.touch()
    apt.write_text(f'#!/bin/sh\necho "$@" >>{log}\ncase "$*" in *{fails}*) exit 100 ;; esac\n')
    query.write_text(QUERY)
    lazy.write_text(LAZY_APT.read_text().replace(DEBIAN, str(apt)))
    for program in (apt, query, lazy):
        program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run([lazy, *argv], env=env, check=False).returncode, log.read_text().splitlines()


@pytest.mark.parametrize(
    "argv", [["update"], ["-qq", "update"], ["install", "-y", "--no-install-recommends", *INSTALLED]]
)
def test_what_has_nothing_to_do_reads_no_lists(tmp_path: Path, argv: list[str]) -> None:
    assert called(tmp_path, *argv) == (0, [])


@pytest.mark.parametrize("package", ["less", "removed", "python3=3.13", "python3/trixie"])
def test_a_package_that_is_missing_is_installed_from_new_lists(tmp_path: Path, package: str) -> None:
    argv = ["-qq", "install", "-y", "haproxy", package]

    assert called(tmp_path, *argv) == (0, ["-qq update", " ".join(argv)])


def test_lists_that_cannot_be_fetched_fail_the_installation(tmp_path: Path) -> None:
    assert called(tmp_path, "install", "less", fails="update") == (100, ["-qq update"])


@pytest.mark.parametrize("argv", [["download", "qemu-user"], ["--version"], ["install", "-o", "X=y", "haproxy"]])
def test_everything_else_is_debian_s(tmp_path: Path, argv: list[str]) -> None:
    code, calls = called(tmp_path, *argv)

    assert (code, calls[-1]) == (0, " ".join(argv))
