"""The command line: global options, the verbs, and the one place where errors become words and exit codes."""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from sparkops import __version__
from sparkops.errors import Interrupted, SparkopsError, UsageError
from sparkops.operator.cli.terminal import PRINTED, data_json, say
from sparkops.operator.cli.usage import translated
from sparkops.operator.cli.verbs import Verbs, settle
from sparkops.redact import redacted

BUG = 3
"""Exit code of an unexpected error."""
ClickException: Any = typer.BadParameter.__mro__[2]
"""What Typer's parser raises: it exports no common name of it."""
app = typer.Typer(
    name="sparkops",
    cls=Verbs,
    help="Build, deploy and update LLM servers on NVIDIA DGX Spark.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong input, 3 a bug, 4 busy or on hold, 5 refused, "
    "6 rolled back after downtime, 7 needs an operator, 130 interrupted.",
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
    settle(context, inventory=inventory, no_color=no_color or bool(os.environ.get("NO_COLOR")), verbose=verbose)


@cache
def command() -> Callable[..., object]:
    """Build the command line, once per process."""
    return typer.main.get_command(app)


def main() -> None:
    """Run the program and end with an exit code of docs/operations.md#exit-codes."""
    words = sys.argv[1:] or ["--help"]
    PRINTED.clear()
    try:
        code = command()(words, prog_name="sparkops", standalone_mode=False)  # a name for `python -m sparkops`, too
        raise SystemExit(code if isinstance(code, int) else 0)
    except SparkopsError as error:
        _end(error, words)
    except ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            error.show()
            raise SystemExit(UsageError.exit_code) from None
        _end(translated(error, words), words)
    except typer.Abort:
        _end(Interrupted("the question has no answer; nothing was changed"), words)
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:  # a file has its own message
            _show_bug(error, words)
            raise SystemExit(BUG) from error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would write the rest at its end
        _end(SparkopsError(f"stdout: cannot be written: {error.strerror}"), words, json=False)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # the reader closed the pipe: `sparkops status | head`
            raise SystemExit(0) from None
        raise
    except Exception as error:
        _show_bug(error, words)
        raise SystemExit(BUG) from error


def _end(error: SparkopsError, words: Sequence[str], *, json: bool = True) -> NoReturn:
    """Print an error and end with its exit code; where JSON was asked for and is not printed yet, as JSON too."""
    _report(error)
    if json and "--json" in words and not PRINTED:
        data_json({"exit_code": error.exit_code, "error": str(error), "next": error.next_step.splitlines()})
    raise SystemExit(error.exit_code) from None


def _show_bug(error: Exception, words: Sequence[str]) -> None:
    """Print an unexpected error, and save its traceback."""
    text = f"internal error: {type(error).__name__}: {error}"
    say(f"sparkops: {text}", fg="red")
    say(f"  Traceback saved to {_save_traceback()}; please report it.")
    if "--json" in words and not PRINTED:
        data_json({"exit_code": BUG, "error": text, "next": []})


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
