"""The table of verbs, and what a call imports."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from sparkops.operator.cli.verbs import GROUPS, LEAVES, RENAMED, VERBS
from tests.docs.test_commands import refusal
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


@pytest.mark.parametrize("name", LEAVES)
def test_a_line_of_the_table_is_that_of_the_verb(name: str) -> None:
    command = LEAVES[name].load(name)

    assert (command.name, command.get_short_help_str(WIDTH)) == (name, LEAVES[name].help)


def test_help_imports_nothing_heavy() -> None:
    code, modules, out = imported("--help")

    assert (code, modules.intersection(HEAVY)) == (0, set())
    assert out.startswith("Usage: sparkops")
    assert all(f"\n  {name} " in out for name in VERBS)


@pytest.mark.parametrize("name", LEAVES)
def test_help_of_a_verb_imports_nothing_heavy(name: str) -> None:
    code, modules, out = imported(*name.split(), "--help")

    assert (code, modules.intersection(HEAVY)) == (0, set())
    assert out.startswith(f"Usage: sparkops {name} ")


@pytest.mark.parametrize("name", LEAVES)
def test_help_of_a_verb_is_that_of_its_declaration(sparkops: Sparkops, name: str) -> None:
    """The second --help lets the verb itself answer, which reads no file."""
    assert sparkops(*name.split(), "--help").out == sparkops(*name.split(), "--help", "--help").out


def test_help_shows_five_groups_with_each_line_whole(sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    blocks = dict(block.strip().split(":\n", 1) for block in sparkops("--help").out.split("\n\n")[2:-1])

    shown = {title: [line.split(maxsplit=1) for line in blocks[title].splitlines()] for title in GROUPS}
    assert list(blocks) == ["Options", *GROUPS]
    assert len(GROUPS) == 5
    assert shown == {title: [[name, verb.help] for name, verb in group.items()] for title, group in GROUPS.items()}


@pytest.mark.parametrize("name", sorted(set(LEAVES) - {"recipe lock"}))
def test_no_option_shows_a_python_type_or_the_negative_of_a_switch(sparkops: Sparkops, name: str) -> None:
    shown = sparkops(*name.split(), "--help").out.partition("Options:")[2]

    assert re.findall(r"<(?:list|float|int|path).*|.* / --no-.*", shown) == []


def test_status_imports_no_docker_sdk_and_no_recipe() -> None:
    code, modules, _ = imported("status", "--json", "--help")

    ours = {module.removeprefix("sparkops.") for module in modules if module.startswith("sparkops.")}
    later = ("operator.build", "operator.deploy", "operator.fleet.connected", "config.recipe", "config.release")
    unused = (*later, "node.docker_api", "serving.smoke")
    assert code == 0
    assert modules.isdisjoint({"docker", "jinja2", "prometheus_client", "requests", "rich", "urllib3"})
    assert "invoke.config" not in modules
    assert [module for module in ours if module.startswith(unused)] == []


def test_status_connects_before_it_imports_what_checks_and_shows() -> None:
    code, modules, _ = imported("status", "--json", "--help")

    ours = {module.removeprefix("sparkops.") for module in modules if module.startswith("sparkops.")}
    assert code == 0
    assert modules.isdisjoint({"pydantic", "rich"})
    verbs = {"operator.cli.status_output", "operator.cli.watch", "operator.cli.named"}
    assert ours.isdisjoint({*verbs, "config.inventory", "operator.status.observation"})
    assert "operator.fleet.connect" in ours


@pytest.mark.parametrize("verb", ["stop", "history"])
def test_a_verb_that_sends_one_intent_renders_nothing(verb: str) -> None:
    code, modules, _ = imported(verb, "--json", "--help")

    ours = {module.removeprefix("sparkops.") for module in modules if module.startswith("sparkops.")}
    assert code == 0
    assert "jinja2" not in modules
    unused = ("operator.convert", "operator.build.render", "operator.build.images.build")
    assert [module for module in ours if module.startswith(unused)] == []


def test_a_verb_imports_no_other_verb() -> None:
    code, modules, _ = imported("node", "trust", "--yes", "--help")

    ours = {module for module in modules if module.startswith("sparkops.operator.cli.")}
    assert code == 0
    assert ours == {
        f"sparkops.operator.cli.{name}"
        for name in ("described", "main", "named", "options", "terminal", "trust", "usage", "verbs")
    }


def test_the_program_explains_its_exit_codes(sparkops: Sparkops) -> None:
    text = " ".join(sparkops("--help").out.split())

    assert all(f" {code} " in text.partition("Exit codes:")[2] for code in (0, 1, 2, 3, 4, 5, 6, 7, 130))


@pytest.mark.parametrize(
    ("words", "problem", "steps"),
    [
        ("statu", "unknown verb: statu", ["Did you mean status? `sparkops --help` lists all."]),
        ("node trsut", "node: unknown verb: trsut", ["Did you mean trust? `sparkops node --help` lists all."]),
        ("xyz", "unknown verb: xyz", ["`sparkops --help` lists all."]),
        ("follow tiny", "unknown verb: follow", ["sparkops status tiny --follow"]),
        ("show", "unknown verb: show", ["sparkops recipe show RECIPE"]),
        ("trust --yes", "unknown verb: trust", ["sparkops node trust NODE"]),
        ("events", "unknown verb: events", ["sparkops history [SERVICE]"]),
        ("ps", "unknown verb: ps", ["sparkops status"]),
    ],
)
def test_a_word_that_is_no_verb_is_answered_with_the_verb(
    sparkops: Sparkops, words: str, problem: str, steps: list[str]
) -> None:
    ran = sparkops(*words.split())

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [f"sparkops: {problem}", *(f"  next: {step}" for step in steps)]


@pytest.mark.parametrize("name", sorted(set(RENAMED) - {"start", "unhold"}))
def test_each_answer_to_an_old_name_is_a_command_that_the_program_takes(name: str) -> None:
    for line in RENAMED[name]:
        assert refusal(f"sparkops {line}", whole=False) == "", line


@pytest.mark.parametrize(("words", "offered"), [("sparkops roll", "rollback"), ("sparkops status --js", "--json")])
def test_completion_offers_verbs_and_their_options(
    sparkops: Sparkops, monkeypatch: pytest.MonkeyPatch, words: str, offered: str
) -> None:
    monkeypatch.setenv("_SPARKOPS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))

    assert sparkops().out.split() == [offered]
