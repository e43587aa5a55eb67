"""`make arguments`, for SGLang: judge its recipes by its parser, and write docs/evidence/arguments-sglang.md."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict

from sparkops.config.recipe import Recipe
from sparkops.config.release import Rank, Release
from sparkops.engines import ENGINES
from sparkops.names import Slot
from sparkops.node.docker import ranks
from sparkops.operator.build.images.arguments import SEAT
from tests.fleet.inventory import pip_settings, wheel_folder
from tests.fleet.shell import say, step
from tests.lab.arguments import scratch
from tests.lab.arguments.command_lines import recipes
from tests.lab.gpu.evidence import cell
from tests.lab.wheels import remote
from tests.places import ROOT

RELEASE = "sglang==0.5.23"
PAGE = ROOT / "docs/evidence/arguments-sglang.md"
SCRIPT = Path(__file__).with_name("parse_sglang.py").read_bytes()
PACKAGES = (
    *("aiohttp", "fastapi", "ipython", "msgspec", "numpy", "orjson", "packaging", "pillow", "psutil", "pybase64"),
    *("pydantic", "pyzmq", "requests", "tqdm", "triton==3.6.0", "typing-extensions"),
)
"""What the modules import that hold the parser; SGLang requires many more, most of them for CUDA."""
WRONG = {
    "an unknown argument": [["--model-path=/models/q", "--no-such-argument=1"]],
    "a value that is none": [["--model-path=/models/q", "--kv-cache-dtype=turboquant35"]],
    "a reasoning parser that is none": [["--model-path=/models/q", "--reasoning-parser=qwen9"]],
    "JSON that is none": [["--model-path=/models/q", "--radix-eviction-policy-config={a: 1}"]],
}
"""Command lines that a parser must refuse: one that accepts them judges nothing."""
ACCEPTED = "accepted"
ONLY_IN_ITS_IMAGE = {"deepseek-v4-flash-0731-sglang-tp2": "argument --moe-runner-backend: invalid choice: 'b12x'"}
"""What a recipe's own image accepts and the release does not."""
HEAD = """# Arguments of the recipes for SGLang

Written on {day} by `make arguments`, which gives the command lines of each recipe that starts SGLang to the
parser of SGLang {release}: those of every rank, with the arguments that sparkops adds. Neither a model nor a GPU is
involved.

The Python files are those of the release's wheel. They ran with Python {python}, torch {torch} and the packages that
the parser's modules import, nothing stubbed. The parser refused {refused} of {wrong} wrong examples. The images of the
recipes have other versions. "Arguments" is a hash of the command lines.

| recipe | verdict | arguments |
| --- | --- | --- |
"""


class Judgement(TypedDict):
    """The verdict of one SGLang: its problem with each named command line, empty if accepted; its flags."""

    python: str
    torch: str
    problems: dict[str, str]
    flags: list[str]


def sglang_recipes() -> list[Recipe]:
    """Return the shipped recipes that start SGLang, by name."""
    return [of for of in recipes() if of.engine == "sglang"]


def command_lines(of: Recipe) -> list[list[str]]:
    """Return the arguments of SGLang's server on each rank."""
    size, module = of.serve.tensor_parallel, len(("-m", "sglang.launch_server"))
    release = Release(of, "0" * 64)
    started = [
        ranks.program(Rank(release, Slot.BLUE, f"n{index}", index), "/models", SEAT if size > 1 else None)
        for index in range(size)
    ]
    return [list(program.arguments[module:]) for program in started]


def digest(of: Recipe) -> str:
    """Return a short hash that changes with the recipe's command lines."""
    return hashlib.sha256(json.dumps(command_lines(of)).encode()).hexdigest()[:12]


def verdict(name: str, problem: str) -> str:
    """Return the verdict as the page has it."""
    known = ONLY_IN_ITS_IMAGE.get(name)
    if known and known in problem:
        return f"not accepted, only in the recipe's image: {known.rpartition(': ')[2]}"
    return problem or ACCEPTED


def main() -> int:
    """Run the parser. Returns 1 if it refuses a recipe, accepts a wrong example or lacks a flag that sparkops lists."""
    wheel = remote.find(RELEASE, "x86_64")
    if wheel is None:
        say(f"the package index has no wheel of {RELEASE}")
        return 1
    with step(f"{RELEASE}: judged"), tempfile.TemporaryDirectory() as directory:
        judgement = judge(wheel, Path(directory), {of.name: command_lines(of) for of in sglang_recipes()} | WRONG)
    refused = sum(bool(judgement["problems"][name]) for name in WRONG)
    rows = [(of, verdict(of.name, judgement["problems"][of.name])) for of in sglang_recipes()]
    PAGE.write_text(
        HEAD.format(
            day=f"{datetime.now(UTC):%-d %B %Y}",
            release=RELEASE.partition("==")[2],
            python=judgement["python"],
            torch=judgement["torch"],
            refused=refused,
            wrong=len(WRONG),
        )
        + "".join(f"| {of.name} | {cell(told)} | {digest(of)} |\n" for of, told in rows)
    )
    listed = {*ENGINES["sglang"].flags.effects, *ENGINES["sglang"].taken}
    wrong = [f"{RELEASE} has no --{flag}" for flag in sorted(listed - {*judgement["flags"]})]
    wrong += [f"{of.name}: {told}" for of, told in rows if not told.startswith((ACCEPTED, "not accepted, only"))]
    for line in wrong:
        say(line)
    return int(bool(wrong) or refused < len(WRONG))


def judge(wheel: remote.Wheel, home: Path, lines: Mapping[str, list[list[str]]]) -> Judgement:
    """Return what the SGLang of a wheel reports of command lines by name. Raises CalledProcessError."""
    scratch.unpack(wheel, home / "sglang")
    torch = next(of for of in recipes() if of.name == "tiny-qwen3-cpu").image.torch
    assert torch is not None
    folder = wheel_folder(pip_settings().get("find-links", ""))
    source = ["--find-links", folder] if folder else ["--torch-backend", "cpu"]
    python, uv = home / "venv/bin/python", [remote.UV, "--no-config", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(home / "venv")], check=True)
    subprocess.run([*uv, "pip", "install", "--python", str(python), *source, torch.pin, *PACKAGES], check=True)
    env = {"PATH": os.defpath, "HOME": str(home), "PYTHONPATH": str(home / "sglang")}
    argv = [str(python), "-W", "ignore", "-", json.dumps(dict(lines))]
    ran = subprocess.run(argv, input=SCRIPT, stdout=subprocess.PIPE, env=env, timeout=scratch.TIMEOUT_S, check=True)
    judgement: Judgement = json.loads(ran.stdout.decode().strip().splitlines()[-1])
    return judgement


if __name__ == "__main__":
    sys.exit(main())
