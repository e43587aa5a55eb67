"""Choose files for the corpus: `python -m tests.lab.corpora.collect CLONES` prints one line for each.

CLONES is a directory of bare git clones, OWNER+NAME/repo each; every recipe of them is taken once.
docs/evidence has those that were chosen on 22 November 2026; `recorded` reads them again.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

RECIPE = re.compile(r"(?!.*(\.sparkrun|benchmark)).*recipe.*\.ya?ml")
THEIRS = re.compile(rb"^(recipe_version|runtime|command|defaults|container):", re.MULTILINE)


class Entry(NamedTuple):
    """A file of the corpus."""

    kind: str
    repository: str
    path: str
    commit: str
    sha256: str


def git(clone: Path, *argv: str) -> bytes:
    return subprocess.run(["git", "--git-dir", str(clone), *argv], capture_output=True, check=True).stdout


def entries(clones: Path) -> Iterator[tuple[Entry, bytes]]:
    """Yield every file with its content, once by content."""
    taken: set[str] = set()
    for clone in sorted(clones.glob("*+*/repo")):
        repository = clone.parent.name.replace("+", "/", 1)
        commit = git(clone, "rev-parse", "HEAD").decode().strip()
        for path in git(clone, "ls-tree", "-r", "--name-only", "HEAD").decode().splitlines():
            if not RECIPE.fullmatch(path):
                continue
            content = git(clone, "show", f"HEAD:{path}")
            digest = hashlib.sha256(content).hexdigest()
            if digest not in taken and THEIRS.search(content):
                taken.add(digest)
                yield Entry("recipe", repository, path, commit, digest), content


def recorded(clones: Path, manifest: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Entry, bytes]]:
    """Yield every file of a manifest with its content at its commit. Raises ValueError if that is another content."""
    for entry in (Entry(**{key: line[key] for key in Entry._fields}) for line in manifest):
        clone = clones / entry.repository.replace("/", "+", 1) / "repo"
        content = git(clone, "show", f"{entry.commit}:{entry.path}")
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise ValueError(f"{entry.repository}: {entry.path}: not the content of the manifest")
        yield entry, content


if __name__ == "__main__":
    for entry, _ in entries(Path(sys.argv[1])):
        print(json.dumps(entry._asdict()))
