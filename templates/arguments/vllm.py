"""Read command lines as `vllm serve` does: `python - PLATFORM LINES [ENV]`, in the Python of a vLLM, without a GPU.

LINES are JSON: by name, the command lines of a recipe's ranks. ENV are the engine's variables as JSON, which a parser
may read. The last line of the output is one JSON object: `problems`, the reason why vLLM refuses a recipe, empty if it
accepts it; `faults`, the flags without which the reason would be another one; `unjudged`, why a recipe could not be
judged. PLATFORM is that of a vLLM that detects none: one for CUDA without a GPU, or one without compiled parts.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from typing import Any

CLI_ARGS = ("common", "launchers", "openai")
"""Packages of vllm.entrypoints with cli_args.py, from 0.33, from 0.30 and before."""
MODELS = "/models/"
"""Where an engine sees its node's model directory. What lies there does not exist in an image."""
PROGRAM = "vllm serve"
OF_NODE = f"a file of the node, which the image does not have: --config={MODELS}"


def cli_args() -> Any:
    """Return the module with the parser of `vllm serve`."""
    for package in CLI_ARGS:
        with contextlib.suppress(ModuleNotFoundError):
            return importlib.import_module(f"vllm.entrypoints.{package}.cli_args")
    sys.exit("this vLLM has no parser at a known place")


def values_problem(args: Any) -> str:
    """Return why vLLM refuses, after its parser, a value that names a parser or a type of the KV cache.

    A plugin may add names, and is loaded by a start only.
    """
    tools = importlib.import_module("vllm.tool_parsers").ToolParserManager.list_registered()
    thoughts = importlib.import_module("vllm.reasoning").ReasoningParserManager.list_registered()
    for name, plugin, known in (
        (args.tool_call_parser, args.tool_parser_plugin, tools),
        (args.reasoning_parser, getattr(args, "reasoning_parser_plugin", ""), thoughts),
    ):
        if name and not plugin and name not in known:
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
        if str(args.chat_template or "").startswith(MODELS):
            args.chat_template = None
        cli.validate_parsed_serve_args(args)
    except SystemExit:
        return re.sub(r" at 0x[0-9a-f]+", "", (printed.getvalue().strip() or "refused without a word").splitlines()[-1])
    except (TypeError, ValueError, KeyError) as error:
        return str(error) or repr(error)
    return values_problem(args)


def faults(cli: Any, parser: Any, argv: list[str], reason: str) -> Iterator[str]:
    """Yield each flag of a refused command line without which vLLM gives another reason, or none."""
    starts = [n for n, word in enumerate(argv) if word.startswith("--")]
    for start, end in zip(starts, [*starts[1:], len(argv)], strict=True):
        if problem(cli, parser, argv[:start] + argv[end:]) != reason:
            yield argv[start].partition("=")[0].removeprefix("--")


def main() -> None:
    os.environ.update(json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
    detected = importlib.import_module("vllm.platforms").current_platform
    detected.device_type = detected.device_type or sys.argv[1]
    cli = cli_args()
    parser_class = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    parser = cli.make_arg_parser(parser_class(prog=PROGRAM))
    judged: dict[str, Any] = {"problems": {}, "faults": {}, "unjudged": {}}
    for name, lines in json.loads(sys.argv[2]).items():
        if any(word.startswith(f"--config={MODELS}") for argv in lines for word in argv):
            judged["unjudged"][name] = OF_NODE
            continue
        reasons = ((argv, problem(cli, parser, argv)) for argv in lines)
        argv, reason = next(((argv, reason) for argv, reason in reasons if reason), ([], ""))
        judged["problems"][name] = reason
        if reason:
            judged["faults"][name] = [*faults(cli, parser, argv, reason)]
    torch = importlib.import_module("torch").__version__
    print(json.dumps({"python": platform.python_version(), "torch": str(torch), **judged}))


if __name__ == "__main__":
    main()
