"""Apply a unified diff that lies beside this file: `diff.py NAME.patch [ROOT]`, ROOT being a source tree.

A chat template, NAME.jinja, is copied to TEMPLATES.

Without ROOT it changes installed packages: the first directory of a path names the package. Each hunk is held to the
rule of every mod: what it replaces must stand there exactly once, and a hunk that is there already is left alone. Line
numbers are not looked at, so a release that only moved the code takes the diff as well.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import mend

NOWHERE = "/dev/null"
TEMPLATES = "/opt/sparkops/templates"
HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


def main() -> None:
    """Apply the diff that the first argument names."""
    patch = Path(__file__).parent / sys.argv[1]
    root = Path(sys.argv[2]) if len(sys.argv) > 2 and sys.argv[2] else None
    sys.argv = [str(patch), *sys.argv[3:]]  # from here on the diff is the running mod
    if patch.suffix == ".jinja":
        mend.change(root or Path(TEMPLATES), {}, {patch.name: patch.read_text(encoding="utf-8")})
        return
    edits: dict[str, list[mend.Edit]] = {}
    added: dict[str, str] = {}
    for old, file, removed, put in hunks(patch.read_text(encoding="utf-8")):
        if file == NOWHERE:
            mend.conflict(Path(old), "a diff that deletes no file")
        if old == NOWHERE:
            added[file] = put
        else:
            edits.setdefault(file, []).append(mend.Edit(removed, put))
    if not edits and not added:
        mend.conflict(patch, "a unified diff with at least one hunk")
    mend.change(root or installed({*edits, *added}), edits, added)


def installed(files: set[str]) -> Path:
    """Where the packages lie that the diff is about."""
    roots = {mend.directory(Path(file).parts[0]).parent for file in files}
    if len(roots) != 1:
        mend.conflict(Path(sorted(files)[0]), "packages that are installed in one place")
    return roots.pop()


def hunks(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Each hunk: the file before and after, the text that it takes away and the text that it puts there."""
    lines = iter(text.splitlines(keepends=True))
    old = file = ""
    for line in lines:
        if line.startswith("--- "):
            old = path(line)
        elif line.startswith("+++ "):
            file = path(line)
        elif counts := HUNK.match(line):
            yield old, file, *hunk(lines, *(int(each or 1) for each in counts.groups()))


def hunk(lines: Iterator[str], left: int, right: int) -> tuple[str, str]:
    """The text before and after of a hunk that has so many lines of each."""
    before, after = "", ""
    while left > 0 or right > 0:
        line = next(lines, "")
        mark, rest = line[:1], line[1:]
        match mark:
            case "-":
                before, left = before + rest, left - 1
            case "+":
                after, right = after + rest, right - 1
            case " " | "\n":  # an editor that strips spaces leaves an empty line
                before, after = before + (rest or line), after + (rest or line)
                left, right = left - 1, right - 1
            case "":
                mend.conflict(Path(sys.argv[0]), "a whole diff")
    return before, after


def path(line: str) -> str:
    """The path in a line that begins with --- or +++, without git's a/ and b/."""
    named = line[4:].split("\t")[0].strip()
    return named if named == NOWHERE else named.removeprefix("a/").removeprefix("b/")


main()
