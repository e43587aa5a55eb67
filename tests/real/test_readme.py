"""The quick start of README.md on real nodes in place of Sparks, command by command, with the stand-in as the model."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import Page
from tests.docs.test_commands import commands
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import Cli
from tests.real.service import Service

pytestmark = pytest.mark.fleet

KNOB = "env.STAND_IN_RELEASE_NAME=second"
MODEL = {"qwen3.6-35b": "stand-in", "--watch": "", "args.max-num-seqs=16": KNOB}
QUICK = """
name: quick
extends: stand-in
service: stand-in
description: The stand-in, watched for a shorter time after its switch.
swap: {bake_s: 2}
probe: {passes: 1}
verified: In this test.
"""
TRUSTED = "--yes"  # in place of the answers to the questions of init


@pytest.mark.timeout(1800)
def test_the_quick_start_works_as_written(nodes: RealFleet, tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text(f"Host *\n  User ops\n  IdentityFile {nodes.ssh_key}\n")
    cli = Cli(tmp_path / "inventory.yaml", tmp_path, forked=False)
    service = Service(cli, nodes)
    service.sweep()
    recipe = tmp_path / "quick.yaml"
    recipe.write_text(QUICK)
    words = {
        **MODEL,
        "qwen3.6-35b-nvfp4": str(recipe),
        "192.168.1.11": nodes.nodes[0].address,
        "192.168.1.12": nodes.nodes[1].address,
    }
    start, *rest = (typed(line, words) for line in [*commands(Page("README.md"))][:5])

    assert cli(*start, TRUSTED).code == 0
    as_in_other_tests(cli.inventory, nodes)
    for argv in rest:
        ran = cli(*argv)
        assert ran.code == 0, (argv, ran.err)
        if argv[0] == "up":
            assert "curl http://" in ran.out
    assert [argv[0] for argv in rest] == ["up", "status", "deploy", "rollback"]
    service.sweep()


def typed(line: str, words: dict[str, str]) -> list[str]:
    """Return the arguments of a command with other nodes and another model."""
    return [changed for word in shlex.split(line, comments=True)[1:] if (changed := words.get(word, word))]


def as_in_other_tests(inventory: Path, nodes: RealFleet) -> None:
    """Name the nodes and configure the gateway as other tests do, which share them; add where images come from here."""
    known_hosts = inventory.with_name("known_hosts")
    known_hosts.write_text(known_hosts.read_text().replace("spark-", "node-"))
    build = yaml.safe_load(nodes.inventory.read_text())["build"]
    text = inventory.read_text().replace("spark-", "node-").replace(", port: 8000}", "}")
    inventory.write_text(text + yaml.safe_dump({"build": build}))
