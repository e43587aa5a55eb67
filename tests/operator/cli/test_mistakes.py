"""Mistakes of an owner: what is typed, its exit code, its words, and the next step, which the test then takes.

A printed command is typed as it is printed. "Did you mean" is answered with the name, and a next step for an editor
with the files as an editor leaves them; then the same is typed again. None of it may end at the same wall.
"""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import paramiko
import pytest

from sparkops.config.release import Rank
from sparkops.names import Slot
from sparkops.operator.build.gateway.image import Service
from sparkops.swap.model import Phase
from tests.examples import RECIPE, release
from tests.fleet_unit.machine import inspect
from tests.operator.cli.conftest import Ran, Sparkops
from tests.operator.cli.here import INVENTORY, Here, install
from tests.operator.cli.test_intents import SERVING, swapping
from tests.operator.fleet.ssh_server import listening

pytestmark = pytest.mark.local
Text = Mapping[str, str]
CHANGES = {
    "engine": "stand-in",
    "image": {"template": "stand-in", "base": "debian:bookworm-slim"},
    "serve": {"port": 8100},
    "memory": {"claim_gib": 0.1, "basis": "a guess"},
}
Q = json.dumps({**RECIPE, **CHANGES})
"""The recipe q of the service chat."""
COMMAND = re.compile(r"`(sparkops [^`]+)`|(?:^|: )(sparkops [^,;`]+)")
MEANT = re.compile(r"Did you mean ([^ ?]+)")


def serving(here: Here, _: ExitStack) -> None:
    here.peer.write(SERVING)


def in_a_swap(here: Here, _: ExitStack) -> None:
    swapping(here, Phase.LOAD)


def held(here: Here, _: ExitStack) -> None:
    here.peer.write(replace(SERVING, revision=1))
    here.peer.write(replace(SERVING, revision=2, hold="fair"))


def replaced(here: Here, _: ExitStack) -> None:
    swapping(here, Phase.RETIRE)


def behind_ssh(here: Here, stack: ExitStack) -> None:
    key = paramiko.ECDSAKey.generate()
    port = stack.enter_context(listening(key, key)).port
    nodes = f"nodes:\n  there: {{address: 127.0.0.1, port: {port}}}\n"
    (here.directory / "inventory.yaml").write_text(nodes)


def without_inventory(here: Here, _: ExitStack) -> None:
    (here.directory / "inventory.yaml").unlink()


def nothing(_: Here, __: ExitStack) -> None:
    pass


@dataclass(frozen=True)
class Mistake:
    """One row. {here} is the directory, and … any text."""

    typed: str
    code: int
    words: str
    """The first line."""
    step: str = ""
    """Every line of the next step, as printed."""
    world: Callable[[Here, ExitStack], None] = nothing
    files: Text = field(default_factory=dict)
    mended: Text = field(default_factory=dict)
    """The files as an editor leaves them that follows the words."""
    retyped: str = ""
    """What is typed by who follows the words, where they name no command."""
    fill: Text = field(default_factory=dict)
    """The words in capitals of printed commands."""
    more: str = ""
    """What the test adds to a command, as nothing can be built here."""
    first: str = ""
    """What was typed before."""
    leads: tuple[int, ...] = (0,)
    """The exit codes of the next steps."""
    before: Any = field(default_factory=dict)
    """How this machine is made."""


RUNNING, ENDED = (inspect("q-blue-r0", Rank(release(), Slot.BLUE, "here").labels, how) for how in ("running", "exited"))
HELD = "chat is on hold: fair…"
IN_SWAP = "chat: a swap to q-2 is in phase 'wait until ready'"
NO_CHTA, MEANT_CHAT = "no such service: chta", "Did you mean chat? `sparkops status` lists all."
NO_HEER, MEANT_HERE = "inventory.yaml: unknown node 'heer', expected one of: here", "Did you mean here?"
SPAN = "seconds, or a time span such as 90s, 10m or 1h30m"
SIZE = "a number of GiB, or a size such as 3.5GiB or 128GB"
NO_SAFE = "no safe mode for …:"


def inventory(text: str, words: str, step: str = "") -> Mistake:
    """A file with a mistake in it, which `status` reads."""
    return Mistake("status", 2, words, step, files={"inventory.yaml": text}, mended={"inventory.yaml": INVENTORY})


def recipe(text: str, words: str, step: str = "") -> Mistake:
    """A recipe with a mistake in it, which `plan` reads."""
    good = Q.replace('"name": "q"', '"name": "bad"')
    return Mistake("plan bad", 2, words, step, files={"recipes/bad.yaml": text}, mended={"recipes/bad.yaml": good})


COMPOSE = "services:\n  v:\n    image: vllm/vllm-openai:v0.19.0\n    command: --model Qwen/Qwen3-0.6B\n"

MISTAKES = [
    # verbs
    Mistake("stauts", 2, "unknown verb: stauts", "Did you mean status? `sparkops --help` lists all."),
    Mistake("list", 2, "unknown verb: list", "sparkops recipes\nsparkops status\nsparkops models list"),
    Mistake("follow chat", 2, "unknown verb: follow", "sparkops status chat --follow", serving),
    Mistake("cancel chat", 2, "unknown verb: cancel", "sparkops rollback chat", in_a_swap),
    Mistake("unhold chat", 2, "unknown verb: unhold", "sparkops hold chat --off", held),
    Mistake("recipe shwo q", 2, "recipe: unknown verb: shwo", "Did you mean show? `sparkops recipe --help` lists all."),
    # names
    Mistake("rollback chta", 2, NO_CHTA, MEANT_CHAT, serving),
    Mistake("stop chta --json", 2, NO_CHTA, MEANT_CHAT, serving),
    Mistake("hold chta", 2, NO_CHTA, MEANT_CHAT, serving),
    Mistake("history q", 2, "q is a recipe; its service is chat", MEANT_CHAT, serving),
    Mistake("plan chat", 2, "chat is a service, expected a recipe", "sparkops recipes chat"),
    Mistake("plan qq", 2, "recipe not found: qq", "Did you mean q? `sparkops recipes` lists all."),
    Mistake("plan recipes", 2, "recipes is a directory, expected a recipe", "`sparkops recipes` lists all."),
    Mistake("plan q --node heer", 2, NO_HEER, MEANT_HERE),
    Mistake("doctor --node heer", 2, NO_HEER, MEANT_HERE, leads=(0, 1)),
    Mistake("node cordon heer", 2, NO_HEER, MEANT_HERE),
    Mistake(
        "status --client opencodee",
        2,
        "--client: unknown client opencodee, expected one of: curl, python, open-webui, opencode, continue, litellm",
        "Did you mean opencode?",
        serving,
        leads=(0, 1),
    ),
    # values
    Mistake(
        "plan q --set memory.claim_gbi=3",
        2,
        "--set memory.claim_gbi: unknown key, did you mean 'claim_gib'?",
        retyped="plan q --set memory.claim_gib=3",
    ),
    Mistake(
        "plan q --set memory.claim_gib",
        2,
        "--set memory.claim_gib: expected KEY=VALUE, such as env.NAME=x or swap.bake_s=10",
        retyped="plan q --set swap.bake_s=10",
    ),
    Mistake(
        "plan q --set memory.claim_gib=",
        2,
        f"--set memory.claim_gib: expected {SIZE}; got nothing",
        retyped="plan q --set memory.claim_gib=3.5GiB",
    ),
    Mistake(
        "plan q --set memory.claim_gib=many",
        2,
        f"--set memory.claim_gib: expected {SIZE}; got 'many'",
        retyped="plan q --set memory.claim_gib=1GB",
    ),
    Mistake(
        "plan tiny-qwen3-cpu --set args.gpu-memory-utilization=90",
        2,
        "--set args.gpu-memory-utilization: expected a share of the memory above 0 and up to 1, such as 0.85; got 90",
        retyped="plan tiny-qwen3-cpu --set args.gpu-memory-utilization=0.85",
        leads=(0, 5),
    ),
    Mistake(
        "stop chat --wait 10minutes",
        2,
        f"--wait: expected {SPAN}; got '10minutes'",
        "sparkops stop --help",
        serving,
        retyped="stop chat --wait 1m",
    ),
    Mistake(
        "logs chat --since yesterday",
        2,
        "--since: not a time: yesterday",
        "Pass a time span such as 90s, 10m or 1h30m, or a time such as 2026-11-25T09:30 or 2026-11-25T09:30:00Z.",
        retyped="logs chat --since 10m",
        before={
            "containers": {"q-blue-r0": RUNNING},
            "answers": {'"logs --since=10m --tail=all q-blue-r0"': "a line"},
        },
    ),
    Mistake(
        "logs chat --tail all",
        2,
        "--tail: expected a whole number of at least 0; got 'all'",
        "sparkops logs --help",
    ),
    Mistake(
        "deploy q --mode across-ish --dry-run",
        2,
        "--mode: unknown mode across-ish, expected one of: beside, across, rolling, in-place",
        retyped="deploy q --mode beside --dry-run",
        leads=(0, 5),
    ),
    # options
    Mistake(
        "status --follow",
        2,
        "--follow: SERVICE is missing",
        "sparkops status SERVICE --follow",
        serving,
        fill={"SERVICE": "chat"},
    ),
    Mistake(
        "status --json --follow",
        2,
        "--follow: SERVICE is missing",
        "sparkops status SERVICE --follow",
        serving,
        fill={"SERVICE": "chat"},
    ),
    Mistake("status --client", 2, "--client: its value is missing", "sparkops status --help"),
    Mistake("status -i", 2, "-i: its value is missing", "sparkops status --help"),
    Mistake("fit q --memory 128GB", 2, "fit: unknown option: --memory", "sparkops fit --help"),
    Mistake(
        "stop chat --forse",
        2,
        "stop: unknown option: --forse",
        "Did you mean --force? `sparkops stop --help` lists all.",
        serving,
    ),
    Mistake("status chat extra", 2, "status: unexpected argument: extra", "sparkops status --help"),
    Mistake(
        "stop chat --forget --detach",
        2,
        "--forget: not with --detach: only a service that has stopped is forgotten",
        "sparkops stop chat --detach, and --forget once all of it has stopped",
        serving,
    ),
    Mistake("status --watch --json", 2, "--watch: stdout is not a terminal", "Run `sparkops status --json` instead."),
    # the inventory
    Mistake(
        "status",
        2,
        "inventory not found: inventory.yaml",
        "Create one with `sparkops init`, or pass --inventory FILE.",
        without_inventory,
        leads=(0, 1),
    ),
    Mistake(
        "status -i other.yaml",
        2,
        "inventory not found: other.yaml",
        "Create one with `sparkops init`, or pass --inventory FILE.",
        retyped="status --inventory inventory.yaml",
        leads=(0, 2),
    ),
    Mistake("-i recipes status", 2, "recipes is a directory", "Pass a file with --inventory.", retyped="status"),
    inventory("nodes:\n\there: {}\n", "inventory.yaml:2: not YAML: a tab; indent with spaces"),
    inventory("nodes:\n  a: {}\n b: {}\n", "inventory.yaml:3: not YAML: no line above has the indent of this line"),
    inventory("\0\xff", "inventory.yaml:1: not YAML: a control character"),
    inventory("", "inventory.yaml:1: the file is empty"),
    inventory(
        "hello\n",
        "inventory.yaml:1: expected a mapping of keys to values (required: nodes), got 'hello'",
        "All keys: sparkops recipe schema inventory --markdown",
    ),
    inventory("nodes:\n  a: {}\n  a: {}\n", "inventory.yaml:3: nodes.a: duplicate key, first on line 2"),
    inventory("nodes:\n  a: {adress: h}\n", "inventory.yaml:2: nodes.a.adress: unknown key, did you mean 'address'?"),
    inventory(
        "nodes:\n  a: {address: h, port: x}\n", "inventory.yaml:2: nodes.a.port: expected a whole number, got 'x'"
    ),
    inventory(
        "nodes:\n  a: {address: 'h:22'}\n",
        "inventory.yaml:2: nodes.a.address: expected a host name of labels up to 63 characters, or an IP address,"
        " without a port, got 'h:22'",
    ),
    inventory(
        "nodes:\n  a: {address: h}\ngateway: {node: b}\n",
        "inventory.yaml:3: gateway.node: unknown node 'b', expected one of: a",
    ),
    Mistake(
        "deploy q",
        2,
        "inventory.yaml: gateway: not found, expected the node of the gateway",
        "sparkops init --gateway NODE, with one of: here",
        files={"inventory.yaml": "nodes:\n  here: {transport: local}\n"},
        fill={"NODE": "here"},
    ),
    Mistake(
        "init",
        2,
        "inventory.yaml exists already",
        "Edit it, pass another with --inventory, or replace it with --force.",
        retyped="init --force",
        leads=(0, 1),
    ),
    Mistake(
        "init 127.0.0.2:22",
        2,
        "nodes.spark-1.address: expected a host name of labels up to 63 characters, or an IP address, without a port,"
        " got '127.0.0.2:22'",
        "Pass the host name or IP address of each node once; SSH takes a port from ~/.ssh/config.",
        without_inventory,
        retyped="init 127.0.0.2",
        leads=(1,),
    ),
    # recipes
    recipe("name: [a\n", "recipes/bad.yaml:2: not YAML: a list or mapping in brackets is not closed"),
    recipe(
        "name: bad\nextends: tiny-qwen3-cpuu\n",
        "recipes/bad.yaml:2: extends: recipe 'tiny-qwen3-cpuu' not found…",
        "Did you mean tiny-qwen3-cpu?",
    ),
    recipe("name: bad\nextends: bad\n", "recipes/bad.yaml:2: extends: circular: bad extends bad"),
    recipe("name: bad\nextends: q\nmodell: x\n", "recipes/bad.yaml:3: modell: unknown key, did you mean 'model'?"),
    # changes
    Mistake("promote chat", 0, "chat: nothing to do", world=serving),
    Mistake("rollback chat", 0, "chat: nothing to do", world=serving),
    Mistake("hold chat --off", 0, "chat: nothing was held", world=serving, retyped="hold chat"),
    Mistake(
        "stop chat",
        4,
        IN_SWAP,
        "sparkops rollback chat, which ends it\nsparkops stop chat --force",
        in_a_swap,
    ),
    Mistake(
        "deploy q",
        4,
        IN_SWAP,
        "sparkops status chat --follow\nsparkops rollback chat\n`--wait 10m` retries",
        in_a_swap,
    ),
    Mistake("deploy q", 4, HELD, "sparkops hold chat --off", held, before={"service": Service("chat", 8100)}),
    Mistake("stop chat", 4, HELD, "sparkops hold chat --off", held),
    Mistake(
        "rollback chat",
        5,
        "chat: q-2 was rolled back; another rollback would go forward to it again",
        "sparkops rollback chat --to q-2",
        replaced,
        first="rollback chat",
    ),
    Mistake(
        "rollback chat --to q-7",
        2,
        "--to: unknown release q-7 of chat, expected one of: q-1",
        "sparkops deploy RECIPE",
        replaced,
        fill={"RECIPE": "q"},
        more="--dry-run",
        leads=(0, 5),
    ),
    # what is missing
    Mistake(
        "plan q",
        5,
        "q-… needs: image (sparkops up q brings it)",
        "sparkops up q",
        more="--dry-run",
        before={"built": False},
    ),
    Mistake(
        "plan tiny-qwen3-cpu",
        5,
        NO_SAFE,
        "On here: sudo install -d -o 0 -g 0 {here}/models",
        files={"inventory.yaml": INVENTORY.replace("transport: local", "transport: local, model_dir: {here}/models")},
        mended={"models/.keep": ""},
        leads=(5,),
    ),
    Mistake(
        "up q --set memory.claim_gib=99999",
        5,
        NO_SAFE,
        "Use a node with more memory, or a smaller model: sparkops recipes --fits\n"
        "Free memory on here: `sparkops status` shows what is used; or use a node with more: --node; or lower what it"
        " takes: sparkops fit q",
        leads=(0, 5),  # the stand-in has no rules for its memory
    ),
    # no terminal
    Mistake("node trust", 2, "no terminal to confirm on: …", "Pass --yes.", behind_ssh, retyped="node trust --yes"),
    Mistake(
        "prune",
        2,
        "no terminal to confirm on: Remove 1 item?",
        "Pass --yes.",
        retyped="prune --dry-run",
        before={"containers": {"q-blue-r0": ENDED}},
    ),
    # import
    Mistake(
        "import Dockerfile",
        2,
        "Dockerfile:1: a Dockerfile, which import does not read",
        "Write a file with the keys `model: OWNER/NAME`, `container: IMAGE` and `command: vllm serve OWNER/NAME ...`,"
        " then import it (docs/migrate.md)",
        files={
            "Dockerfile": "FROM vllm/vllm-openai\n",
            "mine.yaml": "model: Qwen/Qwen3-0.6B\ncontainer: vllm/vllm-openai:v0.19.0\n"
            "command: vllm serve Qwen/Qwen3-0.6B --max-model-len 2048\n",
        },
        retyped="import mine.yaml",
    ),
    Mistake(
        "import -",
        2,
        "-:1: the file is empty",
        retyped="import compose.yaml",
        files={"compose.yaml": COMPOSE},
    ),
    Mistake(
        "import compose.yml",
        2,
        "file not found: compose.yml",
        "Correct the path: expected a recipe of another tool on this machine.",
        files={"compose.yaml": COMPOSE},
        retyped="import compose.yaml",
    ),
]


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    return tmp_path


def test_there_are_at_least_forty() -> None:
    assert len({(mistake.typed, mistake.words) for mistake in MISTAKES}) >= 40


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.typed}: {mistake.words}"[:70])
def test_a_mistake_has_its_words_and_its_next_step_leads_on(
    sparkops: Sparkops, directory: Path, mistake: Mistake
) -> None:
    with ExitStack() as stack:
        here = stack.enter_context(install(directory, **mistake.before))
        mistake.world(here, stack)
        write(directory, {"recipes/q.yaml": Q, **mistake.files})
        if mistake.first:
            assert sparkops(*shlex.split(mistake.first)).code == 0

        ran = sparkops(*shlex.split(mistake.typed))

        words, steps = told(ran)
        assert (ran.code, steps) == (mistake.code, of(directory, mistake.step).splitlines()), ran.err
        assert re.fullmatch(".*".join(map(re.escape, mistake.words.split("…"))), words), words
        if "--json" in shlex.split(mistake.typed):
            assert ran.json == {"exit_code": ran.code, "error": words, "next": steps}
        write(directory, mistake.mended)
        following = [*taken(mistake)]
        assert following or not mistake.code, "nothing to do next"
        for line in following:
            then = sparkops(*shlex.split(line))

            assert then.code in mistake.leads, f"{line}: {then}"
            assert mistake.code == 0 or told(then)[0] != words, f"{line}: the same answer"


def taken(mistake: Mistake) -> Iterator[str]:
    """Return the command lines of who follows the next step."""
    for line in mistake.step.splitlines():
        if meant := MEANT.match(line):
            name = meant[1]
            said = mistake.words.replace("'", " ").replace(",", " ").split()
            word = max((word for word in reversed(mistake.typed.split()) if word in said), key=len, default="")
            yield mistake.typed if mistake.mended else mistake.typed.replace(word, name)
        for quoted, plain in COMMAND.findall(line):
            command = re.sub(r"\b[A-Z]{3,}\b", lambda word: mistake.fill[word[0]], quoted or plain)
            yield f"{command.removeprefix('sparkops ')} {mistake.more}"
    if mistake.retyped:
        yield mistake.retyped
    if mistake.mended:
        yield mistake.typed


def told(ran: Ran) -> tuple[str, list[str]]:
    """Return the first line of an answer, and its next steps."""
    lines = [line for line in ran.err.splitlines() if not line.startswith("[")]
    first = next((line for line in lines if line.startswith("sparkops: ")), lines[0] if lines else "")
    steps = [line.removeprefix("  next: ") for line in lines if line.startswith("  next: ")]
    return first.removeprefix("sparkops: "), steps


def of(directory: Path, text: str) -> str:
    return text.replace("{here}", str(directory))


def write(directory: Path, files: Text) -> None:
    for name, text in files.items():
        file = directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(of(directory, text))
