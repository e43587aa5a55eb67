"""Comments `# sparkops: ignore=RULE reason`: the lines that they cover, and their faults."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from sparkops.lint.dockerfile import Dockerfile
from sparkops.lint.finding import LintFinding
from sparkops.lint.rules.table import NAMES

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


def of_dockerfile(dockerfile: Dockerfile, file: str) -> Iterator[Ignore]:
    """Yield the ignores of a Dockerfile: each applies to the instruction containing or following it."""
    for comment in dockerfile.comments:
        following = (instruction for instruction in dockerfile.instructions if instruction.end >= comment.line)
        covered = next((range(instruction.line, instruction.end + 1) for instruction in following), range(0))
        yield from _read(file, comment.line, comment.text, covered)


def of_yaml(text: str, file: str) -> Iterator[Ignore]:
    """Yield the ignores of a YAML file: each covers the value on its line or the next one, with all nested values."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if match := IN_YAML.fullmatch(line):
            begin = number if match[1].strip() else next(_values(lines, number), len(lines) + 1)
            yield from _read(file, number, match[2], _block(lines, begin))


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


def _read(file: str, line: int, comment: str, covers: range) -> Iterator[Ignore]:
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
