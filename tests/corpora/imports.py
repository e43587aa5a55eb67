"""Import every recipe in folders: `python -m tests.corpora.imports FOLDER...` prints a table and its counts.

--mods CHECKOUT is that of `sparkops import`.

A recipe is a YAML file in the format of spark-vllm-docker, sparkrun or vllm-project/recipes; a folder may be a
checkout. Nothing is written.
"""

from __future__ import annotations

import argparse
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sparkops.config import source
from sparkops.config.recipe import Recipe
from sparkops.convert import other_tools
from sparkops.convert.conversion import Choices
from sparkops.errors import ConfigError

THEIRS = ("recipe_version", "runtime", "command", "defaults", "container")
VLLM_PROJECT = ("meta", "model", "variants")


class Row(NamedTuple):
    """The outcome of one recipe: imported, refused, or another engine."""

    file: Path
    result: str
    reasons: tuple[str, ...]
    losses: tuple[str, ...]


def recipes(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the recipes in folders by name; of files with the same content only the first."""
    taken: set[str] = set()
    for folder in folders:
        for file in sorted((*folder.rglob("*.yaml"), *folder.rglob("*.yml"))):
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            if digest not in taken and is_recipe(content):
                taken.add(digest)
                yield file


def is_recipe(content: bytes) -> bool:
    """Return whether a file has the keys of a recipe. A file that YAML cannot read has them as text."""
    try:
        data: Any = yaml.load(content, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        return sum(f"\n{key}:".encode() in content for key in THEIRS) > 1
    if not isinstance(data, dict):
        return False
    return sum(key in data for key in THEIRS) > 1 or all(key in data for key in VLLM_PROJECT)


def row(file: Path, mods: Path | None) -> Row:
    """Return the outcome of one recipe, with what is lost or the reasons of the refusal. `mods`: as of --mods."""
    try:
        conversion = other_tools.convert(
            other_tools.read(file), file.read_text(errors="replace"), "recipe", Choices(mods=mods)
        )
        reasons = tuple(f"{refusal.line}: {refusal.key}: {refusal.reason}" for refusal in conversion.refusals)
        if not reasons:
            source.validate(source.Source(file, conversion.data, conversion.lines), Recipe)
    except ConfigError as error:
        reason = " ".join(str(error).removeprefix(f"{file}:").split())
        return Row(file, "other engine" if "expected a vLLM runtime" in reason else "refused", (reason,), ())
    losses = tuple(f"{loss.line}: {loss.key}" for loss in conversion.losses)
    return Row(file, "refused" if reasons else "imported", reasons, losses)


def cause(reason: str) -> str:
    """Return the key of a reason without its line and value."""
    _, _, rest = reason.partition(": ")
    key = rest.partition(":")[0].split()
    return key[0] if key else reason


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--mods", type=Path)
    options = parser.parse_args()
    rows = [row(file, options.mods) for file in recipes(options.folders)]
    print("| recipe | result | reasons, or settings that are not imported |\n| --- | --- | --- |")
    for one in rows:
        print(f"| {one.file} | {one.result} | {'; '.join(one.reasons or one.losses).replace('|', '/')} |")
    print()
    for result, count in Counter(one.result for one in rows).most_common():
        print(f"{result}: {count} of {len(rows)}")
    causes = Counter(key for one in rows if one.result == "refused" for key in {cause(why) for why in one.reasons})
    for key, count in causes.most_common():
        print(f"  refused for {key}: {count}")


if __name__ == "__main__":
    main()
