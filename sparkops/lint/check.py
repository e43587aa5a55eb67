"""Check a Dockerfile, or a recipe with its rendered Dockerfile. Reads text only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sparkops.config.assets import BuildInputs
from sparkops.config.opt_in import COMMIT
from sparkops.config.recipe import Recipe
from sparkops.config.source import Location, Source, dotted
from sparkops.engines import ENGINES
from sparkops.errors import ConfigError
from sparkops.lint.dockerfile import parse
from sparkops.lint.finding import LintFinding
from sparkops.lint.ignores import Ignore, faults, of_dockerfile, of_yaml
from sparkops.lint.rules import cuda, secret
from sparkops.lint.rules.table import NAMES, RULES
from sparkops.lint.stages import build
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
    return CheckedFile(file, tuple(violations), tuple(of_dockerfile(dockerfile, file)))


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
    ignores = (ignore for file, text in texts.items() for ignore in of_yaml(text, str(file)))
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
