"""The command line: global options, the verbs, and the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from sparkops import __version__
from sparkops.errors import SparkopsError
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.terminal import say, show_commands
from sparkops.operator.cli.verbs import Verbs
from sparkops.redact import redacted

app = typer.Typer(
    name="sparkops",
    cls=Verbs,
    help="Build, deploy and update LLM servers on NVIDIA DGX Spark.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong input, 3 a bug, 4 busy or on hold, 5 refused, "
    "6 rolled back after downtime, 7 needs an operator, 130 interrupted. docs/operations.md explains each.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    context: typer.Context,
    inventory: Annotated[
        Path, typer.Option("--inventory", "-i", envvar="SPARKOPS_INVENTORY", metavar="FILE", help="Inventory file")
    ] = Path("inventory.yaml"),
    no_color: Annotated[bool, typer.Option("--no-color", help="Print without colors, as with NO_COLOR")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every command that runs on a node")] = False,
    version: Annotated[  # noqa: ARG001 - operator/cli/verbs.py has answered
        bool, typer.Option("--version", help="Print the version")
    ] = False,
) -> None:
    """Build, deploy and update LLM servers on NVIDIA DGX Spark."""
    if no_color or os.environ.get("NO_COLOR"):
        os.environ["NO_COLOR"] = "1"
        context.color = False
    if verbose:
        context.call_on_close(show_commands())
    context.obj = Settings(inventory=inventory, verbose=verbose)


@cache
def command() -> Callable[..., object]:
    """Build the command line, once per process."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the program and end with an exit code of docs/operations.md#exit-codes."""
    try:
        command()(sys.argv[1:] or ["--help"], prog_name="sparkops")  # also where `python -m sparkops` runs it
    except SparkopsError as error:
        _report(error)
        raise SystemExit(error.exit_code) from None
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # the reader closed the pipe: `sparkops status | head`
            raise SystemExit(0) from None
        raise
    except Exception as error:
        say(f"sparkops: internal error: {type(error).__name__}: {error}", fg="red")
        say(f"  Traceback saved to {_save_traceback()}; please report it.")
        raise SystemExit(3) from error


def _report(error: SparkopsError) -> None:
    say(f"sparkops: {error}", fg="red")
    for source in (error, error.__cause__, *getattr(error, "errors", ())):
        for note in getattr(source, "__notes__", ()):
            say(f"  {note}")
    for line in error.next_step.splitlines():
        say(f"  next: {line}", bold=True)


def _save_traceback() -> str:
    with tempfile.NamedTemporaryFile("w", prefix="sparkops-bug-", suffix=".txt", delete=False) as file:
        file.write(f"sparkops {__version__}, Python {sys.version}\n{redacted(traceback.format_exc())}")
    return file.name
