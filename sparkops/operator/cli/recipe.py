"""The verbs recipe show and recipe schema."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated

import typer
import yaml
from pydantic import BaseModel

from sparkops.config import files
from sparkops.config.inventory import Inventory
from sparkops.config.recipe import Recipe
from sparkops.config.recipe_file import load
from sparkops.config.reference import DocumentedSchema, as_model, reference
from sparkops.errors import UsageError
from sparkops.operator.cli.named import find_recipe
from sparkops.operator.cli.options import JSON, RECIPE
from sparkops.operator.cli.terminal import data, data_json, write
from sparkops.operator.status.picture import Status


def show(
    recipe: RECIPE,
    source: Annotated[bool, typer.Option("--source", help="Print the file as it is, with its comments")] = False,
    json: JSON = False,
) -> None:
    """Print a recipe with all defaults

    With --source, the file itself, such as the start of a recipe of your own in ./recipes.

    Example: sparkops recipe show 122b-autoround
    """
    if source and json:
        raise UsageError("--source: not with --json: it prints the file as it is", next_step="Leave out one of them.")
    file = find_recipe(recipe)
    values = load(file).model_dump(mode="json", exclude_none=True)
    if source:
        data(files.text(file).rstrip("\n"))
    elif json:
        data_json(values)
    else:
        data(yaml.safe_dump(values, sort_keys=False, width=110).rstrip())


def schema(
    of: Annotated[str, typer.Argument(metavar="NAME", help="recipe, inventory or status")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a reference in Markdown instead")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE")] = None,
) -> None:
    """Print a JSON Schema

    Describes a recipe, an inventory or the output of `status --json`.

    Example: sparkops recipe schema recipe -o recipe.schema.json
    """
    models: dict[str, type[BaseModel]] = {"recipe": Recipe, "inventory": Inventory, "status": as_model(Status)}
    if of not in models:
        raise UsageError(f"unknown schema {of}, expected one of: {', '.join(models)}")
    model = models[of]
    json_schema = model.model_json_schema(schema_generator=DocumentedSchema)
    text = reference(model) if markdown else dumps(json_schema, indent=2) + "\n"
    if output:
        write(output, text)
    else:
        data(text.removesuffix("\n"))
