"""Compare the facts of a built image with its recipe."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.config.image import Torch
from sparkops.config.recipe import Recipe
from sparkops.engines import DEFAULT, ENGINES
from sparkops.engines.gates import GATES
from sparkops.engines.image_facts import GateVerdict, ImageFacts, crash, public
from sparkops.engines.runtime import USER

OVERRIDE = "set UV_OVERRIDE for every `uv pip install`, in every stage"
CPU_TORCH = f"a package without a pinned torch installed torch for the CPU; {OVERRIDE}"
REPLACED = f"a package without a pinned torch installed its own; {OVERRIDE}"
USED_CPU_TORCH = "this image has torch for the CPU; if that is meant, state `image.torch` with `backend: cpu`"
OTHER_CUDA = "torch is for another CUDA; check image.torch.backend and the index of the build"
NO_TORCH = "torch cannot be imported: it is missing, or a dependency is incompatible"
NO_CACHE = (
    "engines run as this user and need a cache for compiled kernels; end the template with `macros.finish`, which "
    "creates the user and its ~/.cache"
)
NO_SUCH = "this build of the engine would refuse to start; `--help` inside the image lists what it takes"
MOD_MISSING = "the image was built without the mod"


def verdicts(recipe: Recipe, facts: ImageFacts) -> tuple[GateVerdict, ...]:
    """Compare an image with its recipe. Parts that the recipe does not name are not checked.

    An image that states a version of the default engine is checked for that, whatever the recipe's engine is.
    """
    image, error, on_gpu = recipe.image, facts.cache_error, recipe.backend != "cpu"
    needs_torch, own = ENGINES[recipe.engine].pins, GATES.get(DEFAULT if image.requirement else recipe.engine)
    return (
        *((_torch(image.torch, facts), _cuda(image.torch, facts)) if image.torch or needs_torch else ()),
        *(own(facts, image.requirement, on_gpu=on_gpu) if own else ()),
        *_arguments(recipe, facts),
        *(_mod(name, facts) for name in image.mods),
        GateVerdict("cache", not error, error or "writable", f"writable for user {USER}", NO_CACHE if error else ""),
    )


def _arguments(recipe: Recipe, facts: ImageFacts) -> Iterator[GateVerdict]:
    """Yield the verdict on `serve.args` where the engine's own --help lists what it takes."""
    known = facts.llama.arguments if facts.llama and ENGINES[recipe.engine].gguf else frozenset()
    if not known:
        return
    given = (f"no-{flag}" if value is False else flag for flag, value in recipe.serve.args.items())
    unknown = [flag for flag in given if flag not in known]
    found = f"{', '.join(unknown)} unknown" if unknown else f"{len(recipe.serve.args)} known"
    yield GateVerdict("serve.args", not unknown, found, "arguments that --help lists", NO_SUCH if unknown else "")


def _torch(torch: Torch | None, facts: ImageFacts) -> GateVerdict:
    """Compare torch. Builds of the package index have +cu130 only in torch.__version__, so it is ignored for them."""
    if torch is None:
        version, error = facts.torch.version, facts.torch.error
        return GateVerdict("torch", bool(version), version or error, "any version", "" if version else _no_torch(facts))
    expected = torch.pin.removeprefix("torch==")
    version = facts.torch.version
    same = version == expected or (not torch.local_version and public(version) == torch.version)
    return GateVerdict("torch", same, version or facts.torch.error, expected, "" if same else _replaced(torch, facts))


def _no_torch(facts: ImageFacts) -> str:
    return crash(facts.torch.error) or NO_TORCH


def _replaced(torch: Torch, facts: ImageFacts) -> str:
    if facts.torch.error:
        return _no_torch(facts)
    return CPU_TORCH if torch.cuda and facts.torch.version and facts.cuda is None else REPLACED


def _cuda(torch: Torch | None, facts: ImageFacts) -> GateVerdict:
    if torch is None:
        found, cause = facts.cuda or "none", "" if facts.cuda else USED_CPU_TORCH
        return GateVerdict("torch.version.cuda", bool(facts.cuda), found, "a build for CUDA", cause)
    cuda, expected = facts.cuda or "none", torch.cuda or "none"
    same = not facts.torch.error and cuda == expected
    cause = _replaced(torch, facts) if facts.cuda is None else OTHER_CUDA
    return GateVerdict("torch.version.cuda", same, cuda, expected, "" if same else cause)


def _mod(name: str, facts: ImageFacts) -> GateVerdict:
    marker = facts.mods.get(name, "no marker")
    same = marker in ("applied", "already there")
    return GateVerdict(f"mod {name}", same, marker, "applied or already there", "" if same else MOD_MISSING)
