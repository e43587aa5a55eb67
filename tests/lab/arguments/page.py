"""docs/evidence/arguments.md: a row for each recipe that starts vLLM, and one for each parser."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from typing import Self

from sparkops.config.recipe import Recipe
from sparkops.operator.convert.vllm_023 import RELEASE
from tests.lab.arguments.command_lines import digest
from tests.lab.gpu.evidence import cell
from tests.places import ROOT

PAGE = ROOT / "docs/evidence/arguments.md"
ACCEPTED = "accepted"
NOT_RUN = {
    "engine": "not run: another engine than vLLM",
    "image": "not run: a finished image of another build; its own parser judges on a node",
    "no wheel": "not run: the package index has no wheel of this version",
    "not imported": "not run: the parser of this version does not import here",
}
"""Every reason why no parser judged a recipe."""
NEWEST = "vllm==0.33.0"
NEAREST = {"vllm==0.19.2rc1.dev154": ("vllm==0.19.1", "vllm==0.20.0")}
"""Releases before and after a version that is a commit without a wheel; both judge in its place."""
HEAD = """# Arguments of the recipes

Written on {day} by `make arguments`, which gives the command lines of each recipe that starts vLLM to the parser
of `vllm serve` of the version that the recipe pins: those of every rank, with the arguments that sparkops adds. The
parser checks flags and their values; the names of tool and reasoning parsers and of types of the KV cache are checked
beside it. Neither a model nor a GPU is involved: whether a model accepts a value is not part of this.

The Python files are those of the release's wheel for arm64, without compiled parts. They ran with Python {python} and
torch {torch}, on the CPU, with the packages of at most two weeks after the wheel, any certifi, and none for CUDA. A
Spark runs Python 3.12 and the torch of the recipe. Where vLLM is NVIDIA's or built from source, the wheel of the same
version judges, or the releases before and after the commit; the column "parser" names them. Mods do not take part.
`sparkops import` pins vLLM {imported}, whose parser is among these.

"Arguments" is a hash of the command lines. If a recipe changes, `make check` fails until `make arguments` has run.
"""


@dataclass(frozen=True)
class Row:
    """What a recipe's own vLLM and the newest one report of its arguments."""

    recipe: str
    vllm: str
    parser: str
    verdict: str
    newest: str
    arguments: str

    @classmethod
    def read(cls, line: str) -> Self | None:
        """Return the row in a line of the page; None if it is another line."""
        cells = [part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]]
        return cls(*cells) if len(cells) == len(fields(cls)) else None


@dataclass(frozen=True)
class Parser:
    """One vLLM that judged: its wheel and its day, how many wrong examples it refused, or why it did not run."""

    vllm: str
    wheel: str
    uploaded: str
    refused: str


def parsers(requirement: str) -> tuple[str, ...]:
    """Return the requirements whose parsers judge a recipe with this one."""
    return NEAREST.get(requirement, (requirement,))


def of_what(judged: Recipe) -> str:
    """Return how the parsers that judge a recipe differ from the vLLM that it runs."""
    assert judged.image.vllm is not None
    names = " and ".join(version(requirement) for requirement in parsers(judged.image.vllm))
    if judged.image.source:
        if judged.image.vllm in NEAREST:
            return f"{names}, the releases around commit {judged.image.source.commit[:9]}, which has no wheel"
        return f"{names}, the wheel; the recipe builds commit {judged.image.source.commit[:9]}"
    if judged.image.use:
        return f"{names}, the wheel of the index; the recipe runs {judged.image.use}"
    return f"{names}, the wheel"


def version(requirement: str) -> str:
    """Return a pinned version, with the package if it is not vllm."""
    package, _, number = requirement.partition("==")
    return number if package == "vllm" else f"{package} {number}"


def rows() -> list[Row]:
    """Return the rows of the page."""
    lines = [Row.read(line) for line in PAGE.read_text().splitlines()]
    return [row for row in lines if row and row.recipe not in ("recipe", "---")]


def text(day: str, python: str, torch: str, tables: tuple[Iterable[Row], Iterable[Parser]]) -> str:
    """Return the page."""
    judged, judges = tables
    newest = f"{version(NEWEST)}, the newest"
    parts = [
        HEAD.format(day=day, python=python, torch=torch, imported=RELEASE),
        table(("recipe", "vLLM", "parser", "verdict", newest, "arguments"), judged),
        "\n## Parsers\n\nEach also judged a wrong flag, value, JSON, tool parser and reasoning parser.\n",
        table(("vLLM", "wheel", "uploaded", "wrong examples refused"), judges),
    ]
    return "\n".join(parts) + "\n"


def table(head: tuple[str, ...], lines: Iterable[Row | Parser]) -> str:
    """Return a Markdown table."""
    written = [[cell(value) for value in astuple(line)] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(head), ["---"] * len(head), *written])


def row(of: Recipe, problems: Mapping[str, Mapping[str, str] | str]) -> Row:
    """Return the row of a recipe. `problems`: what each parser reports of each recipe, or why it did not run."""
    if of.engine != "vllm":
        return Row(of.name, "-", "-", NOT_RUN["engine"], "-", "-")
    if of.image.vllm is None:
        return Row(of.name, "-", "-", NOT_RUN["image"], "-", digest(of))
    own, newest = (verdict(of.name, judges, problems) for judges in (parsers(of.image.vllm), (NEWEST,)))
    return Row(of.name, version(of.image.vllm), of_what(of), own, newest, digest(of))


def verdict(name: str, requirements: Iterable[str], problems: Mapping[str, Mapping[str, str] | str]) -> str:
    """Return what the parsers of some requirements report of a recipe."""
    reports = []
    for requirement in requirements:
        reported = problems[requirement]
        problem = reported if isinstance(reported, str) else reported[name]
        reports += [problem] if problem else []
    return "; ".join(dict.fromkeys(reports)) or ACCEPTED
