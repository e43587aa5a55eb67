"""Read command lines as `vllm serve` does: `python - PLATFORM LINES [ENV]`, in the Python of a vLLM, without a GPU.

LINES are JSON: by name, the command lines of a recipe's ranks. ENV are the engine's variables as JSON, which a parser
may read. The last line of the output is one JSON object: `problems`, the reason why vLLM refuses a recipe, empty if it
accepts it; `faults`, the flags without which the reason would be another one; `unjudged`, why a recipe could not be
judged. PLATFORM is that of a vLLM that detects none: one for CUDA without a GPU, or one without compiled parts.

Where the model's files are there, vLLM also builds its own configuration from them, as a start does before it loads
weights; `steps` says by name what was built, and what could not be judged without a GPU.
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
from pathlib import Path
from typing import Any

CLI_ARGS = ("common", "launchers", "openai")
"""Packages of vllm.entrypoints with cli_args.py, from 0.33, from 0.30 and before."""
MODELS = "/models/"
"""Where an engine sees its node's model directory. What lies there does not exist in an image."""
PROGRAM = "vllm serve"
OF_NODE = f"a file of the node, which the image does not have: --config={MODELS}"
TOKENIZERS = (("vllm.tokenizers", "get_tokenizer"), ("vllm.transformers_utils.tokenizer", "get_tokenizer"))
"""Where a vLLM has what reads a tokenizer: from 0.12, and before."""
OF_THE_GPU = re.compile(r"(?i)\b(cuda|gpus?|devices?|capability|driver|nvml|platform|triton|memory)\b")
"""Words of a refusal that may be about the GPU, which this check does not have."""
STEPS = ("config", "ranks", "draft", "tokenizer", "template", "adapters", "engine_settings")


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


def accepted(cli: Any, parser: Any, argv: list[str]) -> tuple[Any, str]:
    """Return the arguments of a command line, and the reason why vLLM refuses it; empty if it accepts it."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            args = parser.parse_args(argv[1:])
        args.model = getattr(args, "model_tag", None) or args.model
        if str(args.chat_template or "").startswith(MODELS) and not Path(str(args.model)).is_dir():
            args.chat_template = None
        cli.validate_parsed_serve_args(args)
    except SystemExit:
        said = (printed.getvalue().strip() or "refused without a word").splitlines()[-1]
        return None, re.sub(r" at 0x[0-9a-f]+", "", said)
    except Exception as error:
        if not isinstance(error, (TypeError, ValueError, KeyError)) and not own(error):
            raise
        return None, str(error) or repr(error)
    return args, values_problem(args)


def own(error: Exception) -> bool:
    """Return whether an error is of a class of vLLM, with which it refuses."""
    return type(error).__module__.partition(".")[0] == "vllm"


def problem(cli: Any, parser: Any, argv: list[str]) -> str:
    """Return the reason why vLLM refuses a command line; empty if it accepts it."""
    return accepted(cli, parser, argv)[1]


def faults(cli: Any, parser: Any, argv: list[str], reason: str) -> Iterator[str]:
    """Yield each flag of a refused command line without which vLLM gives another reason, or none."""
    starts = [n for n, word in enumerate(argv) if word.startswith("--")]
    for start, end in zip(starts, [*starts[1:], len(argv)], strict=True):
        if problem(cli, parser, argv[:start] + argv[end:]) != reason:
            yield argv[start].partition("=")[0].removeprefix("--")


def explained(error: Exception) -> str:
    """Return the reason in an error: pydantic counts errors first, and ends each with what was validated."""
    text = str(error) or repr(error)
    _, told, reason = text.partition(" error, ")
    return " ".join((reason.partition(" [type=")[0] if told else text).split())[:400]


class Configuration:
    """What vLLM builds from the arguments and the model's files before it loads weights."""

    def __init__(self, args: Any, *, on_platform: bool) -> None:
        self.args, self.on_platform = args, on_platform
        self.engine = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs.from_cli_args(args)
        self.model: Any = None

    def config(self) -> None:
        """Read config.json: the model's type and architecture, quantization, window, data types."""
        self.model = self.engine.create_model_config()

    def ranks(self) -> None:
        """Compare the model's sizes with the number of ranks."""
        make = importlib.import_module("vllm.config").ParallelConfig
        self.parallel = make(tensor_parallel_size=self.args.tensor_parallel_size, distributed_executor_backend="mp")
        self.model.verify_with_parallel_config(self.parallel)

    def draft(self) -> None:
        """Read the draft model and the method of speculation."""
        if self.args.speculative_config:
            self.engine.create_speculative_config(
                target_model_config=self.model, target_parallel_config=self.parallel
            )

    def tokenizer(self) -> None:
        """Load the tokenizer."""
        if self.model.skip_tokenizer_init:
            return
        for module, name in TOKENIZERS:
            with contextlib.suppress(ModuleNotFoundError):
                get = getattr(importlib.import_module(module), name)
                break
        tokenizer = get(
            self.model.tokenizer,
            tokenizer_mode=self.model.tokenizer_mode,
            trust_remote_code=self.model.trust_remote_code,
            revision=self.model.tokenizer_revision,
        )
        if len(tokenizer) < 2:
            raise ValueError("the tokenizer has no vocabulary: its files are missing")

    def template(self) -> None:
        """Parse the chat template that the arguments name, as Transformers does."""
        named = self.args.chat_template
        if named and Path(named).is_file():
            jinja2 = importlib.import_module("jinja2")
            jinja2.Environment(extensions=["jinja2.ext.loopcontrols"]).parse(Path(named).read_text())


    def adapters(self) -> None:
        """Look for the adapters that the arguments name by a path."""
        for module in self.args.lora_modules or ():
            path = str(getattr(module, "path", ""))
            if path.startswith("/") and not Path(path).is_dir():
                raise ValueError(f"lora_modules: {path} does not exist")

    def engine_settings(self) -> None:
        """Build all settings of the engine, as a start does before its processes begin; many depend on the GPU."""
        if not self.on_platform:
            raise ValueError("they depend on the GPU")
        self.engine.create_engine_config()


def model_problem(args: Any, *, on_platform: bool) -> tuple[str, dict[str, str]]:
    """Return why vLLM refuses the model with these arguments, empty if it does not, and the result of each step.

    `on_platform`: vLLM has found the platform itself, as it does on the CPU.

    An error of another kind than those with which vLLM refuses, or one that may be about the missing GPU, shows
    nothing: an engine that may start is not refused.
    """
    template = importlib.import_module("jinja2").TemplateError
    refusals = (ValueError, OSError, KeyError, ImportError, NotImplementedError, template)
    steps: dict[str, str] = {}
    built = Configuration(args, on_platform=on_platform)
    for name in STEPS:
        try:
            getattr(built, name)()
            steps[name] = ""
        except Exception as error:  # noqa: BLE001 - a vLLM that builds in another way is not refused for it
            if not isinstance(error, refusals) and not own(error):
                return "", {**steps, name: f"not checked: {error!r}"[:400]}
            reason = explained(error)
            if not OF_THE_GPU.search(reason.partition(". ")[0]) and not moved(error):
                return reason, {**steps, name: reason}
            return "", {**steps, name: f"not checked without a GPU: {reason}"}
    return "", steps


def moved(error: Exception) -> bool:
    """Return whether a part of vLLM stands elsewhere in this release: that is no refusal."""
    return isinstance(error, ImportError) and str(getattr(error, "name", "") or "").partition(".")[0] == "vllm"


def main() -> None:
    os.environ.update(json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
    detected = importlib.import_module("vllm.platforms").current_platform
    on_platform = bool(detected.device_type)
    detected.device_type = detected.device_type or sys.argv[1]
    cli = cli_args()
    parser_class = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser
    parser = cli.make_arg_parser(parser_class(prog=PROGRAM))
    judged: dict[str, Any] = {"problems": {}, "faults": {}, "unjudged": {}, "steps": {}}
    for name, lines in json.loads(sys.argv[2]).items():
        if any(word.startswith(f"--config={MODELS}") for argv in lines for word in argv):
            judged["unjudged"][name] = OF_NODE
            continue
        for argv in lines:
            args, reason = accepted(cli, parser, argv)
            if reason:
                judged["faults"][name] = [*faults(cli, parser, argv, reason)]
            elif argv is lines[0] and Path(str(args.model)).is_dir():
                reason, judged["steps"][name] = model_problem(args, on_platform=on_platform)
            judged["problems"][name] = reason
            if reason:
                break
    torch = importlib.import_module("torch").__version__
    print(json.dumps({"python": platform.python_version(), "torch": str(torch), **judged}))


if __name__ == "__main__":
    main()
