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
        list[str] | None, typer.Option("--without", metavar="KEY", help="Import without KEY (repeatable)")
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
            f"{output}: the file name differs from the recipe's: expected {name}.yaml",
            next_step=f"-o {output.parent}/{name}.yaml",
        )
    carried = importing.carry(read, file.read_text(encoding="utf-8"), name, without or ())
    _refuse(carried)
    source.validate(source.Source(file, carried.data, carried.lines), Recipe)
    text = _text(carried)
    if output:
        write(output, text)
        say(f"wrote {output}", fg="green")
    for part in carried.omissions:
        say(f"{file}:{part.line}: {part.key}: not carried over: {part.why}", fg="yellow")
    for key, why in carried.guessed.items():
        say(f"{key}: {why}")
    if json:
        rows = [{"line": part.line, "key": part.key, "why": part.why} for part in carried.omissions]
        data_json({"recipe": carried.data, "not_carried_over": rows, "guessed": carried.guessed})
    elif not output:
        data(text.rstrip())


def _refuse(carried: Conversion) -> None:
    """Report every part without which the engine would not start. Raises ConfigError for the first one."""
    if not carried.refusals:
        return
    errors = [ConfigError(carried.source.file, part.line, part.key, part.why) for part in carried.refusals]
    for error in errors[1:]:
        say(f"sparkops: {error}", fg="red")
    if not any(part.final for part in carried.refusals):
        keys = (word for part in carried.refusals for word in ("--without", part.key))
        errors[0].next_step = f"Import without it: {quote('sparkops', 'import', str(carried.source.file), *keys)}"
    raise errors[0]


def _text(carried: Conversion) -> str:
    """Return the recipe with a comment at each guess, and in the place of each missing part."""
    name = carried.source.file.name
    lines = [f"# Imported from {name}. Check the guessed values and the settings that were not imported."]
    for section, value in carried.data.items():
        if section in carried.guessed:
            lines.append(f"# {carried.guessed[section]}")
        head, *rest = yaml.safe_dump({section: value}, sort_keys=False, width=110, allow_unicode=True).splitlines()
        missing = (part for part in carried.losses if part.section == section)
        comments = (f"(line {part.line} of {name}): {' '.join(part.key.split())}: {part.why}" for part in missing)
        lines += [head, *(f"  # not carried over {comment}" for comment in comments), *rest]
    return "\n".join(lines) + "\n"
