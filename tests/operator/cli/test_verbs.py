"""The table of verbs, and what a call imports."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.core import TyperGroup

from sparkops.operator.cli.verbs import GROUPS, VERBS
from tests.operator.cli.conftest import Sparkops

HEAVY = ("docker", "jinja2", "paramiko", "pydantic", "requests", "rich", "yaml")
IMPORTED = """
import sys
from sparkops.operator.cli.main import main
sys.argv = ["sparkops", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(end.code, *sorted(filter(sys.modules.get, sys.modules)), file=sys.stderr)
"""
WIDTH = 1000
"""Characters of a line of help that no verb has."""


def imported(*argv: str) -> tuple[int, set[str], str]:
    """Return the exit code of a call in a new process, the modules that it imported, and its stdout."""
    ran = subprocess.run([sys.executable, "-c", IMPORTED, *argv], capture_output=True, text=True, check=True)
    code, *modules = ran.stderr.splitlines()[-1].split()
    return int(code), set(modules), ran.stdout


@pytest.mark.parametrize("name", VERBS)
def test_a_line_of_the_table_is_that_of_the_verb(name: str) -> None:
    command = VERBS[name].load(name)

    assert (command.name, command.get_short_help_str(WIDTH)) == (name, VERBS[name].help)


def test_help_imports_nothing_heavy() -> None:
    code, modules, out = imported("--help")

    assert (code, modules.intersection(HEAVY)) == (0, set())
    assert out.startswith("Usage: sparkops")
    assert all(f"\n  {name} " in out for name in VERBS)


def test_help_shows_five_groups_with_each_line_whole(sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    blocks = dict(block.strip().split(":\n", 1) for block in sparkops("--help").out.split("\n\n")[2:-1])

    shown = {title: [line.split(maxsplit=1) for line in blocks[title].splitlines()] for title in GROUPS}
    assert list(blocks) == ["Options", *GROUPS]
    assert len(GROUPS) == 5
    assert shown == {title: [[name, verb.help] for name, verb in group.items()] for title, group in GROUPS.items()}


@pytest.mark.parametrize("name", sorted(set(VERBS) - {"lock"}))
def test_no_option_shows_a_python_type_or_the_negative_of_a_switch(sparkops: Sparkops, name: str) -> None:
    command = VERBS[name].load(name)
    calls = [(name, verb) for verb in command.commands] if isinstance(command, TyperGroup) else [(name,)]
    shown = "".join(sparkops(*call, "--help").out.partition("Options:")[2] for call in calls)

    assert re.findall(r"<(?:list|float|int|path).*|.* / --no-.*", shown) == []


def test_status_imports_no_docker_sdk_and_no_recipe() -> None:
    code, modules, _ = imported("status", "--help")

    ours = {module.removeprefix("sparkops.") for module in modules if module.startswith("sparkops.")}
    later = ("operator.build", "operator.deploy", "operator.fleet.connected", "config.recipe", "config.release")
    unused = (*later, "node.docker_api", "serving.smoke")
    assert code == 0
    assert modules.isdisjoint({"docker", "jinja2", "prometheus_client", "requests", "rich", "urllib3"})
    assert "invoke.config" not in modules
    assert [module for module in ours if module.startswith(unused)] == []


def test_status_connects_before_it_imports_what_checks_and_shows() -> None:
    code, modules, _ = imported("status", "--help")

    ours = {module.removeprefix("sparkops.") for module in modules if module.startswith("sparkops.")}
    assert code == 0
    assert modules.isdisjoint({"pydantic", "rich"})
    verbs = {"operator.cli.status_output", "operator.cli.watch", "operator.cli.named"}
    assert ours.isdisjoint({*verbs, "config.inventory", "operator.status.observation"})
    assert "operator.fleet.connect" in ours


@pytest.mark.parametrize("verb", ["stop", "follow"])
def test_a_verb_that_sends_one_intent_renders_nothing(verb: str) -> None:
    code, modules, _ = imported(verb, "--help")

    ours = {module.removeprefix("sparkops.") for module in modules if module.startswith("sparkops.")}
    assert code == 0
    assert "jinja2" not in modules
    unused = ("operator.convert", "operator.build.render", "operator.build.images.build")
    assert [module for module in ours if module.startswith(unused)] == []


def test_a_verb_imports_no_other_verb() -> None:
    code, modules, _ = imported("trust", "--help")

    ours = {module for module in modules if module.startswith("sparkops.operator.cli.")}
    assert code == 0
    assert ours == {
        f"sparkops.operator.cli.{name}" for name in ("main", "named", "options", "terminal", "trust", "verbs")
    }


def test_the_program_explains_its_exit_codes(sparkops: Sparkops) -> None:
    text = " ".join(sparkops("--help").out.split())

    assert all(f" {code} " in text.partition("Exit codes:")[2] for code in (0, 1, 2, 3, 4, 5, 6, 7, 130))


def test_a_name_close_to_a_verb_is_suggested(sparkops: Sparkops) -> None:
    ran = sparkops("statu")

    assert ran.code == 2
    assert "No such command 'statu'. Did you mean 'status'" in ran.err


@pytest.mark.parametrize(("words", "offered"), [("sparkops roll", "rollback"), ("sparkops status --js", "--json")])
def test_completion_offers_verbs_and_their_options(
    sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch, words: str, offered: str
) -> None:
    monkeypatch.setenv("_SPARKOPS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))

    assert sparkops().out.split() == [offered]
