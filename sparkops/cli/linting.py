"""lint."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.settings import known_recipes
from sparkops.cli.terminal import data, data_json, say
from sparkops.errors import SparkopsError, UsageError

if TYPE_CHECKING:
    from sparkops.lint.check import Checked
    from sparkops.lint.report import Report

STDIN = Path("-")
FORMATS = ("text", "json", "sarif")
DOCKERFILE = re.compile(r"(Dockerfile|Containerfile)(\.(?!j2$|dockerignore$).*)?|.+\.Dockerfile")
RECIPES = (".yaml", ".yml")
RECIPE = re.compile(r"^(extends|image):", re.MULTILINE)
"""What a recipe has at the beginning of a line, whatever is wrong with the rest of it."""
PASSED_OVER = frozenset({"node_modules", "venv"})


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(lint)


def lint(
    paths: Annotated[
        list[Path] | None, typer.Argument(help="Dockerfiles, recipes, directories; - is a Dockerfile on stdin.")
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="text, json or sarif (2.1.0).")] = "text",
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    rule: Annotated[list[str] | None, typer.Option("--rule", help="Only this rule; again for more.")] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", help="Not this rule; again for more.")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Show every rule with its reason; read nothing.")] = False,
) -> None:
    """Hold Dockerfiles and recipes to what a Spark needs: those of this project, or what is named."""
    from sparkops.lint import report
    from sparkops.lint.check import findings

    kind = "json" if json else format_
    if kind not in FORMATS:
        raise UsageError(f"there is no format {kind}", next_step=f"One of: {', '.join(FORMATS)}")
    if rules:
        data_json(report.rules_json()) if kind == "json" else data(report.rules_page().rstrip())
        return
    chosen = _chosen(rule or (), ignore or ())
    reader = _Reader()
    for file in dict.fromkeys(_files(paths or ())):
        reader.take(file)
    found = findings(reader.checked, chosen)
    _show(report.Report(len(reader.checked), found, tuple(map(str, reader.errors))), kind)
    for error in reader.errors[1:]:
        say(f"sparkops: {error}", fg="red")
    if reader.errors:
        raise reader.errors[0]
    if found:
        raise typer.Exit(1)


def _chosen(only: Sequence[str], without: Sequence[str]) -> frozenset[str]:
    from sparkops.lint.rules.table import NAMES

    for name in (*only, *without):
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            step = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(f"there is no rule {name}", next_step=f"{step}All rules: sparkops lint --rules")
    return frozenset(only or NAMES) - frozenset(without)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Every file to read. Raises UsageError where there is none."""
    if not paths:
        yield from known_recipes().values()
        yield from _inside(Path("Dockerfiles"))
    for path in paths:
        if path.is_dir():
            found = list(_inside(path))
            if not found:
                raise UsageError(f"{path} holds no Dockerfile and no recipe", next_step="Name the files themselves.")
            yield from found
        elif path == STDIN or path.exists():
            yield path
        else:
            raise UsageError(f"there is no file {path}")


def _inside(directory: Path) -> Iterator[Path]:
    for where, directories, names in os.walk(directory):
        directories[:] = sorted(each for each in directories if not each.startswith(".") and each not in PASSED_OVER)
        for file in (Path(where, name) for name in sorted(names)):
            if DOCKERFILE.fullmatch(file.name) or (file.suffix in RECIPES and _is_recipe(file)):
                yield file


def _is_recipe(file: Path) -> bool:
    try:
        return file.absolute().parent.name == "recipes" or bool(RECIPE.search(file.read_text(errors="replace")))
    except OSError:  # it is told when the file is read
        return True


@dataclass
class _Reader:
    """Reads files one after the other; one that cannot be read does not keep the others from being looked at."""

    checked: list[Checked] = field(default_factory=list)
    errors: list[SparkopsError] = field(default_factory=list)

    def take(self, file: Path) -> None:
        try:
            self.checked.append(self._recipe(file) if file.suffix in RECIPES else self._dockerfile(file))
        except SparkopsError as error:
            self.errors.append(error)

    def _dockerfile(self, file: Path) -> Checked:
        from sparkops.lint.check import check_dockerfile

        return check_dockerfile(_text(file), str(file))

    def _recipe(self, file: Path) -> Checked:
        from sparkops.config import extends, recipe
        from sparkops.lint.recipe import check_recipe

        loaded, written = recipe.load(file, parts=False), extends.read(file)
        others = written.files.values() if isinstance(written, extends.Merged) else ()
        texts = {each: _text(each) for each in (file, *others)}
        templates, mods = self._assets
        return check_recipe(loaded, written, texts, templates, mods)

    @cached_property
    def _assets(self) -> tuple[Mapping[str, str], Mapping[str, bytes]]:
        from sparkops.config import assets

        return assets.load_templates(), assets.load_mods()


def _text(file: Path) -> str:
    try:
        return (sys.stdin.buffer.read() if file == STDIN else file.read_bytes()).decode()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text in UTF-8") from None


def _show(shown: Report, kind: str) -> None:
    from sparkops import __version__
    from sparkops.lint import report, sarif

    if kind == "json":
        data_json(report.as_json(shown))
    elif kind == "sarif":
        data_json(sarif.as_sarif(shown, __version__))
    elif shown.findings:
        data(report.as_text(shown))
    say(report.summary(shown))
