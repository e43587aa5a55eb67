"""What is wrong with a recipe that the model of a recipe lets through, and with the Dockerfile that it makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from sparkops.config.assets import BuildInputs
from sparkops.config.engine import ENGINES
from sparkops.config.extends import Merged
from sparkops.config.opt_in import COMMIT
from sparkops.config.recipe import Recipe
from sparkops.config.source import Location, Source, dotted
from sparkops.errors import ConfigError
from sparkops.lint.check import Checked, check_dockerfile, findings
from sparkops.lint.finding import LintFinding
from sparkops.lint.ignores import of_yaml
from sparkops.lint.rules import cuda, secret
from sparkops.lint.rules.table import NAMES
from sparkops.render.context import build_context
from sparkops.render.dockerfile import render

CAUSES: Mapping[str, Location] = {"latest": ("image", "base"), "torch-pin": ("image", "torch")}
"""The key of the recipe that a finding in its Dockerfile comes from; any other comes from the template."""


class _Found(NamedTuple):
    where: Location
    rule: str
    problem: str
    fix: str


def check_recipe(
    recipe: Recipe, written: Source, texts: Mapping[Path, str], templates: Mapping[str, str], mods: Mapping[str, bytes]
) -> Checked:
    """Every rule over a recipe and its rendered Dockerfile.

    `written` is where its values stand, `texts` are its own file and those that it extends.
    """
    slips = [
        *_revisions(recipe),
        *_secrets((), written.data),
        *_architectures(recipe),
        *_missing_parts(recipe, templates, mods),
        *_rendered(recipe, templates),
    ]
    placed = (LintFinding(*_place(written, slip.where), slip.rule, slip.problem, slip.fix) for slip in slips)
    ignores = (ignore for file, text in texts.items() for ignore in of_yaml(text, str(file)))
    return Checked(str(written.file), tuple(placed), tuple(ignores))


def _place(written: Source, where: Location) -> tuple[str, int]:
    near = written.nearest(where)
    file = written.files.get(near, written.file) if isinstance(written, Merged) else written.file
    return str(file), written.lines.get(near, 1)


def _revisions(recipe: Recipe) -> Iterator[_Found]:
    if not ENGINES[recipe.engine].weights:
        return
    for number, checkpoint in enumerate(recipe.model.fetched):
        inside: Location = ("sources", number) if recipe.model.sources else ()
        if not checkpoint.revision or not COMMIT.fullmatch(checkpoint.revision):
            revision = f"the revision {checkpoint.revision} may move" if checkpoint.revision else "there is no revision"
            problem = (
                f"{revision}, so {checkpoint.id} may be another model tomorrow, expected a commit of 40 hex digits"
            )
            fix = "revision: the commit that the hub shows for it"
            yield _Found(("model", *inside, "revision"), "model-revision", problem, fix)


def _secrets(where: Location, value: object) -> Iterator[_Found]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _secrets((*where, key), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _secrets((*where, number), inner)
    elif isinstance(value, str) and (seen := secret.looks_secret(value)):
        problem = f"{dotted(where)} holds {seen[1]}, and a recipe is read by everybody, expected none"
        yield _Found(where, "secret", problem, "give it to the node, in a file that only it reads")


def _architectures(recipe: Recipe) -> Iterator[_Found]:
    if recipe.backend != "cpu":
        for name, problem in cuda.wrong_lists(recipe.serve.env):
            yield _Found(("serve", "env", name), "cuda-arch", problem, f"{name}: {cuda.SPARK}")


def _missing_parts(recipe: Recipe, templates: Mapping[str, str], mods: Mapping[str, bytes]) -> Iterator[_Found]:
    try:
        build_context(recipe, templates, mods, BuildInputs())
    except ConfigError as error:
        key = next((key for key in ("mods", "template") if f" image.{key}: " in str(error)), "")
        problem = str(error).rpartition(f" image.{key}: ")[2]
        yield _Found(("image", key), "missing-part", problem, "name one that is there, or add it to templates/")


def _rendered(recipe: Recipe, templates: Mapping[str, str]) -> Iterator[_Found]:
    try:
        text = render(recipe, templates)
    except ConfigError:  # which missing-part tells
        return
    for finding in findings([check_dockerfile(text, "")], NAMES):
        where = CAUSES.get(finding.rule, ("image", "template"))
        yield _Found(where, finding.rule, f"in its Dockerfile, line {finding.line}: {finding.problem}", finding.fix)
