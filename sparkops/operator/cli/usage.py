"""Errors of a command line in the words of every other error: the parser's own kinds are translated here alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sparkops.errors import UsageError
from sparkops.names import near_names
from sparkops.operator.cli.verbs import LEAVES

EXTRA = re.compile(r"Got unexpected extra argument\(s\) \((.*)\)", re.DOTALL)
COERCED = "Input should be "


def translated(error: Any, words: Sequence[str]) -> UsageError:
    """Return the error of Typer's parser as one of sparkops, with the help of the verb that `words` call."""
    path = error.ctx.command_path if error.ctx else f"sparkops {_called(words)}".strip()
    verb = path.removeprefix("sparkops").strip()
    problem, near = _problem(error, f"{verb}: " if verb else "")
    return UsageError(problem, next_step=f"{near}`{path} --help` lists all." if near else f"{path} --help")


def _called(words: Sequence[str]) -> str:
    """Return the verb of a command line, which the parser does not name where it lacks a value; empty without one."""
    line = f" {' '.join(words)} "
    return min((name for name in LEAVES if f" {name} " in line), key=lambda name: line.index(f" {name} "), default="")


def _problem(error: Any, verb: str) -> tuple[str, str]:
    """Return what is wrong, after the verb with a colon, and the names that were meant."""
    message = str(error.message)
    match type(error).__name__:
        case "MissingParameter":
            return f"{verb}{_name(error.param)} is missing", ""
        case "NoSuchOption":
            known = [one for param in error.ctx.command.get_params(error.ctx) for one in param.opts if one[:2] == "--"]
            return f"{verb}unknown option: {error.option_name}", _near_option(error.option_name, known)
        case "BadOptionUsage":
            lacks = "requires" in message
            return f"{error.option_name}: {'its value is missing' if lacks else 'it takes no value'}", ""
        case _:
            return _of_value(error, verb, message), ""


def _of_value(error: Any, verb: str, message: str) -> str:
    """Return what is wrong with the value of an option, or with the words besides options."""
    if getattr(error, "param", None) is not None:
        wanted = message.removeprefix(COERCED).partition(", unable to parse")[0]
        return f"{_name(error.param)}: {f'expected {wanted}' if message.startswith(COERCED) else message}"
    if extra := EXTRA.fullmatch(message):
        return f"{verb}unexpected argument: {extra[1]}"
    if message == "Missing command.":
        return f"{verb}a verb is missing"
    return f"{verb}{message}"


def _near_option(name: str, known: Sequence[str]) -> str:
    """Ask for the option that was meant: dashes are no likeness, and --help is named in any case."""
    near = near_names(name.lstrip("-"), [one.lstrip("-") for one in known if one != "--help"])
    return f"Did you mean {' or '.join(f'--{one}' for one in near)}? " if near else ""


def _name(param: Any) -> str:
    """Return an argument or option as the help shows it: RECIPE, --wait."""
    return str(param.metavar or param.name.upper()) if param.param_type_name == "argument" else max(param.opts, key=len)
