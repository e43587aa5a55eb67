"""What the mods share. A mod looks first, and ends in one of three outcomes: applied, already there, conflict.

A conflict ends the build: the installed package has a shape that the mod was not written for, and guessing would
make an image that fails much later. Every other outcome is left as a marker, which the image is asked for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import py_compile
import sys
from pathlib import Path
from typing import NamedTuple, NoReturn

MARKERS = "/opt/sparkops/mods"  # a test gives another directory as the first argument


class Edit(NamedTuple):
    """Replace `old`, which stands in the file exactly once. `fixed` is how upstream mended it, where it did."""

    old: str
    new: str
    fixed: str = ""


def rewrite(package: str, file: str, *edits: Edit) -> None:
    """Apply each edit to a file of an installed package, then leave the marker."""
    path = directory(package) / file
    if not path.is_file():
        conflict(path, "the file itself")
    before = text = path.read_text(encoding="utf-8")
    for edit in edits:
        text = apply(path, text, edit)
    if text != before:
        path.write_text(text, encoding="utf-8")
        py_compile.compile(str(path), doraise=True)
    finish("applied" if text != before else "already there")


def apply(path: Path, text: str, edit: Edit) -> str:
    """The text with the edit in it; the same text where it is there already."""
    if edit.new in text or (edit.fixed and edit.fixed in text):
        return text
    if text.count(edit.old) != 1:
        conflict(path, f"exactly one time:\n{edit.old}")
    return text.replace(edit.old, edit.new)


def directory(package: str) -> Path:
    """Where a package is installed. It is not imported: that may need what the mod is about to mend."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        conflict(Path(package), "an installed package of that name")
    return Path(spec.origin).parent


def finish(outcome: str) -> None:
    """Leave the marker of the running mod."""
    mod = Path(sys.argv[0])
    marker = {"name": mod.stem, "outcome": outcome, "sha256": hashlib.sha256(mod.read_bytes()).hexdigest()}
    markers = Path(sys.argv[1] if len(sys.argv) > 1 else MARKERS)
    markers.mkdir(parents=True, exist_ok=True)
    (markers / f"{mod.stem}.json").write_text(json.dumps(marker) + "\n", encoding="utf-8")
    print(f"{mod.stem}: {outcome}")


def conflict(path: Path, expected: str) -> NoReturn:
    """End the build, naming the file and what was expected in it."""
    sys.exit(f"{Path(sys.argv[0]).stem}: conflict in {path}: expected {expected}")
