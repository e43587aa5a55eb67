"""Read command lines as `vllm serve` does: `python - PLATFORM JSON`, in the Python of a vLLM, without a GPU.

PLATFORM is that of a vLLM without compiled parts, which does not detect one.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import platform
import re
import sys
from typing import Any

CLI_ARGS = ("common", "launchers", "openai")
"""Packages of vllm.entrypoints with cli_args.py, from 0.33, from 0.30 and before."""


def cli_args() -> Any:
    """Return the module with the parser of `vllm serve`."""
    for package in CLI_ARGS:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(f"vllm.entrypoints.{package}.cli_args")
    sys.exit("this vLLM has no parser at a known place")


def values_problem(args: Any) -> str:
    """Return why vLLM refuses, after its parser, a value that names a parser or a type of the KV cache."""
    tools = importlib.import_module("vllm.tool_parsers").ToolParserManager.list_registered()
    thoughts = importlib.import_module("vllm.reasoning").ReasoningParserManager.list_registered()
    for name, known in ((args.tool_call_parser, tools), (args.reasoning_parser, thoughts)):
        if name and name not in known:
            return f"no parser {name}"
    # From 0.33 plugins add types, so the parser accepts every word.
    is_known = getattr(importlib.import_module("vllm.config.cache"), "is_known_kv_cache_dtype", None)
    return "" if is_known is None or is_known(args.kv_cache_dtype) else f"no KV cache type {args.kv_cache_dtype}"


def problem(cli: Any, parser: Any, argv: list[str]) -> str:
    """Return the reason why vLLM refuses a command line; empty if it accepts it."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            args = parser.parse_args(argv[1:])
        cli.validate_parsed_serve_args(args)
    except SystemExit:
        return re.sub(r" at 0x[0-9a-f]+", "", printed.getvalue().strip().splitlines()[-1])
    except (TypeError, ValueError, KeyError) as error:
        return str(error) or repr(error)
    return values_problem(args)


def main() -> None:
    detected = importlib.import_module("vllm.platforms").current_platform
    detected.device_type = detected.device_type or sys.argv[1]
    cli = cli_args()
    parser = cli.make_arg_parser(importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser())
    problems = {
        name: next(filter(None, (problem(cli, parser, argv) for argv in lines)), "")
        for name, lines in json.loads(sys.argv[2]).items()
    }
    torch = importlib.import_module("torch").__version__
    print(json.dumps({"python": platform.python_version(), "torch": str(torch), "problems": problems}))


if __name__ == "__main__":
    main()
