"""docs/evidence/wheels.md: what is known of each recipe's wheel, arguments, mods and gate, and how it is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparkops.config.recipe import Recipe
from sparkops.engines.image_facts import GateVerdict, ImageFacts, ImportAnswer, KernelFacts
from sparkops.operator.build.images import gate
from tests.fleet.fleet import CHECKOUT
from tests.lab.wheels.facts import WheelFacts

PAGE = CHECKOUT / "docs/evidence/wheels.md"
RUN = {
    "qwen3.6-35b-nvfp4": "run on x86-64 and, emulated, on arm64",
    "tiny-qwen3-cpu": "run on x86-64",
    "tiny-qwen3-cpu-tp2": "run on x86-64",
    "tiny-qwen3-cpu-tp2-mp": "run on x86-64",
    "122b-autoround": "run on x86-64 with an H100 (gpu-h100.md)",
    "stand-in": "run on x86-64 and, emulated, on arm64",
}
"""Recipes whose image, or one with the same packages, was built and gated; the pages beside this one show how."""
INSTALLED = {
    "vllm-source": "built from source",
    "finished": "in a finished image",
    "atlas": "another engine",
    "llama-cpp": "another engine",
    "stand-in": "no engine",
}
"""What an image has instead of a wheel from the index, by template."""


def page(recipes: Sequence[Recipe], read: Mapping[str, Any]) -> str:
    """Return the page."""
    lines = [
        "# Wheels, arguments, mods and gate of each recipe",
        "",
        f"Written by `make wheel-facts` from the package index on {read['read']}; facts: tests/lab/wheels/facts.json.",
        "The wheel is the one for arm64. Where a recipe builds vLLM from source or uses a finished image, it is the",
        "wheel of that release, and the image may differ from it. Arguments: [arguments.md](arguments.md). A predicted",
        "gate compares the compiled modules of the wheel with those that its platform code imports; it says nothing",
        "about torch, GPU code or the base. [images.md](images.md) and [arm64.md](arm64.md) show the gates that ran.",
        "",
        "| recipe | wheel | CUDA runtime | mods | gate |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(row(one, read))} |" for one in recipes),
    ]
    return "\n".join(lines) + "\n"


def row(of: Recipe, read: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the cells of one recipe."""
    mods = ", ".join(f"{name}: {one['outcome']}" for name, one in read["mods"].get(of.name, {}).items())
    ran, instead = RUN.get(of.name), INSTALLED.get(of.image.template, "")
    pinned = read["wheels"].get(of.image.vllm, {}).get("aarch64")
    if pinned is None:
        missing = f"{instead}; the index has no {of.image.vllm}" if of.image.vllm else instead
        return of.name, missing, "-", mods or "none", ran or "not run, not predicted"
    wheel = WheelFacts(**pinned)
    refused = [verdict for verdict in predicted(of, wheel, "aarch64") if not verdict.ok]
    guess = (
        f"predicted: refused: {refused[0]}" if refused else f"predicted: passes with {', '.join(kernels(of, wheel))}"
    )
    runtime = ", ".join(name for name in wheel.libraries if name.startswith("libcudart")) or "none"
    file = f"{f'{instead}; ' if instead else ''}{wheel.file}, {wheel.uploaded}"
    return of.name, file, runtime, mods or "none", ran or guess


def kernels(of: Recipe, wheel: WheelFacts) -> list[str]:
    """Return the modules that the wheel contains and its platform code imports."""
    platform = "cuda" if of.image.torch and of.image.torch.cuda else "cpu"
    named = dict.fromkeys([*wheel.required[platform], *wheel.kernels[platform]])
    return [name for name in named if name in wheel.modules]


def predicted(of: Recipe, wheel: WheelFacts, machine: str) -> list[GateVerdict]:
    """Return the gate's verdicts on vLLM and its kernels, as they would be if all that the wheel contains loads."""
    torch = of.image.torch
    platform = "cuda" if torch and torch.cuda else "cpu"
    missing = [name for name in wheel.required[platform] if name not in wheel.modules]
    loadable = KernelFacts(
        platform="UnspecifiedPlatform" if platform == "cuda" else "CpuPlatform",
        loaded=tuple(kernels(of, wheel)),
        error=f"ModuleNotFoundError: No module named '{missing[0]}'" if missing else "",
    )
    facts = ImageFacts(
        machine=machine,
        torch=ImportAnswer(torch.version if torch else ""),
        cuda=torch.cuda if torch else None,
        vllm=ImportAnswer((of.image.vllm or "").partition("==")[2]),
        kernels=loadable,
        mods={},
        device_code=None,
    )
    return [verdict for verdict in gate.verdicts(of, facts) if verdict.name in ("vllm", "vLLM kernels")]


def write(recipes: Sequence[Recipe], read: Mapping[str, Any]) -> None:
    """Write the page."""
    PAGE.write_text(page(recipes, read))
