"""The verbs, each imported when it is called: help and completion of names need this table alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from sparkops import __version__
from sparkops.command import quote
from sparkops.errors import UsageError
from sparkops.names import did_you_mean
from sparkops.operator.cli.described import ASKED, Described
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.terminal import show_commands

GLOBAL = ("inventory", "no_color", "verbose")
"""Names of the options that may stand before the verb or after it."""


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


def settle(context: Any, *, inventory: Path | None, no_color: bool, verbose: bool) -> None:
    """Let global options take effect, those before the verb and then those after it."""
    if no_color:
        os.environ["NO_COLOR"] = "1"
        context.color = False
    known: Settings = context.obj or Settings()
    if verbose and not known.verbose:
        context.call_on_close(show_commands())
    context.obj = Settings(inventory or known.inventory, known.verbose or verbose)


def everywhere(context: Any) -> list[Any]:
    """Return the global options for a place after the verb, where the help does not repeat them."""
    root = context.find_root().command
    return [_after(option) for option in root.params if option.name in GLOBAL] if isinstance(root, Verbs) else []


def _after(option: Any) -> Any:
    """Return a copy of a global option that takes effect when it is given."""
    later = copy(option)
    later.hidden, later.expose_value, later.envvar, later.default = True, False, None, None
    later.process_value = partial(_settle, option.name)
    return later


def _settle(name: str, context: Any, value: Any) -> Any:
    if value and not context.resilient_parsing:
        file = Path(value) if name == "inventory" else None
        settle(context, inventory=file, no_color=name == "no_color", verbose=name == "verbose")
    return value


class LightCommand(TyperCommand):
    """A verb that imports pydantic only for options that need it: `status` connects without."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the verb, and the global ones."""
        return [*light(super().get_params(ctx)), *everywhere(ctx)]


@dataclass(frozen=True)
class Verb:
    """Module and attribute of a verb, and its line of `--help`."""

    module: str
    attribute: str
    help: str

    def load(self, name: str) -> TyperCommand:
        """Import the module and return the verb as a command."""
        family = typer.Typer(add_completion=False, rich_markup_mode=None)
        verb = getattr(import_module(f"sparkops.operator.cli.{self.module}"), self.attribute)
        family.command(name, cls=LightCommand)(verb)
        command = typer.main.get_command(family)
        assert isinstance(command, TyperCommand)  # noqa: S101 - Typer makes no other of one function
        return command


@dataclass(frozen=True)
class Family:
    """Verbs with a first word in common, and its line of `--help`."""

    help: str
    verbs: Mapping[str, Verb]

    def load(self, name: str) -> TyperGroup:
        """Return the family as a group, which imports none of its verbs."""
        return Group({"Commands": self.verbs}, name=name, help=self.help, no_args_is_help=True, rich_markup_mode=None)


GROUPS: Mapping[str, Mapping[str, Verb | Family]] = {
    "Start": {
        "demo": Verb("demo", "demo", "Try a swap under load on this machine"),
        "init": Verb("init", "init", "Create an inventory file"),
        "doctor": Verb("doctor", "doctor", "Check nodes and their network"),
        "recipes": Verb("recipes", "recipes", "List recipes"),
        "import": Verb("convert", "import_", "Convert a recipe of another tool"),
    },
    "Build": {
        "build": Verb("images", "build", "Build and verify an image on its nodes"),
        "models": Family(
            "Manage model weights on the nodes",
            {
                "list": Verb("models", "list_", "List models and their state"),
                "pull": Verb("models", "pull", "Download a recipe's weights to one node"),
                "copy": Verb("models", "copy", "Copy weights from one node to others"),
                "verify": Verb("models", "verify", "Check weights against the recipe"),
                "prepare": Verb("models", "prepare", "Build a derived model from its sources"),
            },
        ),
        "recipe": Family(
            "Print, render and lock recipes",
            {
                "show": Verb("recipe", "show", "Print a recipe with all defaults"),
                "render": Verb("render", "render", "Render recipes to Dockerfiles"),
                "lock": Verb("lock", "lock", "Pin base image, packages, mods and models"),
                "schema": Verb("recipe", "schema", "Print a JSON Schema"),
            },
        ),
    },
    "Deploy": {
        "fit": Verb("deploy", "fit", "Predict a recipe's memory use on its nodes"),
        "plan": Verb("deploy", "plan", "Preview a deploy"),
        "up": Verb("deploy", "up", "Build, download and deploy what is missing"),
        "deploy": Verb("deploy", "deploy", "Deploy a recipe and verify its answers"),
        "promote": Verb("swap", "promote", "Keep a release deployed with --no-promote"),
        "rollback": Verb("swap", "rollback", "End an unfinished swap, or return to the previous release"),
        "restart": Verb("swap", "restart", "Start a stopped service, or its release anew"),
        "stop": Verb("swap", "stop", "Stop a service"),
    },
    "Observe": {
        "status": Verb("status", "status", "Show nodes, services and releases"),
        "ui": Verb("ui", "ui", "Show the fleet on a page in the browser"),
        "logs": Verb("logs", "logs", "Show a service's logs"),
        "history": Verb("swap", "history", "Show past events"),
        "probe": Verb("probe", "probe", "Run the smoke suite on a running service"),
        "bench": Verb("bench", "bench", "Measure the speed of a service, and compare runs"),
        "monitoring": Verb("monitoring", "monitoring", "Write files for Prometheus and Grafana"),
    },
    "Maintain": {
        "gateway": Family(
            "Manage the gateway",
            {
                "move": Verb("gateway", "move_", "Move gateway and leader to NODE while the old ones answer"),
                "rebuild": Verb("gateway", "rebuild", "Rebuild gateway and leader on NODE after their node is lost"),
            },
        ),
        "node": Family(
            "Add, maintain and remove nodes",
            {
                "trust": Verb("trust", "trust", "Pin the nodes' SSH host keys"),
                "login": Verb("login", "log_in", "Log in to a registry on the nodes"),
                "cordon": Verb("node", "cordon", "Let nothing new start on NODE"),
                "uncordon": Verb("node", "uncordon", "Let releases start on NODE again"),
                "drain": Verb("node", "drain_", "Cordon NODE and move its services to other nodes"),
                "return": Verb("node", "return_", "Open NODE and bring its services back"),
                "uninstall": Verb("prune", "uninstall", "Remove everything of sparkops from a node"),
            },
        ),
        "hold": Verb("swap", "hold", "Block changes to a service"),
        "prune": Verb("prune", "prune", "Remove unused containers, images and caches"),
    },
}
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
LEAVES: Mapping[str, Verb] = {
    **{name: verb for name, verb in VERBS.items() if isinstance(verb, Verb)},
    **{
        f"{name} {inner}": of
        for name, one in VERBS.items()
        if isinstance(one, Family)
        for inner, of in one.verbs.items()
    },
}
"""Every verb that does something, by all of its words."""
RENAMED: Mapping[str, Sequence[str]] = {
    "benchmark": ("bench SERVICE",),
    "cancel": ("rollback SERVICE",),
    "down": ("stop SERVICE",),
    "events": ("history [SERVICE]",),
    "follow": ("status SERVICE --follow",),
    "help": ("--help",),
    "images": ("build --help", "node login --help", "prune --dry-run"),
    "lint": ("recipe render RECIPE --check",),
    "list": ("recipes", "status", "models list"),
    "lock": ("recipe lock RECIPE",),
    "ls": ("recipes", "status", "models list"),
    "ps": ("status",),
    "render": ("recipe render RECIPE",),
    "schema": ("recipe schema NAME",),
    "show": ("recipe show RECIPE",),
    "start": ("restart SERVICE",),
    "trust": ("node trust NODE",),
    "undo": ("rollback SERVICE",),
    "unhold": ("hold SERVICE --off",),
    "uninstall": ("node uninstall NODE",),
}
"""By a name that is no verb, or no longer: the commands that do it. The first word in capitals is its argument."""
ARGUMENT = re.compile(r"\[?[A-Z]+\]?")


def unknown(name: str, rest: Sequence[str], known: Iterable[str], path: str) -> UsageError:
    """Return the error of a word that is no verb below `path`: with what replaced it, else with the nearest ones."""
    problem = f"{path}: unknown verb: {name}".removeprefix("sparkops: ").removeprefix("sparkops ")
    if path == "sparkops" and name in RENAMED:
        argument = quote(rest[0]) if rest and not rest[0].startswith("-") else ""
        named = (ARGUMENT.sub(lambda _: argument, one, count=1) if argument else one for one in RENAMED[name])
        return UsageError(problem, next_step="\n".join(f"sparkops {one}" for one in named))
    return UsageError(problem, next_step=f"{did_you_mean(name, known)}`{path} --help` lists all.")


class Group(TyperGroup):
    """A group of verbs, each imported when it is called."""

    def __init__(self, groups: Mapping[str, Mapping[str, Verb | Family]], **attributes: Any) -> None:
        self.groups = groups
        self.verbs = {name: verb for group in groups.values() for name, verb in group.items()}
        lines = {name: TyperCommand(name, help=verb.help, rich_markup_mode=None) for name, verb in self.verbs.items()}
        super().__init__(commands={**lines, **attributes.pop("commands", {})}, **attributes)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options of the group, and the global ones."""
        return [*light(super().get_params(ctx)), *(everywhere(ctx) if ctx.parent else ())]

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the name, the imported command and its arguments. Raises UsageError for an unknown name."""
        name, *rest = args
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            raise unknown(name, rest, self.commands, ctx.command_path)
        verb = self.verbs.get(name)
        if isinstance(verb, Verb) and rest in ASKED:
            return name, Described(name, " ".join([*ctx.command_path.split()[1:], name])), rest
        return (name, verb.load(name), rest) if verb else super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        """Write the lines of all verbs by group, none cut off."""
        width = max(map(len, self.verbs))
        for title, group in self.groups.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), verb.help) for name, verb in group.items()])


class Verbs(Group):
    """The group of all verbs."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(GROUPS, **attributes)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of all verbs. --version ends the program here, as it needs --inventory wherever it is."""
        rest: list[str] = super().parse_args(ctx, args)
        if ctx.params.get("version") and not ctx.resilient_parsing:
            typer.echo(f"sparkops {__version__}")
            ctx.exit()
        return rest
