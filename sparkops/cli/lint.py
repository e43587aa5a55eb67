"""The verb lint."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from sparkops.cli.options import JSON
from sparkops.cli.terminal import data, data_json, say
from sparkops.config import assets, files, overlay, recipe_file
from sparkops.config.shipped import known_recipes
from sparkops.errors import SparkopsError, UsageError
from sparkops.lint import report
from sparkops.lint.check import CheckedFile, check_dockerfile, check_recipe, findings
from sparkops.lint.report import LintReport
from sparkops.lint.rules.table import NAMES

STDIN = Path("-")
FORMATS = ("text", "json", "sarif")
DOCKERFILE = re.compile(
    r"(?i)((docker|container)file([._-](?!(.*\.)?(j2|jinja2?|dockerignore|patch|diff|orig|rej|md|sh|py|ya?ml|json|txt)$).*)?|.+[._-](docker|container)file)"
)
RECIPES = (".yaml", ".yml")
RECIPE = re.compile(r"^(extends|image):", re.MULTILINE)
"""A line that identifies a recipe, even if the rest of the file is invalid."""
SKIPPED = frozenset({"node_modules", "venv"})


def lint(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Dockerfile, recipe or directory; -: a Dockerfile on stdin"),
    ] = None,
    format_: Annotated[str, typer.Option("--format", metavar="FORMAT", help="text, json or sarif (2.1.0)")] = "text",
    json: JSON = False,
    rule: Annotated[list[str] | None, typer.Option("--rule", metavar="RULE", help="Run only RULE (repeatable)")] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", metavar="RULE", help="Skip RULE (repeatable)")] = None,
    rules: Annotated[bool, typer.Option("--rules", help="Print every rule with its reason and exit")] = False,
) -> None:
    """Check Dockerfiles and recipes

    Checks the given files, or the whole project, against the requirements of a Spark.

    Exit code 1 if there is a finding.

    Example: sparkops lint recipes/ Dockerfile
    """
    kind = "json" if json else format_
    if kind not in FORMATS:
        raise UsageError(f"--format: unknown format {kind}, expected one of: {', '.join(FORMATS)}")
    if rules:
        data_json(report.rules_json()) if kind == "json" else data(report.rules_page().rstrip())
        return
    chosen = _chosen(rule or (), ignore or ())
    checked, errors = _check_all(dict.fromkeys(_files(paths or ())))
    violations = findings(checked, chosen)
    _show(report.LintReport(len(checked), violations, tuple(map(str, errors))), kind)
    for error in errors[1:]:
        say(f"sparkops: {error}", fg="red")
    if errors:
        raise errors[0]
    if violations:
        raise typer.Exit(1)


def _chosen(only: Sequence[str], without: Sequence[str]) -> frozenset[str]:
    for name in (*only, *without):
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            step = f"Did you mean {near[0]}? " if near else ""
            raise UsageError(f"unknown rule {name}", next_step=f"{step}All rules: sparkops lint --rules")
    return frozenset(only or NAMES) - frozenset(without)


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield every file to read. Raises UsageError without any."""
    if not paths:
        yield from known_recipes().values()
        yield from _inside(Path("Dockerfiles"))
    for path in paths:
        if path.is_dir():
            files = list(_inside(path))
            if not files:
                raise UsageError(f"{path} has no Dockerfile or recipe", next_step="Pass the files by name.")
            yield from files
        elif path == STDIN or path.exists():
            yield path
        else:
            raise UsageError(f"file not found: {path}", next_step="Correct the path, or check all: sparkops lint")


def _inside(directory: Path) -> Iterator[Path]:
    for parent, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith(".") and name not in SKIPPED)
        for file in (Path(parent, name) for name in sorted(names)):
            if DOCKERFILE.fullmatch(file.name) or (file.suffix in RECIPES and _is_recipe(file)):
                yield file


def _is_recipe(file: Path) -> bool:
    try:
        return file.absolute().parent.name == "recipes" or bool(RECIPE.search(files.text(file, errors="replace")))
    except OSError:  # reported when the file is read
        return True


def _check_all(files: Iterable[Path]) -> tuple[list[CheckedFile], list[SparkopsError]]:
    """Return the checked files, and the errors of unreadable ones."""
    checked, errors = list[CheckedFile](), list[SparkopsError]()
    for file in files:
        try:
            checked.append(_check(file))
        except SparkopsError as error:
            errors.append(error)
    return checked, errors


def _check(file: Path) -> CheckedFile:
    if file.suffix not in RECIPES:
        return check_dockerfile(_text(file), str(file))
    loaded, written = recipe_file.load(file, parts=False), overlay.read(file)
    texts = {path: _text(path) for path in (file, *written.files.values())}
    return check_recipe(loaded, written, texts, *_assets())


@cache
def _assets() -> tuple[Mapping[str, str], Mapping[str, bytes]]:
    return assets.load_templates(), assets.load_mods()


def _text(file: Path) -> str:
    try:
        content = sys.stdin.buffer.read(files.MOST + 1) if file == STDIN else files.read(file)
        if len(content) > files.MOST:
            raise UsageError(f"stdin is larger than {files.MOST} bytes", next_step="Pass one Dockerfile.")
        return content.decode()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text in UTF-8") from None


def _show(shown: LintReport, kind: str) -> None:
    if kind == "json":
        data_json(report.as_json(shown))
    elif kind == "sarif":
        data_json(report.as_sarif(shown))
    elif shown.findings:
        data(report.as_text(shown))
    say(report.summary(shown))
