"""Read command lines as `sglang serve` does: `python - JSON`, in the Python of an SGLang, without a GPU."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import platform
import sys


def problem(parser: argparse.ArgumentParser, argv: list[str]) -> str:
    """Return the reason why SGLang refuses a command line; empty if it accepts it."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            parser.parse_args(argv)
    except SystemExit:
        return printed.getvalue().strip().splitlines()[-1]
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="sglang serve")
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    named = {name: [problem(parser, argv) for argv in lines] for name, lines in json.loads(sys.argv[1]).items()}
    problems = {name: next(filter(None, found), "") for name, found in named.items()}
    flags = sorted(flag.lstrip("-") for flag in parser._option_string_actions)
    torch = str(importlib.import_module("torch").__version__)
    print(json.dumps({"python": platform.python_version(), "torch": torch, "problems": problems, "flags": flags}))


if __name__ == "__main__":
    main()
