"""Import every recipe of repositories: `python -m tests.lab.corpora.imports CLONES` writes docs/evidence/imports.md.

CLONES is a directory of bare git clones, OWNER+NAME/repo each, as of tests.lab.corpora.collect. A recipe is a YAML file
in the format of spark-vllm-docker, sparkrun or vllm-project/recipes, the same content counts once, and each named
variant counts as one. It lies beside its own mods; others come from --mods OWNER+NAME, a checkout of
spark-vllm-docker. The parser of the release that an import pins judges its arguments (tests/lab/arguments/scratch.py).
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from sparkops.config import source
from sparkops.config.image import CHAT_TEMPLATES
from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError
from sparkops.operator.build.images.arguments import command_lines
from sparkops.operator.convert import other_tools
from sparkops.operator.convert.conversion import Choices, Conversion
from sparkops.operator.convert.releases import RELEASES
from tests.lab.arguments import scratch
from tests.lab.corpora.command_builder import variants
from tests.lab.gpu.evidence import cell
from tests.lab.wheels import remote
from tests.places import ROOT

PAGE = ROOT / "docs/evidence/imports.md"
THEIRS = ("recipe_version", "runtime", "command", "defaults", "container")
VLLM_PROJECT = ("meta", "model", "variants")
OTHER_ENGINE = "other engine"
ANOTHER = re.compile(r"expected a (vLLM runtime|runtime of vLLM or SGLang)")
IMAGE = "registry.example/of-the-original:latest"
HEAD = """# Imports of public recipes

Written on {day} by `python -m tests.lab.corpora.imports`. Files with the same content count once, and each named
variant (of vllm-project: for a DGX Spark) counts as one. `--mods` was given, a checkout of spark-vllm-docker. Refused
ones were imported again with `--use`, which leaves flags of forks to the parser of a finished image.

"Its own parser" is that of the vLLM which the new recipe pins, from the wheel for arm64. A recipe for a finished image
has no such version: the parser of that image judges it when it starts. Whether a model loads is not part of this.

{counts}
"""


class Row(NamedTuple):
    """The outcome of one recipe: imported, refused, or another engine; `new` is the recipe, if it is imported."""

    name: str
    result: str
    reasons: tuple[str, ...]
    new: Recipe | None = None
    with_image: str = ""
    """The outcome with --use."""
    files: Mapping[str, bytes] = MappingProxyType({})
    """The mods of the new recipe, by the name of the file."""


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
    if all(key in data for key in VLLM_PROJECT):
        hardware = (data["meta"] or {}).get("hardware") or {}
        return "dgx_spark_gb10" in hardware
    return sum(key in data for key in THEIRS) > 1


def row(file: Path, name: str, choices: Choices) -> Row:
    """Return the outcome of one recipe."""
    try:
        conversion: Conversion = other_tools.convert(
            other_tools.read(file), file.read_text(errors="replace"), "recipe", choices
        )
        reasons = tuple(f"{refusal.line}: {refusal.key}: {refusal.reason}" for refusal in conversion.refusals)
        if reasons:
            return Row(name, "refused", reasons)
        new = source.validate(source.Source(file, conversion.data, conversion.lines), Recipe)
    except ConfigError as error:
        reason = " ".join(str(error).removeprefix(f"{file}:").split())
        return Row(name, OTHER_ENGINE if ANOTHER.search(reason) else "refused", (reason,))
    return Row(name, "imported", (), new, files=conversion.files)


def rows(folder: Path, mods: Path | None) -> Iterator[Row]:
    """Yield the outcome of each recipe and variant in a folder of checkouts."""
    for file in recipes([folder]):
        name = str(file.relative_to(folder)).replace("+", "/", 1)
        for variant in variants(file) or [""]:
            choices = Choices(mods=mods, variant=variant)
            one = row(file, f"{name}, {variant}" if variant else name, choices)
            with_image = row(file, name, replace(choices, use=IMAGE)) if one.result == "refused" else one
            yield one._replace(with_image=with_image.result)


def cause(reason: str) -> str:
    """Return the key of a reason without its line and value."""
    _, _, rest = reason.partition(": ")
    key = rest.partition(":")[0].split()
    return key[0] if key else reason


def command(recipe: Recipe, files: Mapping[str, bytes], folder: Path) -> list[list[str]]:
    """Return the command line of each rank, with the chat templates of the image written to a folder instead."""
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [[word.replace(f"{CHAT_TEMPLATES}/", f"{folder}/") for word in words] for words in command_lines(recipe)]


def judged(imported: Iterable[Row], folder: Path) -> dict[str, str]:
    """Return what the parser of its own vLLM reports of each imported recipe; empty if it accepts it."""
    by_release: dict[str, dict[str, list[list[str]]]] = {release.image["vllm"]: {} for release in RELEASES}
    for one in imported:
        if one.new and one.new.image.vllm:
            by_release[one.new.image.vllm][one.name] = command(one.new, one.files, folder / one.name)
    problems: dict[str, str] = {}
    for requirement, lines in by_release.items():
        if wheel := remote.find(requirement, "aarch64"):
            problems |= scratch.judge(wheel, lines)["problems"] if lines else {}
    return problems


def checkouts(clones: Path, into: Path) -> dict[str, str]:
    """Write the files of each clone's newest commit, and return the commits with their days by repository."""
    commits = {}
    for clone in sorted(clones.glob("*+*/repo")):
        git = ["git", "--git-dir", str(clone)]
        folder = into / clone.parent.name
        folder.mkdir()
        for suffix in ("*.yaml", "*.yml", "*.jinja", "*run.sh", "*.diff", "*.patch"):
            archive = ["archive", "--format=tar", "HEAD", f":(glob)**/{suffix}"]
            packed = subprocess.run([*git, *archive], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
            if packed.returncode == 0:
                (into / "packed.tar").write_bytes(packed.stdout)
                with tarfile.open(into / "packed.tar") as opened:
                    opened.extractall(folder, filter="data")
        shown = subprocess.run([*git, "log", "-1", "--format=%H %cs"], capture_output=True, text=True, check=True)
        commits[clone.parent.name.replace("+", "/", 1)] = shown.stdout.strip()
    return commits


def page(found: list[Row], problems: Mapping[str, str], commits: Mapping[str, str]) -> str:
    """Return the page: counts, causes, repositories, and a line for each recipe."""
    ours = [one for one in found if one.result != OTHER_ENGINE]
    imported = [one for one in ours if one.result == "imported"]
    accepted = sum(not problems[one.name] for one in imported if one.name in problems)
    finished = sum(one.new is not None and one.new.image.use is not None for one in imported)
    used = sum(one.with_image == "imported" for one in ours)
    refused = [one for one in ours if one.result == "refused"]
    counts = (
        f"{len(found)} recipes, {len(ours)} of them for vLLM or SGLang: {len(imported)} imported "
        f"({len(imported) / len(ours):.0%}), {len(refused)} refused. Of those imported, {finished} are for a finished "
        f"image, and {accepted} of the {len(problems)} others are accepted by their own parser. With `--use` and the "
        f"original's image, {used} ({used / len(ours):.0%}) are imported."
    )
    causes = Counter(key for one in refused for key in {cause(why) for why in one.reasons})
    lines = [HEAD.format(day=f"{datetime.now(UTC):%-d %B %Y}", counts=counts)]
    lines += ["| refused for | recipes |", "| --- | --- |", *(f"| {key} | {n} |" for key, n in causes.most_common())]
    lines += ["", "| repository | commit | day |", "| --- | --- | --- |"]
    lines += [f"| {name} | {' | '.join(commit.split())} |" for name, commit in commits.items()]
    lines += ["", "| recipe | result | own parser | with `--use` | reasons |", "| --- | --- | --- | --- | --- |"]
    for one in found:
        parser = (problems[one.name] or "accepted") if one.name in problems else "-"
        parts = (one.name, one.result, parser, one.with_image, "; ".join(one.reasons) or "-")
        lines.append(f"| {' | '.join(map(cell, parts))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("clones", type=Path)
    parser.add_argument("--mods", metavar="OWNER+NAME")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        commits = checkouts(options.clones, folder)
        found = list(rows(folder, folder / options.mods if options.mods else None))
        PAGE.write_text(page(found, judged((one for one in found if one.new), folder / "templates"), commits))


if __name__ == "__main__":
    main()
