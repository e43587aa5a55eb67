"""Check a Dockerfile, or a recipe with its rendered Dockerfile, and apply the ignores in it. Reads text only."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparkops.config.assets import BuildInputs
from sparkops.config.fields import Location
from sparkops.config.opt_in import COMMIT
from sparkops.config.recipe import Recipe
from sparkops.config.source import Source, dotted
from sparkops.engines import ENGINES
from sparkops.errors import ConfigError
from sparkops.lint.dockerfile import Dockerfile, build, parse
from sparkops.lint.finding import LintFinding
from sparkops.lint.rules import cuda, secret
from sparkops.lint.rules.table import NAMES, RULES
from sparkops.render.context import build_context, render

CAUSES: Mapping[str, Location] = {"latest": ("image", "base"), "torch-pin": ("image", "torch")}
"""The key of a recipe that causes a finding in its Dockerfile. The cause of any other rule is the template."""


@dataclass(frozen=True)
class CheckedFile:
    """The findings of one file, and the ignores, which are not applied yet."""

    file: str
    findings: tuple[LintFinding, ...]
    ignores: tuple[Ignore, ...]


class _Problem(NamedTuple):
    where: Location
    rule: str
    problem: str
    fix: str


def findings(checked: Iterable[CheckedFile], chosen: Collection[str]) -> list[LintFinding]:
    """Return the findings of the `chosen` rules that no ignore covers, and the faults of ignores, ordered by place."""
    files = list(checked)
    every = sorted({finding for file in files for finding in file.findings if finding.rule in chosen})
    ignores = list(
        dict.fromkeys(ignore for file in files for ignore in file.ignores)
    )  # ignores of a shared parent once
    uncovered = [finding for finding in every if not any(ignore.hits(finding) for ignore in ignores)]
    own = (ignore for ignore in ignores if ignore.file in {file.file for file in files})
    wrong = (fault for ignore in own for fault in faults(ignore, every, chosen) if fault.rule in chosen)
    return sorted([*uncovered, *wrong])


def check_dockerfile(text: str, file: str) -> CheckedFile:
    """Check a Dockerfile against every rule. `file` is its name in findings."""
    dockerfile = parse(text)
    staged = build(dockerfile)
    violations = (
        LintFinding(file, violation.line, rule.name, secret.hidden(violation.problem), secret.hidden(violation.fix))
        for rule in RULES
        if rule.check
        for violation in rule.check(staged)
    )
    return CheckedFile(file, tuple(violations), tuple(ignores_in_dockerfile(dockerfile, file)))


def check_recipe(
    recipe: Recipe, source: Source, texts: Mapping[Path, str], templates: Mapping[str, str], mods: Mapping[str, bytes]
) -> CheckedFile:
    """Check a recipe and its rendered Dockerfile against every rule.

    `source` has the lines of its values, `texts` has its own file and those that it extends.
    """
    violations = [
        *_revisions(recipe),
        *_secrets((), source.data),
        *_architectures(recipe),
        *_missing_parts(recipe, templates, mods),
        *_rendered(recipe, templates),
    ]
    placed = (
        LintFinding(str(file), line, violation.rule, violation.problem, violation.fix)
        for violation in violations
        for file, line in [source.place(violation.where)]
    )
    ignores = (ignore for file, text in texts.items() for ignore in ignores_in_yaml(text, str(file)))
    return CheckedFile(str(source.file), tuple(placed), tuple(ignores))


def _revisions(recipe: Recipe) -> Iterator[_Problem]:
    if not ENGINES[recipe.engine].weights:
        return
    for place, checkpoint in recipe.model.places:
        if not checkpoint.revision or not COMMIT.fullmatch(checkpoint.revision):
            revision = f"revision {checkpoint.revision} can change" if checkpoint.revision else "no revision"
            problem = f"{checkpoint.id}: {revision}, expected a commit of 40 hex digits"
            fix = "revision: COMMIT, as the hub shows it"
            yield _Problem((*place, "revision"), "model-revision", problem, fix)


def _secrets(where: Location, value: object) -> Iterator[_Problem]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _secrets((*where, key), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _secrets((*where, number), inner)
    elif isinstance(value, str) and (key := secret.looks_secret(value)):
        problem = f"{dotted(where)} contains {key[1]}, expected no secret in a recipe"
        yield _Problem(where, "secret", problem, "put it in a file on the node, with mode 0600")


def _architectures(recipe: Recipe) -> Iterator[_Problem]:
    if recipe.backend != "cpu":
        for name, problem in cuda.wrong_lists(recipe.serve.env):
            yield _Problem(("serve", "env", name), "cuda-arch", problem, f"{name}: {cuda.SPARK}")


def _missing_parts(recipe: Recipe, templates: Mapping[str, str], mods: Mapping[str, bytes]) -> Iterator[_Problem]:
    try:
        build_context(recipe, templates, mods, BuildInputs())
    except ConfigError as error:
        key = next((key for key in ("mods", "template") if f" image.{key}: " in str(error)), "")
        problem = str(error).rpartition(f" image.{key}: ")[2]
        yield _Problem(("image", key), "missing-part", problem, "use an existing one, or add the file to templates/")


def _rendered(recipe: Recipe, templates: Mapping[str, str]) -> Iterator[_Problem]:
    try:
        text = render(recipe, templates)
    except ConfigError:  # reported by missing-part
        return
    for finding in findings([check_dockerfile(text, "")], NAMES):
        where = CAUSES.get(finding.rule, ("image", "template"))
        yield _Problem(where, finding.rule, f"rendered Dockerfile, line {finding.line}: {finding.problem}", finding.fix)


COMMENT = re.compile(r"sparkops:\s*ignore\b(?:=([\w,-]*))?[ \t]*(.*)")
IN_YAML = re.compile(r"(^|.*\s)#\s*(sparkops:\s*ignore\b.*)")
FORM = "# sparkops: ignore=RULE reason"
UNIGNORABLE = frozenset({"ignore-reason", "ignore-unused"})


@dataclass(frozen=True)
class Ignore:
    """One comment: the rules that it ignores, its reason, and the lines that it covers."""

    file: str
    line: int
    names: tuple[str, ...]
    reason: str
    covers: range

    def hits(self, finding: LintFinding) -> bool:
        """Return whether it covers a finding. Without a reason it covers none."""
        covered = finding.file == self.file and finding.line in self.covers
        return covered and bool(self.reason) and finding.rule in self.names


def ignores_in_dockerfile(dockerfile: Dockerfile, file: str) -> Iterator[Ignore]:
    """Yield the ignores of a Dockerfile: each applies to the instruction containing or following it."""
    for comment in dockerfile.comments:
        following = (instruction for instruction in dockerfile.instructions if instruction.end >= comment.line)
        covered = next((range(instruction.line, instruction.end + 1) for instruction in following), range(0))
        yield from _ignores(file, comment.line, comment.text, covered)


def ignores_in_yaml(text: str, file: str) -> Iterator[Ignore]:
    """Yield the ignores of a YAML file: each covers the value on its line or the next one, with all nested values."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if match := IN_YAML.fullmatch(line):
            begin = number if match[1].strip() else next(_values(lines, number), len(lines) + 1)
            yield from _ignores(file, number, match[2], _block(lines, begin))


def _values(lines: list[str], after: int) -> Iterator[int]:
    """Yield the numbers of the lines after line `after` that are neither blank nor a comment."""
    return (at for at, line in enumerate(lines[after:], after + 1) if line.strip() and line.strip()[0] != "#")


def _block(lines: list[str], begin: int) -> range:
    """Return the line with those that are indented below it. A list's items may have the indentation of its key."""
    if begin > len(lines):
        return range(0)
    inside = len(lines[begin - 1]) - len(lines[begin - 1].lstrip())
    end = begin
    for at in _values(lines, begin):
        indent = len(lines[at - 1]) - len(lines[at - 1].lstrip())
        item = lines[at - 1].lstrip().startswith("- ") and not lines[begin - 1].lstrip().startswith("- ")
        if indent < inside + (not item):
            break
        end = at
    return range(begin, end + 1)


def _ignores(file: str, line: int, comment: str, covers: range) -> Iterator[Ignore]:
    if match := COMMENT.match(comment):
        names = tuple(name for name in (match[1] or "").split(",") if name)
        yield Ignore(file, line, names, match[2].strip(), covers)


def faults(ignore: Ignore, findings: Iterable[LintFinding], chosen: Collection[str]) -> Iterator[LintFinding]:
    """Yield the faults of an ignore. Without a finding it is a fault only if its rule is `chosen`."""
    place = (ignore.file, ignore.line)
    if not ignore.reason:
        problem = "ignore without a reason has no effect, expected a reason after the rule"
        yield LintFinding(*place, "ignore-reason", problem, FORM)
    if not ignore.names:
        yield LintFinding(*place, "ignore-unused", f"ignore without a rule, expected {FORM}", FORM)
    for name in ignore.names:
        if name not in NAMES or name in UNIGNORABLE:
            similar = difflib.get_close_matches(name, set(NAMES) - UNIGNORABLE, n=1)
            problem = f"unknown rule {name}" + (f", did you mean {similar[0]}?" if similar else "")
            yield LintFinding(*place, "ignore-unused", problem, "list the rules: sparkops lint --rules")
        elif ignore.reason and name in chosen and not any(ignore.hits(f) and f.rule == name for f in findings):
            problem = f"{name} has no finding here, expected no ignore"
            yield LintFinding(*place, "ignore-unused", problem, f"remove {name} from the comment")
