"""What --fix runs: nothing but listed commands, as programs of this machine where they are harmless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkops.command import Command
from sparkops.node.local import LocalNode
from sparkops.node.network.finding import Finding
from sparkops.operator.status.doctor.repairs import require_haproxy
from sparkops.operator.status.doctor.run import fixes
from sparkops.swap.journal import SCHEMA
from tests.examples import node

pytestmark = pytest.mark.local


def finding(code: str, *, fixable: bool = True) -> Finding:
    return Finding(code=code, node="a", problem="p", next_step="s", fixable=fixable)


@pytest.mark.parametrize(
    ("code", "words", "last"),
    [
        ("GUARD_DOWN", "docker start sparkops-guard", ("docker", "start", "sparkops-guard")),
        ("GATEWAY_DOWN", "docker start sparkops-gateway", ("docker", "start", "sparkops-gateway")),
        ("CLOCK", "sudo timedatectl set-ntp true", ("timedatectl", "set-ntp", "true")),
        (
            "NO_CDI_SPEC",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            ("nvidia-ctk", "cdi", "generate", "--output=/etc/cdi/nvidia.yaml"),
        ),
    ],
)
def test_a_fix_is_one_command_that_changes_the_node(code: str, words: str, last: tuple[str, ...]) -> None:
    [fix] = fixes([finding(code), finding("SWAP", fixable=False)], {"a": node()})

    assert (fix.repair.words, fix.repair.command.argv[-len(last) :]) == (words, last)
    assert fix.repair.command.changes


def test_a_gateway_whose_haproxy_does_not_answer_yet_is_not_ready() -> None:
    shown: dict[str, Any] = {"haproxy": None, "ports": {}, "files": {}, "loaded": False, "problem": "no worker answers"}
    shown |= {"format": SCHEMA, "keys": [], "certificate": ""}
    with pytest.raises(ValueError, match=r"^no worker answers$"):
        require_haproxy(json.dumps(shown))

    require_haproxy(json.dumps({**shown, "problem": ""}))


def test_the_page_cache_of_a_real_directory_is_dropped_without_root(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"x" * 2**20)

    [fix] = fixes([finding("PAGE_CACHE")], {"a": node(model_dir=str(tmp_path))})

    out = LocalNode("a").run(fix.repair.command).stdout
    assert out == f"page cache dropped: 1 files, 0.0 GiB in {tmp_path}\n"


def test_root_runs_the_command_itself_and_others_through_sudo(tmp_path: Path) -> None:
    """`id` and `sudo` are programs in a directory before those of the system; timedatectl prints its arguments."""
    for name, body in {"timedatectl": 'echo "$0 $*"', "sudo": 'echo "sudo $*"', "id": "echo 1000"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    [fix] = fixes([finding("CLOCK")], {"a": node()})
    shell, flag, script, *words = fix.repair.command.argv
    search = f'PATH="{tmp_path}:$PATH"; '

    def run() -> str:
        return LocalNode("a").run(Command((shell, flag, search + script, *words))).stdout.strip()

    assert run() == "sudo -n timedatectl set-ntp true"
    (tmp_path / "id").write_text("#!/bin/sh\necho 0\n")
    assert run() == f"{tmp_path}/timedatectl set-ntp true"
