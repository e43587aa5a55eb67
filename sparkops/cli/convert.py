"""The verb import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
import yaml

from sparkops.cli.options import JSON
from sparkops.cli.terminal import data, data_json, say, write
from sparkops.command import quote
from sparkops.config import source
from sparkops.config.fields import as_name
from sparkops.config.recipe import Recipe
from sparkops.convert import importing
from sparkops.convert.conversion import Conversion
from sparkops.errors import ConfigError, UsageError


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Recipe of spark-vllm-docker (version 1) or sparkrun (version 2)")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; default: stdout")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="KEY", help="Import although KEY is missing (repeatable)")
    ] = None,
    json: JSON = False,
) -> None:
    """Convert a spark-vllm-docker or sparkrun recipe

    Lists the settings that have no equivalent. A recipe that cannot start is refused; with --without KEY it is imported
    without that flag or key, and the file states the loss.

    Exit code 2 if it is refused.

    Example: sparkops import their-recipe.yaml -o recipes/mine.yaml
    """
    read = importing.read(file)
    name = as_name((output or file).stem)
    if output and output.name != f"{name}.yaml":
        raise UsageError(
            f"{output}: a recipe's file has its name: expected {name}.yaml",
            next_step=f"-o {output.parent}/{name}.yaml",
        )
    made = importing.carry(read, file.read_text(encoding="utf-8"), name, without or ())
    _refuse(made)
    source.validate(source.Source(file, made.data, made.lines), Recipe)
    text = _text(made)
    if output:
        write(output, text)
        say(f"wrote {output}", fg="green")
    for left in made.omissions:
        say(f"{file}:{left.line}: {left.key}: not carried over: {left.why}", fg="yellow")
    for key, why in made.guessed.items():
        say(f"{key}: {why}")
    if json:
        left_json = [{"line": left.line, "key": left.key, "why": left.why} for left in made.omissions]
        data_json({"recipe": made.data, "not_carried_over": left_json, "guessed": made.guessed})
    elif not output:
        data(text.rstrip())


def _refuse(made: Conversion) -> None:
    """Report every part without which the engine would not start. Raises ConfigError for the first one."""
    if not made.refusals:
        return
    errors = [ConfigError(made.source.file, left.line, left.key, left.why) for left in made.refusals]
    for error in errors[1:]:
        say(f"sparkops: {error}", fg="red")
    if not any(left.final for left in made.refusals):
        keys = (word for left in made.refusals for word in ("--without", left.key))
        errors[0].next_step = f"Import without it: {quote('sparkops', 'import', str(made.source.file), *keys)}"
    raise errors[0]


def _text(made: Conversion) -> str:
    """Return the recipe with a comment at each guess, and in the place of each missing part."""
    lines = [f"# Imported from {made.source.file.name}. Check what is guessed, and what `sparkops import` left out."]
    for key, value in made.data.items():
        if key in made.guessed:
            lines.append(f"# {made.guessed[key]}")
        dumped = yaml.safe_dump({key: value}, sort_keys=False, width=110, allow_unicode=True).rstrip().splitlines()
        lines += [dumped[0], *_missing(made, key), *dumped[1:]]
    return "\n".join(lines) + "\n"


def _missing(made: Conversion, section: str) -> list[str]:
    """Return a comment for each part of a section that is missing."""
    return [
        f"  # not carried over (line {left.line} of {made.source.file.name}): {' '.join(left.key.split())}: {left.why}"
        for left in made.losses
        if left.section == section
    ]
