"""Completion of recipes, services and nodes from files alone, before Typer and the verbs are loaded.

No node is read. Services are those of the known recipes: only the nodes know what runs. Everything else, such
as names of verbs and options, is left to Typer. Releases are no argument of any verb.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import yaml

from sparkops.command import unquote
from sparkops.config import files
from sparkops.config.shipped import known_recipes
from sparkops.operator.status.clients import CLIENTS

RECIPE_VERBS = ("recipe show", "recipe lock", "recipe render", "fit", "plan", "up", "deploy", "build")
MODEL_VERBS = ("models pull", "models copy", "models verify", "models prepare")
SERVICE_VERBS = ("recipes", "promote", "rollback", "restart", "stop", "status", "logs", "history", "probe", "hold")
NODE_VERBS = tuple(f"node {verb}" for verb in ("trust", "cordon", "uncordon", "drain", "return", "uninstall"))
TAKES: Mapping[str, str] = {
    **dict.fromkeys((*RECIPE_VERBS, *MODEL_VERBS), "recipe"),
    **dict.fromkeys(SERVICE_VERBS, "service"),
    **dict.fromkeys(("gateway move", "gateway rebuild", *NODE_VERBS), "node"),
}
"""Kinds of arguments by verb."""
SEVERAL = {"recipe render", "node trust"}
"""Verbs with several arguments."""
OPTIONS = {
    **dict.fromkeys(("--node", "-n", "--to", "--from", "--without"), "node"),
    "--recipe": "recipe",
    "--client": "client",
    "--mode": "mode",
}
"""Kinds of values by option."""
FAMILIES = {"models", "recipe", "gateway", "node"}
INVENTORY = ("--inventory", "-i")
SERVICE = re.compile(r"""^service:[ \t]*["']?([\w.-]+)""", re.MULTILINE)
NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
"""Names that are safe to offer: a shell evaluates them."""


def answer(mode: str, environ: Mapping[str, str]) -> str | None:
    """Return the completion that a shell reads from stdout; None leaves the request to Typer.

    `mode` and the variables are those of Typer's scripts, such as complete_bash.
    """
    try:
        words, incomplete = _words(mode, environ)
    except (KeyError, ValueError):  # another shell, or an open quote
        return None
    names = values(words, incomplete, environ.get("SPARKOPS_INVENTORY", "inventory.yaml"))
    if not names:
        return None
    if mode == "complete_zsh":
        return "_arguments '*: :((" + "\n".join(f'"{name}"' for name in names) + "))'"
    return "\n".join(names)


def _words(mode: str, environ: Mapping[str, str]) -> tuple[list[str], str]:
    """Return the complete words behind the program's name, and the incomplete one. Raises KeyError, ValueError."""
    if mode == "complete_bash":
        words, at = unquote(environ["COMP_WORDS"]), int(environ["COMP_CWORD"])
        return words[1:at], words[at] if at < len(words) else ""
    if mode not in ("complete_zsh", "complete_fish"):
        raise ValueError(f"{mode}: expected complete_bash, complete_zsh or complete_fish")
    line = environ["_TYPER_COMPLETE_ARGS"]
    words = unquote(line)[1:]
    return (words, "") if not words or line.endswith(" ") else (words[:-1], words[-1])


def values(words: Sequence[str], incomplete: str, inventory: str) -> list[str]:
    """Return the names that begin with the incomplete word; none where another kind of word is expected."""
    inventory, rest = _without_globals(words, inventory)
    if not rest or incomplete.startswith("-"):
        return []
    verb = " ".join(rest[: 2 if rest[0] in FAMILIES else 1])
    args = rest[len(verb.split()) :]
    option = OPTIONS.get(args[-1]) if args else None
    names = [*SOURCES[option or TAKES[verb]](inventory)] if option or verb in TAKES else []
    taken = set(args) & set(names) if not option else set[str]()
    if taken and verb not in SEVERAL:
        return []
    return [name for name in names if name not in taken and name.startswith(incomplete) and NAME.fullmatch(name)]


def _without_globals(words: Sequence[str], inventory: str) -> tuple[str, list[str]]:
    """Return the inventory, wherever it is named, and the other words from the verb on."""
    rest, at = [*words], 0
    while at < len(rest):
        option, equals, value = rest[at].partition("=")
        if option in INVENTORY and (equals or rest[at + 1 :]):
            inventory = value if equals else rest[at + 1]
            del rest[at : at + (1 if equals else 2)]
        elif at == 0 and option.startswith("-"):
            del rest[0]
        else:
            at += 1
    return inventory, rest


def _nodes(inventory: str) -> Iterable[str]:
    try:
        read = yaml.safe_load(files.text(Path(inventory)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):  # completion prints no errors
        return ()
    nodes = read.get("nodes") if isinstance(read, dict) else None
    return map(str, nodes) if isinstance(nodes, dict) else ()


def _services(_: str) -> Iterable[str]:
    services = set[str]()
    for file in known_recipes().values():
        with suppress(OSError, UnicodeDecodeError):
            services.update(SERVICE.findall(files.text(file)))
    return sorted(services)


SOURCES: Mapping[str, Callable[[str], Iterable[str]]] = {
    "recipe": lambda _: known_recipes(),
    "service": _services,
    "node": _nodes,
    "client": lambda _: CLIENTS,
    "mode": lambda _: ("beside", "across", "in-place"),
}
"""Names of each kind, from the path of the inventory."""
