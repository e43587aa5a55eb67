"""What the mods share. A mod looks first, and ends in one of three outcomes: applied, already there, conflict.

A conflict ends the build: the installed package has a shape that the mod was not written for, and guessing would
make an image that fails much later. Every other outcome is left as a marker, which the image is asked for, and stands
in a label of the image then.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import py_compile
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

MARKERS = "/opt/sparkops/mods"  # a test gives another directory as the last argument


class Edit(NamedTuple):
    """Replace `old`, which stands in the file exactly once. `fixed` is how upstream mended it, where it did."""

    old: str
    new: str
    fixed: str = ""


def rewrite(package: str, file: str, *edits: Edit) -> None:
    """Apply each edit to a file of an installed package, then leave the marker."""
    change(directory(package), {file: edits})


def change(root: Path, edits: Mapping[str, Sequence[Edit]], added: Mapping[str, str] | None = None) -> None:
    """Apply the edits to files under `root`, add whole files, and leave the marker. A conflict leaves all as it was."""
    made = {root / file: edited(root / file, each) for file, each in edits.items()}
    made |= {root / file: new(root / file, text) for file, text in (added or {}).items()}
    changes = {path: text for path, text in made.items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in changes.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if path.suffix == ".py":
            py_compile.compile(str(path), doraise=True)
    finish("applied" if changes else "already there")


def edited(path: Path, edits: Sequence[Edit]) -> str:
    """The text of a file with the edits in it."""
    if not path.is_file():
        conflict(path, "the file itself")
    text = path.read_text(encoding="utf-8")
    for edit in edits:
        text = apply(path, text, edit)
    return text


def apply(path: Path, text: str, edit: Edit) -> str:
    """The text with the edit in it; the same text where it is there already."""
    shortens = edit.new in edit.old and edit.old in text  # what is left of it stands there before, too
    if (edit.new in text and not shortens) or (edit.fixed and edit.fixed in text):
        return text
    if text.count(edit.old) != 1:
        conflict(path, f"exactly one time:\n{edit.old}")
    return text.replace(edit.old, edit.new)


def new(path: Path, text: str) -> str:
    """The text of a file that must not be there yet, unless it is the same."""
    if path.exists() and path.read_text("utf-8") != text:
        conflict(path, "no such file, or the one that this mod writes")
    return text


def beside(file: str) -> str:
    """The text of a file in the directory that has the running mod's name."""
    return (Path(sys.argv[0]).with_suffix("") / file).read_text(encoding="utf-8")


def directory(package: str) -> Path:
    """Where a package is installed. It is not imported: that may need what the mod is about to mend."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        conflict(Path(package), "an installed package of that name")
    return Path(spec.origin).parent


def finish(outcome: str) -> None:
    """Leave the marker of the running mod."""
    mod = Path(sys.argv[0])
    marker = {"name": name(), "outcome": outcome, "sha256": hashlib.sha256(mod.read_bytes()).hexdigest()}
    markers = Path(sys.argv[1] if len(sys.argv) > 1 else MARKERS)
    markers.mkdir(parents=True, exist_ok=True)
    (markers / f"{name()}.json").write_text(json.dumps(marker) + "\n", encoding="utf-8")
    print(f"{name()}: {outcome}")


def name() -> str:
    """What a recipe calls the running mod."""
    mod = Path(sys.argv[0])
    return mod.stem if mod.suffix == ".py" else mod.name


def conflict(path: Path, expected: str) -> NoReturn:
    """End the build, naming the file and what was expected in it."""
    sys.exit(f"{name()}: conflict in {path}: expected {expected}")
