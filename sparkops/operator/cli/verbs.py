"""The verbs, each imported when it is called: help and completion of names need this table alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sparkops import __version__


def light(options: list[Any]) -> list[Any]:
    """Read the global options without pydantic, which Typer's conversion imports, and show arguments by name alone."""
    for option in options:
        if option.param_type_name == "argument":
            option.display_type_rich = lambda **_: ""
            option.get_usage_pieces = partial(_usage, option)
        elif option.name == "inventory":
            option.process_value = lambda _, value: Path(value)
        elif option.name in ("help", "install_completion", "show_completion"):
            option.default = False  # Typer converts None
    return options


def _usage(argument: Any, _: Any) -> list[str]:
    """Return an argument as the usage line has it: NAME, [NAME] or [NAME...]."""
    name = argument.metavar if argument.nargs == 1 else f"{argument.metavar}..."
    return [name if argument.required else f"[{name}]"]


class LightCommand(TyperCommand):
    """A verb that imports pydantic only for options that need it: `status` connects without."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the verb."""
        return light(super().get_params(ctx))


@dataclass(frozen=True)
class Verb:
    """Module and attribute of a verb, a function or a Typer, and its line of `--help`."""

    module: str
    attribute: str
    help: str

    def load(self, name: str) -> TyperCommand | TyperGroup:
        """Import the module and return the verb as a command."""
        family = getattr(import_module(f"sparkops.operator.cli.{self.module}"), self.attribute)
        if not isinstance(family, typer.Typer):
            verb, family = family, typer.Typer(add_completion=False, rich_markup_mode=None)
            family.command(name)(verb)
        for registered in family.registered_commands:
            registered.cls = LightCommand
        command = typer.main.get_command(family)
        assert isinstance(command, TyperCommand | TyperGroup)  # noqa: S101 - Typer makes no other
        return command


GROUPS: Mapping[str, Mapping[str, Verb]] = {
    "Start": {
        "demo": Verb("demo", "demo", "Try a swap under load on this machine"),
        "init": Verb("init", "init", "Create an inventory file"),
        "trust": Verb("trust", "trust", "Pin the nodes' SSH host keys"),
        "doctor": Verb("doctor", "doctor", "Check nodes and their network"),
        "recipes": Verb("recipes", "recipes", "List recipes by service"),
        "show": Verb("recipes", "show", "Print a recipe with all defaults"),
        "import": Verb("convert", "import_", "Convert a recipe of another tool"),
        "schema": Verb("recipes", "schema", "Print a JSON Schema"),
    },
    "Build": {
        "models": Verb("models", "family", "Manage model weights on the nodes"),
        "lock": Verb("lock", "lock", "Pin base image, packages, mods and models"),
        "build": Verb("images", "build", "Build and verify an image on its nodes"),
        "images": Verb("images", "family", "Manage images on the nodes"),
        "render": Verb("recipes", "render", "Render recipes to Dockerfiles"),
    },
    "Deploy": {
        "fit": Verb("deploy", "fit", "Predict a recipe's memory use on its nodes"),
        "plan": Verb("deploy", "plan", "Preview a deploy"),
        "up": Verb("deploy", "up", "Build, download and deploy what is missing"),
        "deploy": Verb("deploy", "deploy", "Deploy a recipe and verify its answers"),
        "promote": Verb("swap", "promote", "Keep a release deployed with --no-promote"),
        "rollback": Verb("swap", "rollback", "Return to the previous release"),
        "cancel": Verb("swap", "cancel", "Cancel an unfinished swap"),
        "stop": Verb("swap", "stop", "Stop a service"),
    },
    "Observe": {
        "status": Verb("status", "status", "Show nodes, services and releases"),
        "follow": Verb("swap", "follow", "Follow a swap or stop in progress"),
        "logs": Verb("logs", "logs", "Show a service's logs"),
        "history": Verb("swap", "history", "Show past events"),
        "monitoring": Verb("monitoring", "monitoring", "Write files for Prometheus and Grafana"),
        "probe": Verb("probe", "probe", "Run the smoke suite on a running service"),
    },
    "Maintain": {
        "gateway": Verb("gateway", "family", "Manage the gateway"),
        "node": Verb("node", "family", "Take a node out of service, and back"),
        "hold": Verb("swap", "hold", "Block changes to a service"),
        "unhold": Verb("swap", "unhold", "Remove a hold"),
        "prune": Verb("prune", "prune", "Remove unused containers, images and caches"),
        "uninstall": Verb("prune", "uninstall", "Remove everything of sparkops from a node"),
    },
}
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
WIDTH = max(map(len, VERBS))


class Verbs(TyperGroup):
    """The group of all verbs."""

    def __init__(self, *, commands: Mapping[str, Any], **attributes: Any) -> None:
        lines = {name: TyperCommand(name, help=verb.help, rich_markup_mode=None) for name, verb in VERBS.items()}
        super().__init__(commands={**lines, **commands}, **attributes)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of all verbs."""
        return light(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of all verbs. --version ends the program here, as it needs --inventory wherever it is."""
        rest: list[str] = super().parse_args(ctx, args)
        if ctx.params.get("version") and not ctx.resilient_parsing:
            typer.echo(f"sparkops {__version__}")
            ctx.exit()
        return rest

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name, the imported command and its arguments. Raises click's UsageError for an unknown name."""
        name, command, rest = super().resolve_command(ctx, args)
        verb = VERBS.get(name or "")
        return name, verb.load(name or "") if verb else command, rest

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        """Write the lines of all verbs by group, none cut off."""
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(WIDTH), verb.help) for name, verb in group.items()])
