"""Completion of recipes, services and nodes, as the scripts of the shells ask for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparkops.operator.cli import completion, verbs
from sparkops.operator.cli.completion import values
from tests.places import ROOT

INVENTORY = "nodes:\n  spark-1: {address: 10.0.0.1}\n  spark-2: {address: 10.0.0.2}\n"
RECIPE = "name: mine\nservice: 'my-chat'  # clients ask for it\n"
ARGUMENTS = {"recipe": "recipe", "service": "service", "node": "node", "nodes": "node"}
"""Names of arguments of verbs, and what they are."""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "inventory.yaml").write_text(INVENTORY)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes/mine.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "incomplete", "offered"),
    [
        ("deploy", "min", ["mine"]),
        ("-v deploy --json", "min", ["mine"]),
        ("models pull", "min", ["mine"]),
        ("recipe render mine", "stand-", ["stand-in"]),
        ("rollback", "my", ["my-chat"]),
        ("recipes", "my", ["my-chat"]),
        ("hold", "my", ["my-chat"]),
        ("deploy mine --node", "", ["spark-1", "spark-2"]),
        ("models copy mine --from", "spark-1", ["spark-1"]),
        ("prune -n spark-1 -n", "", ["spark-1", "spark-2"]),
        ("gateway move", "", ["spark-1", "spark-2"]),
        ("gateway rebuild", "", ["spark-1", "spark-2"]),
        ("node trust spark-1", "", ["spark-2"]),
        ("probe my-chat --recipe", "min", ["mine"]),
        ("status --client", "open", ["open-webui", "opencode"]),
        ("deploy mine --mode", "", ["beside", "across", "in-place"]),
        ("status -i other.yaml", "my", ["my-chat"]),
    ],
)
@pytest.mark.usefixtures("here")
def test_names_that_begin_so_are_offered(line: str, incomplete: str, offered: list[str]) -> None:
    assert values(line.split(), incomplete, "inventory.yaml") == offered


@pytest.mark.parametrize(
    ("line", "incomplete"),
    [("", ""), ("deploy", "--"), ("deploy mine", ""), ("doctor", ""), ("models", ""), ("deploy", "./rec"), ("-i", "x")],
)
@pytest.mark.usefixtures("here")
def test_another_kind_of_word_is_left_to_typer_and_files_to_the_shell(line: str, incomplete: str) -> None:
    assert values(line.split(), incomplete, "inventory.yaml") == []


def test_the_inventory_of_the_command_line_goes_before(here: Path) -> None:
    (here / "other.yaml").write_text("nodes:\n  lone: {transport: local}\n")

    for words in (["-i", "other.yaml"], ["--inventory=other.yaml"]):
        assert values([*words, "prune", "--node"], "", "inventory.yaml") == ["lone"]


@pytest.mark.parametrize("text", [None, "nodes: [", "nodes:", "- a", "nodes: {'$(reboot)': {}}"])
def test_an_inventory_that_cannot_be_read_offers_nothing(here: Path, text: str | None) -> None:
    file = here / "inventory.yaml"
    file.unlink() if text is None else file.write_text(text)

    assert values(["prune", "--node"], "", "inventory.yaml") == []


@pytest.mark.parametrize(
    ("shell", "variables", "offered"),
    [
        ("bash", {"COMP_WORDS": "sparkops\ndeploy\nmin", "COMP_CWORD": "2"}, "mine\n"),
        ("bash", {"COMP_WORDS": "sparkops\nnode\ntrust\n", "COMP_CWORD": "3"}, "spark-1\nspark-2\n"),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "sparkops deploy min"}, "_arguments '*: :((\"mine\"))'\n"),
        ("fish", {"_TYPER_COMPLETE_ARGS": "sparkops rollback my"}, "my-chat\n"),
        ("bash", {"COMP_WORDS": "sparkops\nroll", "COMP_CWORD": "1"}, "rollback\n"),
    ],
)
@pytest.mark.local
def test_each_shell_gets_what_its_script_reads(here: Path, shell: str, variables: dict[str, str], offered: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "_SPARKOPS_COMPLETE": f"complete_{shell}", **variables}
    program = "import sys; sys.argv = ['sparkops']; from sparkops.__main__ import main; main()"
    command = [sys.executable, "-c", program]

    assert subprocess.run(command, env=env, cwd=here, check=True, capture_output=True, text=True).stdout == offered


@pytest.mark.local
def test_it_loads_neither_typer_nor_pydantic_nor_a_verb(here: Path) -> None:
    """They take seconds on a small machine; without them an answer takes 0.1 to 0.2 s of CPU time."""
    program = "import json, sys, sparkops.operator.cli.completion as c; "
    program += "c.answer('complete_bash', {'COMP_WORDS': 'x deploy m', 'COMP_CWORD': '2'}); "
    program += "print(json.dumps(sorted(sys.modules)))"
    command, env = [sys.executable, "-c", program], {"PYTHONPATH": str(ROOT)}

    loaded = {*json.loads(subprocess.run(command, cwd=here, env=env, check=True, capture_output=True).stdout)}

    assert not {"typer", "pydantic", "paramiko", "rich", "docker"} & loaded
    assert {name for name in loaded if name.startswith("sparkops.")} == {
        "sparkops.operator",
        "sparkops.operator.cli",
        "sparkops.operator.cli.completion",
        "sparkops.command",
        "sparkops.config",
        "sparkops.config.files",
        "sparkops.config.shipped",
        "sparkops.operator.status",
        "sparkops.operator.status.clients",
    }


def test_every_verb_completes_what_its_arguments_are() -> None:
    taken = {
        name: ARGUMENTS[param.name]
        for name, verb in verbs.LEAVES.items()
        for param in verb.load(name).params
        if param.param_type_name == "argument" and param.name in ARGUMENTS and name != "init"
    }

    assert {name for name, verb in verbs.VERBS.items() if isinstance(verb, verbs.Family)} == completion.FAMILIES
    assert taken == completion.TAKES


def test_every_option_for_a_node_completes() -> None:
    loaded = [verb.load(name) for name, verb in verbs.LEAVES.items()]
    options = {param.name: param.opts for command in loaded for param in command.params if param.name in ("node", "to")}

    assert {option for opts in options.values() for option in opts if option.startswith("-")} <= set(completion.OPTIONS)
