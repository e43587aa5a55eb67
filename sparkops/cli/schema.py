"""The verb schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel

from sparkops.cli.terminal import data, write
from sparkops.config.inventory import Inventory
from sparkops.config.recipe import Recipe
from sparkops.config.reference import DocumentedSchema, as_model, reference
from sparkops.errors import UsageError
from sparkops.status.picture import Status


def schema(
    of: Annotated[str, typer.Argument(metavar="NAME", help="recipe, inventory or status")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a reference in Markdown instead")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE")] = None,
) -> None:
    """Print a JSON Schema

    Describes a recipe, an inventory or the output of `status --json`.

    Example: sparkops schema recipe -o recipe.schema.json
    """
    models: dict[str, type[BaseModel]] = {"recipe": Recipe, "inventory": Inventory, "status": as_model(Status)}
    if of not in models:
        raise UsageError(f"unknown schema {of}, expected one of: {', '.join(models)}")
    model = models[of]
    json_schema = model.model_json_schema(schema_generator=DocumentedSchema)
    text = reference(model) if markdown else json.dumps(json_schema, indent=2) + "\n"
    if output:
        write(output, text)
    else:
        data(text.removesuffix("\n"))
