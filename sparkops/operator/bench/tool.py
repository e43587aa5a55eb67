"""The benchmark of an engine's own package, in the image of the release that it measures: commands and output. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkops import foreign
from sparkops.command import Command
from sparkops.config import programs
from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES, runtime
from sparkops.errors import UsageError
from sparkops.names import LABEL
from sparkops.node.docker.commands import MODELS, RIGHTS, memory_limit
from sparkops.node.docker.places import CONTAINER, STATE
from sparkops.node.program import parsed, python

CONCURRENCIES = (1, 2, 4)
"""Those that published figures of a Spark state most often."""
TOOL_GIB = 4
"""Memory limit of its container in GiB: that of a check which imports the engine (MODEL_GIB of arguments.py)."""
EACH = 8
"""Requests for each concurrent stream, unless stated."""
RUN_S = 6 * 3600.0
PERCENTILES = "50,95,99"
FROM_ARGS = ("tokenizer", "tokenizer-mode", "trust-remote-code")
"""Arguments of a recipe that decide how its prompts are counted."""


@dataclass(frozen=True)
class Load:
    """Random prompts of `input_tokens`, answers of `output_tokens`; `requests` at each concurrency, None: EACH for each
    stream. `seed`: equal seeds give equal prompts, which a prefix cache would answer from memory.
    """

    input_tokens: int = 1024
    output_tokens: int = 256
    requests: int | None = None
    seed: int = 0

    def requests_at(self, concurrency: int) -> int:
        return self.requests or EACH * concurrency


def require(recipe: Recipe) -> None:
    """Raise UsageError for an engine whose package benchmarks nothing, and for a service without chat."""
    if not ENGINES[recipe.engine].bench:
        able = ", ".join(name for name, kind in ENGINES.items() if kind.bench)
        problem = f"{recipe.service}: the package of the engine {recipe.engine} has no benchmark of a server"
        step = f"Only {able} has one; run another tool, such as llama-benchy, against the URL of `sparkops status`."
        raise UsageError(problem, next_step=step)
    if recipe.serve.task != "chat":
        raise UsageError(f"{recipe.service}: serve.task is {recipe.serve.task}, expected chat: bench measures text")


def arguments(recipe: Recipe, url: str, load: Load, concurrency: int) -> tuple[str, ...]:
    """Return the words after `python -m` that measure the server at `url` (without /v1) at one concurrency."""
    own = {name: value for name in FROM_ARGS if (value := recipe.serve.args.get(name)) not in (None, False)}
    own.setdefault("tokenizer", f"{MODELS}/{recipe.model.path}")
    return (
        *ENGINES[recipe.engine].bench,
        f"--base-url={url}",
        f"--model={recipe.service}",
        *(f"--{name}" if value is True else f"--{name}={value}" for name, value in own.items()),
        "--dataset-name=random",
        f"--random-input-len={load.input_tokens}",
        f"--random-output-len={load.output_tokens}",
        f"--num-prompts={load.requests_at(concurrency)}",
        f"--max-concurrency={concurrency}",
        f"--seed={load.seed + concurrency}",  # other prompts than those of the concurrency before
        "--temperature=0",
        "--percentile-metrics=ttft,tpot,itl,e2el",
        f"--metric-percentiles={PERCENTILES}",
    )


def container(image: str, models: str) -> tuple[str, ...]:
    """Return the command that runs Python in an image, on the node's network, without a GPU. `models`: model_dir."""
    return (
        "docker",
        "run",
        "--rm",
        "--interactive",
        f"--label={LABEL}task=bench",
        "--network=host",
        *RIGHTS,
        *memory_limit(TOOL_GIB),
        "--cpu-shares=512",
        f"--env=HOME={runtime.HOME}",
        "--env=HF_HUB_OFFLINE=1",
        "--env=NVIDIA_VISIBLE_DEVICES=void",  # the default runtime of a node may give every container its GPU
        "--env=CUDA_VISIBLE_DEVICES=",
        f"--volume={models}:{MODELS}:ro",
        "--entrypoint=python",
        image,
    )


def command(image: str, models: str, argv: tuple[str, ...], key: str) -> Command:
    """Return the command of one measurement. The key of the gateway is in stdin; empty for none."""
    request = {"argv": argv, "env": {"OPENAI_API_KEY": key} if key else {}}
    modules = programs.load(*programs.BENCH_TOOL)
    return python(modules, request, interpreter=container(image, models), timeout_s=RUN_S)


@dataclass(frozen=True)
class Outcome:
    """The end of a measurement: the figures of the tool as it wrote them, its name and version; or the end of its log.

    Lists, such as one latency for each request, are left out.
    """

    result: Mapping[str, Any] = field(default_factory=dict)
    tool: Mapping[str, str] = field(default_factory=dict)
    log: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """Why there are no figures; empty with them."""
        if not self.result:
            return "\n".join(("the benchmark failed", *(f"  {line}" for line in self.log[-10:])))
        completed = self.result.get("completed")
        return "" if completed else "no request succeeded"


def parse(line: str) -> tuple[int, int] | Outcome | None:
    """Parse a line of templates/node/bench_tool.py: requests so far and of all, or the end; None for other text."""
    match parsed(line):
        case {"at": int(at), "of": int(of)}:
            return at, of
        case {"result": dict(result), "tool": dict(tool)}:
            figures = {str(name): value for name, value in [*result.items()][:200] if _plain(value)}
            return Outcome(figures, {str(name): str(value)[:100] for name, value in tool.items()})
        case {"failed": int(), "log": list(log)}:
            return Outcome(log=tuple(foreign.one_line(str(text)[:500]) for text in log[-40:]))
        case _:
            return None


def _plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= 200)


# --- runs on the leader


def _runs(verb: str, **request: str) -> Command:
    inside = ("docker", "exec", "--interactive", CONTAINER, "python3")
    modules, root = programs.load(*programs.BENCH_RUNS), f"{STATE}/v2/bench"
    return python(modules, {"verb": verb, "root": root, **request}, interpreter=inside, changes=verb == "save")


def save(service: str, name: str, text: str) -> Command:
    """Keep a run beside the journals of the guard, in place of an earlier state of it."""
    return _runs("save", service=service, name=name, text=text)


def read() -> Command:
    """Print every run that a guard keeps, by service and name."""
    return _runs("read")
