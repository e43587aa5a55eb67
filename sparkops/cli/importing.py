"""import."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.terminal import data, data_json, say, write
from sparkops.errors import UsageError

if TYPE_CHECKING:
    from sparkops.config.importing import Carried


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command("import")(import_)


def import_(
    file: Annotated[Path, typer.Argument(help="A recipe of spark-vllm-docker (version 1) or sparkrun (version 2).")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The recipe's file; else stdout.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Turn a recipe of spark-vllm-docker or sparkrun into one of ours, and list what could not be carried over."""
    from sparkops.config import importing, source
    from sparkops.config.fields import as_name
    from sparkops.config.recipe import Recipe

    read = source.read(file)
    name = as_name((output or file).stem)
    if output and output.name != f"{name}.yaml":
        raise UsageError(
            f"{output}: a recipe's file is called as the recipe", next_step=f"-o {output.parent}/{name}.yaml"
        )
    made = importing.carry(read, file.read_text(encoding="utf-8"), name)
    source.validate(source.Source(output or file, made.data), Recipe)
    text = _text(made)
    if output:
        write(output, text)
        say(f"wrote {output}", fg="green")
    for left in made.left:
        say(f"{file}:{left.line}: {left.key}: not carried over: {left.why}", fg="yellow")
    for key, why in made.guessed.items():
        say(f"{key}: {why}")
    if json:
        left_json = [{"line": left.line, "key": left.key, "why": left.why} for left in made.left]
        data_json({"recipe": made.data, "not_carried_over": left_json, "guessed": made.guessed})
    elif not output:
        data(text.rstrip())


def _text(made: Carried) -> str:
    """The recipe with a comment at each guess."""
    import yaml

    lines = [f"# Imported from {made.source.file.name}. Check what is guessed, and what `sparkops import` left out."]
    for key, value in made.data.items():
        if key in made.guessed:
            lines.append(f"# {made.guessed[key]}")
        lines.append(yaml.safe_dump({key: value}, sort_keys=False, width=110, allow_unicode=True).rstrip())
    return "\n".join(lines) + "\n"
