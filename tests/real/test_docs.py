"""Each console line of README.md and docs/ on real nodes in place of Sparks, as written but for names and addresses.

The stand-in is the model. What the pages show must be printed, but for numbers and names.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import PAGES, Page
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import SPARKOPS, Cli
from tests.real.service import Service

pytestmark = pytest.mark.fleet

BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
READERS = [Page("README.md"), *(page for page in PAGES if page.file.parent.name == "docs")]
RECIPE = """
name: {name}
extends: stand-in
service: stand-in
description: The stand-in, with short waits.
serve: {{env: {{STAND_IN_START_S: "1", STAND_IN_RELEASE_NAME: "{name}"}}}}
swap: {{bake_s: 2, reserve_gib: 1}}
probe: {{passes: 1}}
verified: In this test.
"""
NAMES = {
    r"122b-autoround\b(?!-tp2)|gemma4-31b-it|\bRECIPE\b": "quick",
    r"qwen3\.6-35b-nvfp4": "quick",
    r"\b(chat|qwen3\.6|qwen3\.6-35b|SERVICE)\b(?!-)": "stand-in",
    r"\b(spark-1|n1)\b": "node-1",
    r"\b(spark-2|n2)\b": "node-2",
    r"args\.max-num-seqs=16": "env.STAND_IN_RELEASE_NAME=second",
    r":8000/": ":9100/",
    r"--user nvidia": "--user ops",
}
"""What a command says on a page, and here."""
CATALOGUE = re.compile(r"sparkops (recipes|recipe show) ")
"""Commands about shipped recipes, which need no other names."""
ANSWERED = re.compile(r"sparkops (init|stop|node trust)\b")
"""Commands that ask; `--yes` in place of the answer."""
ENDLESS = re.compile(r"--watch|logs \S+ --follow")
"""Commands that run until Ctrl-C, on a terminal."""
BEFORE = {"docs/monitoring.md": "sparkops deploy quick --set env.STAND_IN_CRASH_AT=40 || true"}
"""What has happened before a page is read."""
NOT_HERE: Mapping[str, Mapping[str, str]] = {
    "README.md": {"pipx install": "tests/packaging installs the wheel"},
    "docs/first-spark.md": {
        "ssh nvidia": "work of an administrator on the Spark",
        "sudo": "work of an administrator on the Spark",
        "exit": "of that session",
        "python3 -m venv": "tests/packaging installs the wheel",
        "pip install": "tests/packaging installs the wheel",
    },
    "docs/memory.md": {
        "sparkops fit": "needs 76 GiB of weights; tests/operator/deploy/memory/table.py makes the output"
    },
    "docs/migrate.md": {
        "sparkops import": "tests/docs/test_migrate.py runs it with the files of the page",
        "sparkops plan mine": "needs a GPU",
    },
    "docs/offline.md": {"docker": "tests/real/test_offline.py does it"},
    "docs/on-my-spark.md": {"sparkops node uninstall spark-2": "tests/real/test_uninstall.py does it"},
    "docs/operations.md": {
        "sparkops node uninstall": "tests/real/test_uninstall.py does it",
        "sparkops gateway move": "tests/real/test_move.py does it",
        "sparkops gateway rebuild": "needs a lost node: tests/real/test_rebuild.py",
        "sparkops deploy RECIPE --node n3": "needs a lost node: tests/real/test_lost_nodes.py",
        "ssh n2 sudo reboot": "a container cannot reboot; tests/real/test_cut_off.py stops and starts one",
    },
    "docs/second-spark.md": {
        "sparkops models copy": "the stand-in has no weights: tests/real/test_copies.py",
        "sparkops plan 122b-autoround-tp2": "needs two GPUs: tests/real/test_pair.py with CPUs",
        "sparkops up 122b-autoround-tp2": "needs two GPUs: tests/real/test_pair.py with CPUs",
    },
    "docs/update-model.md": {
        "sparkops models": "the stand-in has no weights: tests/real/test_models_hub.py",
        "sparkops fit": "the stand-in has no weights",
    },
    "docs/update-vllm.md": {"sparkops recipe lock": "the stand-in has no packages: tests/real/test_lock.py"},
}
"""By page, the commands that this test cannot run, and why."""
NOT_SHOWN = {"docs/memory.md", "docs/migrate.md", "docs/operations.md"}
"""Pages whose output is that of commands that do not run here."""


@dataclass(frozen=True)
class Console:
    """What a page types and shows."""

    commands: tuple[str, ...]
    shown: tuple[str, ...]


def console(page: Page) -> Console:
    commands, shown = list[str](), list[str]()
    for block in BLOCK.findall(page.text):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            (commands if line.startswith("$ ") else shown).append(line.removeprefix("$ "))
    return Console(tuple(commands), tuple(line for line in shown if line.strip()))


def unmarked(page: Page) -> Iterator[str]:
    """Yield the commands that run here, and hold that each mark is of a command."""
    marks = NOT_HERE.get(page.name, {})
    commands = console(page).commands
    for mark in marks:
        assert any(command.startswith(mark) for command in commands), f"{page.name} has no `{mark}`"
    yield from (command for command in commands if not command.startswith(tuple(marks) or ("\0",)))


@dataclass(frozen=True)
class Shell:
    """The reader's shell, in an empty home."""

    home: Path
    nodes: RealFleet

    def prepare(self) -> None:
        hosts = [f"Host {node.name} {node.address}\n  HostName {node.address}\n" for node in self.nodes.nodes]
        common = f"Host *\n  User ops\n  IdentityFile {self.nodes.ssh_key}\n  StrictHostKeyChecking no\n"
        (self.home / ".ssh").mkdir()
        (self.home / ".ssh/config").write_text("".join([*hosts, common]))
        tools = self.home / "bin"
        tools.mkdir()
        (tools / "sparkops").symlink_to(SPARKOPS)
        # OpenSSH takes the home of the user database.
        (tools / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.home}/.ssh/config "$@" </dev/null\n')
        (tools / "ssh").chmod(0o755)
        (self.home / "recipes").mkdir()
        for name in ("quick", "mine", "newer"):
            (self.home / f"recipes/{name}.yaml").write_text(RECIPE.format(name=name))

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.home / 'bin'}:/usr/bin:/bin:/usr/sbin:/sbin"
        env = {"PATH": path, "HOME": str(self.home), "LANG": os.environ.get("LANG", "C.UTF-8")}
        argv = ["bash", "-c", command]
        return subprocess.run(
            argv,
            cwd=self.home,
            env=env,
            text=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=900,
            check=False,
        )


def here(command: str, nodes: RealFleet) -> str:
    """Return a command of a page with the names and addresses of this fleet."""
    typed = command
    if not CATALOGUE.match(command):
        for name, ours in NAMES.items():
            typed = re.sub(name, ours, typed)
    for number, node in enumerate(nodes.nodes, 1):
        typed = typed.replace(f"192.168.1.1{number}", node.address)
    typed = typed.partition("   #")[0].rstrip()
    if ANSWERED.match(command):
        typed += " --yes"
    endless = f"script --quiet --return --command 'timeout --preserve-status --signal INT 20 {typed}' /dev/null"
    return endless if ENDLESS.search(command) else typed


def form(line: str) -> str:
    """Return a line without its numbers, names and spaces."""
    line = re.sub(r"\b(stand-in|quick|chat|qwen3\.6)(-[0-9a-f]+)?\b", "NAME", line)
    line = re.sub(r"(REVERTED +NAME: ).+(; NAME serves)", r"\1REASON\2", line)
    line = re.sub(r"\b(blue|green)\b", "SLOT", line)
    line = re.sub(r"\b(across|beside)\b", "MODE", line)
    line = re.sub(r"(spark|node|n)-?[12]\b", "NODE", line)
    return re.sub(r"\s+", " ", re.sub(r"\d+", "0", line)).strip()


def as_in_other_tests(inventory: Path, nodes: RealFleet) -> None:
    """Name the nodes and configure the gateway as other tests do, which share them; add where images come from here."""
    known_hosts = inventory.with_name("known_hosts")
    known_hosts.write_text(known_hosts.read_text().replace("spark-", "node-"))
    build = yaml.safe_load(nodes.inventory.read_text())["build"]
    text = inventory.read_text().replace("spark-", "node-").replace(", port: 8000}", "}")
    inventory.write_text(text + yaml.safe_dump({"build": build}))


def test_every_console_line_of_the_docs_is_run_or_marked() -> None:
    assert set(NOT_HERE) <= {page.name for page in READERS}
    assert sum(len([*unmarked(page)]) for page in READERS) > 40


@pytest.fixture
def shell(nodes: RealFleet, tmp_path: Path) -> Iterator[Shell]:
    """A reader whose fleet serves a first release, and whose other releases are forgotten at the end."""
    made = Shell(tmp_path, nodes)
    made.prepare()
    service = Service(Cli(tmp_path / "inventory.yaml", tmp_path), nodes)
    service.sweep()
    yield made
    inventory = tmp_path / "inventory.yaml"
    settings = yaml.safe_load(inventory.read_text())
    if settings.pop("monitoring", None):
        inventory.write_text(yaml.safe_dump(settings))
        assert made.run("sparkops deploy quick --apply-gateway").returncode == 0, "other tests expect no monitoring"
    service.sweep()


@pytest.mark.timeout(1800)
def test_the_readme_works_as_written(shell: Shell) -> None:
    walk(READERS[0], shell)


@pytest.mark.matrix
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "page", [page for page in READERS[1:] if [*unmarked(page)]], ids=lambda page: Path(page.name).stem
)
def test_a_page_works_as_written(page: Page, shell: Shell) -> None:
    """A minute each, so they belong to `make matrix`."""
    walk(page, shell)


def walk(page: Page, shell: Shell) -> None:
    """Type what a page types, and look for what it shows."""
    printed, inits = list[str](), any(command.startswith("sparkops init") for command in console(page).commands)
    commands = [*unmarked(page)]
    if not inits:
        commands = [f"sparkops init {' '.join(node.address for node in shell.nodes.nodes)}", *commands]
    for command in commands:
        ran = shell.run(here(command, shell.nodes))
        printed += [*ran.stdout.splitlines(), *ran.stderr.splitlines()]
        assert ran.returncode == 0 or (ENDLESS.search(command) and ran.returncode == 130), (command, ran.stderr)
        if ENDLESS.search(command):
            assert ran.stdout, command
        if command.startswith("sparkops init"):
            as_in_other_tests(shell.home / "inventory.yaml", shell.nodes)
            if not inits:
                begun = shell.run("sparkops deploy quick --apply-gateway")
                assert begun.returncode == 0, begun.stderr
                shell.run(BEFORE.get(page.name, "true"))
    if page.name not in NOT_SHOWN:
        forms = {form(line) for line in printed}
        missing = [line for line in console(page).shown if form(line) not in forms]
        assert not missing, "\n".join(printed)
