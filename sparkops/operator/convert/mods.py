"""Mods of spark-vllm-docker that lie beside a recipe: the files that their run.sh copies, and the diffs it applies."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from posixpath import basename

from sparkops.command import unquote
from sparkops.config import files
from sparkops.errors import ConfigError

WORKSPACE = re.compile(r"\$\{?WORKSPACE_DIR\}?/?|/workspace/")
"""Where the server starts in the original's container, so that its flags may name files there."""
CONTENT = re.compile(r"/workspace/mod-content/")
"""Where a fork of spark-vllm-docker puts the files of a mod."""
OWN_DIRECTORY = re.compile(r""""?\$\(cd "\$\(dirname "\$\{BASH_SOURCE\[0\]\}"\)" && pwd\)"?""")
"""A script's own directory, as in `MOD_DIR="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"`."""
ASSIGNED = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)=(?P<value>\S.*)")
VARIABLE = re.compile(r"\$(?:(?P<name>\w+)|\{(?P<braced>\w+)(?::-(?P<default>[^{}]*))?\})")
STARTS = {"PWD": "$WORKSPACE_DIR", "WORKSPACE_DIR": "$WORKSPACE_DIR"}
"""Variables of a script at its start: it runs in the workspace."""
TEMPLATE = ".jinja"
SCRIPT = "run.sh"
NOT_READ = {errno.ELOOP, errno.EFBIG, errno.EACCES}
"""Why a file of a checkout is an error, instead of one that is not there."""
LIBRARY = re.compile(r"/.*/(dist|site)-packages/?")
HUB = re.compile(r"https://huggingface\.co/(?P<model>[^/]+/[^/]+)/resolve/[^/]+/(?P<file>[^/?]+)")
MOST_LINES = 200
MOST_CHARACTERS, MOST_VARIABLES = 4096, 20
"""Limits for the value of a variable in a script, and for the variables of a line."""


@dataclass
class Mod:
    """A mod of the original.

    `copied` are files by their name in the container's workspace, `fetched` those that it downloads from a model's
    repository: its name by file. `patches` are diffs of installed packages that must apply, `optional` names those that
    are skipped where they do not. `whole`: nothing else is in run.sh, whose text is `script`.
    """

    name: str
    script: str = ""
    copied: dict[str, bytes] = field(default_factory=dict)
    fetched: dict[str, str] = field(default_factory=dict)
    patches: dict[str, bytes] = field(default_factory=dict)
    optional: list[str] = field(default_factory=list)
    whole: bool = False


@dataclass(frozen=True)
class Folder:
    """A directory of a checkout: `root` is the operator's choice, `inside` and all links there its author's."""

    root: Path
    inside: PurePosixPath = field(default_factory=PurePosixPath)

    @property
    def path(self) -> Path:
        """The directory itself."""
        return self.root / self.inside

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.root, self.inside / name)

    def read(self, name: str, most: int = files.MOST) -> bytes | None:
        """Return the content of a file; None if there is none, or for a path that leaves the checkout.

        Raises ConfigError for one that is not read, such as a symbolic link, whose target may be the operator's own.
        """
        try:
            return files.inside(self.root, self.inside / name, most)
        except OSError as error:
            if error.errno in NOT_READ:
                refused = ConfigError(self.path / name, 1, "", f"cannot be read: {error.strerror}")
                refused.next_step = (
                    "Read it, then replace a link by a copy of its target." if error.errno == errno.ELOOP else ""
                )
                raise refused from None
            return None


def tree(recipe: Path) -> list[Folder]:
    """Return the directories that belong to a recipe, from its own up to the root of its checkout.

    Without a repository the root is the directory that holds the one with the recipes, such as `recipes` or
    `official-recipes`, else the recipe's own: files outside of it are not part of what was published.
    """
    parents = [*Path(os.path.normpath(recipe.absolute())).parents]
    root = next((n for n, directory in enumerate(parents) if (directory / ".git").exists()), None)
    if root is None:
        root = next((n + 1 for n, directory in enumerate(parents[:-1]) if directory.name.endswith("recipes")), 0)
    top = parents[root]
    return [Folder(top, PurePosixPath(directory.relative_to(top))) for directory in parents[: root + 1]]


def find(recipe: Path, named: str, folder: Path | None) -> Folder | None:
    """Return the directory of a mod: in the tree of the recipe, or in `folder`; None if there is none.

    `folder` is another checkout, or its directory mods. sparkrun leaves `mods/` out, and may put @REGISTRY before.
    """
    named = named.rstrip("/")
    if not named or named.startswith("/") or ".." in PurePosixPath(named).parts:
        return None
    bases = [*tree(recipe), *([Folder(folder)] if folder else [])]
    places = (named, basename(named), f"mods/{basename(named)}")
    candidates = (base / place for base in bases for place in places)
    return next((candidate for candidate in candidates if candidate.read(SCRIPT) is not None), None)


def read(directory: Folder) -> Mod:
    """Return what a mod does. Raises ConfigError for a file that cannot be read."""
    mod = Mod(directory.inside.name or directory.root.name, (directory.read(SCRIPT) or b"").decode(errors="replace"))
    lines = _lines(mod.script)
    understood = [_take(mod, directory, _words(line)) for line in lines]
    mod.whole = all(understood)
    for line in _expanded(lines):
        _take_template(mod, directory, _words(line.strip()))
    return mod


def _take_template(mod: Mod, directory: Folder, line: list[str]) -> bool:
    """Add the chat template that a line copies, wherever to: a flag names it by its last part. Returns whether."""
    match line:
        case ["cp", *_, source, target] if target.endswith(TEMPLATE):
            content = directory.read(CONTENT.sub("", source))
            mod.copied |= {basename(target): content} if content else {}
            return content is not None
        case _:
            return False


def _lines(script: str) -> list[str]:
    """Return the lines of a script that have a command."""
    lines = re.sub(r"\\\n", " ", script).splitlines()[:MOST_LINES]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _words(line: str) -> list[str]:
    """Return the words of a line; the line itself as one word where it has an open quote."""
    try:
        return unquote(line)
    except ValueError:
        return [line]


def _expanded(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines with the values of their variables that lines before assign, whatever condition these are in."""
    values = dict(STARTS)

    def value(match: re.Match[str]) -> str:
        known = values.get(match["name"] or match["braced"], match["default"])
        return match[0] if known is None else known

    for line in lines:
        expanded = VARIABLE.sub(value, OWN_DIRECTORY.sub(".", line), count=MOST_VARIABLES)
        if assigned := ASSIGNED.fullmatch(expanded):
            values[assigned["name"]] = assigned["value"].rstrip().strip("\"'")[:MOST_CHARACTERS]
        yield expanded


def _take(mod: Mod, directory: Folder, line: list[str]) -> bool:
    """Add what one line of run.sh does. Returns whether it is understood."""
    optional = "||" in line
    match line[: line.index("||")] if optional else line:
        case ["set" | "echo", *_]:
            return True
        case ["cd", place] if WORKSPACE.fullmatch(place + "/"):
            return True
        case ["cp", *_, source, target] if WORKSPACE.match(target) and (content := directory.read(source)):
            name = basename(WORKSPACE.sub("", target)) or basename(source)
            mod.copied[name] = content
            return True
        case ["wget", url] if found := HUB.fullmatch(url):
            mod.fetched[found["file"]] = found["model"]
            return True
        case ["patch", "-p1", "-d", place, "<", source] if LIBRARY.fullmatch(place) and (
            content := directory.read(source)
        ):
            if optional:
                mod.optional.append(source)
            else:
                mod.patches[basename(source)] = content
            return True
        case _:
            return _take_template(mod, directory, line)
    return False


def template(recipe: Path, value: str, mods: Mapping[str, Mod]) -> tuple[str, bytes] | None:
    """Return the name and content of the chat template that a flag names; None if it does not lie beside the recipe.

    The last mod that copies the file counts, then a file in the tree of the recipe.
    """
    name = basename(value)
    for mod in reversed([*mods.values()]):
        if name in mod.copied:
            return f"{mod.name}.jinja", mod.copied[name]
    relative = WORKSPACE.sub("", value)
    found = (content for base in tree(recipe) if (content := base.read(relative)))
    return next(((name, content) for content in found), None)
