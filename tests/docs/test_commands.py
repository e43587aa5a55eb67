"""Every command in a page is one that the program takes: verb, options, arguments, recipes; every path exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from sparkops.config import inventory, shipped
from sparkops.config.recipe_file import load
from sparkops.errors import SparkopsError
from sparkops.operator.cli.main import command
from sparkops.operator.cli.verbs import VERBS
from tests.docs.pages import PAGES, Page
from tests.places import ROOT

COMMAND = re.compile(r"(?:^|^[$#] |\bnext: )(sparkops (?!\.).+)$")
PLACEHOLDER = re.compile(r"[A-Z]{3,}(\.\.\.)?|\.\.\.")
SHELL = {">", "|", "&&", ";"}
PATH = re.compile(r"(?:[\w.-]+/)+[\w.*-]+\.(?:py|md|yaml|j2|cfg|patch|svg|jsonl|lock)")
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
BRIEF = re.compile(rf"({'|'.join(VERBS)}) --.+")
"""A verb with an option, named in prose without the program."""
STAND_IN = "1"
WRITTEN = {"mine", "newer"}
"""Recipes that a page lets its reader write."""
EAGER = {"--install-completion", "--show-completion"}
"""Options that act while they are parsed."""
COMMANDED = [page for page in PAGES if page.name != "docs/verbs.md"]  # which has usage lines
UsageError: Any = typer.BadParameter.__mro__[1]


def commands(page: Page) -> Iterator[str]:
    """Yield the command lines of sparkops in blocks of code: whole commands."""
    yield from (match[1] for line in page.lines() if (match := COMMAND.search(line.partition("`")[0])))


def mentions(page: Page) -> Iterator[str]:
    """Yield the commands that prose names, with or without their arguments."""
    for span in page.spans():
        if match := COMMAND.match(span):
            yield match[1]
        elif BRIEF.fullmatch(span):
            yield f"sparkops {span}"


def words(line: str) -> list[str]:
    """Return the arguments of a command line, with a value for each placeholder."""
    given = shlex.split(line, comments=True)[1:]
    end = next((at for at, word in enumerate(given) if word in SHELL), len(given))
    return [STAND_IN if PLACEHOLDER.fullmatch(word) else word for word in given[:end] if word not in EAGER]


def refusal(line: str, *, whole: bool = True) -> str:
    """Return why the program would refuse a command; no text where it takes it. `whole`: no argument may lack."""
    group: Any = command()
    try:
        return _unknown_recipe(_parsed(group, "sparkops", words(line), None))
    except typer.Exit:  # --help or --version
        return ""
    except SparkopsError as error:
        return str(error)
    except UsageError as error:
        lacks = type(error).__name__ in ("MissingParameter", "NoArgsIsHelpError")
        return "" if lacks and not whole else str(error.format_message())


def _parsed(verb: Any, name: str, given: list[str], parent: Any) -> Any:
    """Parse as the program does, without running anything. Return the context of the last verb."""
    context = verb.make_context(name, given, parent=parent)
    rest = [*getattr(context, "_protected_args", ()), *context.args]
    if not hasattr(verb, "resolve_command") or not rest:
        return context
    inner_name, inner, rest = verb.resolve_command(context, rest)
    return _parsed(inner, inner_name, rest, context)


def _unknown_recipe(context: Any) -> str:
    given = context.params.get("recipe") or ()
    named = [given] if isinstance(given, str) else map(str, given)
    unknown = [name for name in named if name != STAND_IN and not _is_recipe(name)]
    return f"no such recipe: {', '.join(unknown)}" if unknown else ""


def _is_recipe(name: str) -> bool:
    return name in WRITTEN or (ROOT / name).is_file() or name in shipped.recipes()


@pytest.mark.parametrize("page", COMMANDED, ids=lambda page: page.name)
def test_each_command_is_one_that_the_program_takes(page: Page) -> None:
    assert {line: why for line in commands(page) if (why := refusal(line))} == {}
    assert {line: why for line in mentions(page) if (why := refusal(line, whole=False))} == {}


@pytest.mark.parametrize("name", ["docs/update-model.md", "docs/update-vllm.md"])
def test_each_recipe_of_a_page_is_valid(name: str, tmp_path: Path) -> None:
    shown = [block for block in YAML.findall(Page(name).text) if "extends:" in block]
    assert shown
    for block in shown:
        file = tmp_path / f"{yaml.safe_load(block)['name']}.yaml"
        file.write_text(block)

        assert load(file).name == file.stem


def test_each_inventory_of_a_page_is_valid(tmp_path: Path) -> None:
    blocks = YAML.findall(Page("docs/second-spark.md").text)
    file = tmp_path / "inventory.yaml"
    file.write_text("".join(blocks))

    assert len(blocks) == 2
    assert set(inventory.load(file).nodes) == {"spark-1", "spark-2"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_path_target_and_module_exists(page: Page) -> None:
    code = [*page.lines(), *page.spans()]
    paths = (path for line in code if PATH.fullmatch(path := line.replace("NAME.", "*.")))
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = [match[1] for line in code if (match := re.match(r"(?:[$#] )?make ([a-z0-9-]+)", line))]
    modules = [match[1] for line in code if (match := re.search(r"python3? -m (tests[\w.]+)", line))]

    assert [path for path in paths if not _exists(path)] == []
    assert [target for target in named if target not in targets] == []
    assert [name for name in modules if find_spec(name) is None] == []


def _exists(path: str) -> bool:
    roots = (ROOT, ROOT / "sparkops", ROOT / "tests")
    parent, _, name = path.rpartition("/")
    return any(any(root.glob(parent if "*" in name else path)) for root in roots)


@pytest.mark.parametrize(
    "line",
    [
        "sparkops deplay 122b-autoround",
        "sparkops deploy 122b-autoround --blue",
        "sparkops deploy no-such-recipe",
        "sparkops models fetch 122b-autoround",
        "sparkops rollback one two",
        "sparkops deploy 122b-autoround --wait soon",
    ],
)
def test_a_command_that_the_program_refuses_is_found(line: str) -> None:
    assert refusal(line)


def test_most_pages_of_a_user_have_commands() -> None:
    assert len(list(commands(Page("README.md")))) >= 6
    assert len(list(commands(Page("docs/operations.md")))) > 8
