"""What a built image says of itself, and whether that is what its recipe says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sparkops.config.image import Torch
from sparkops.config.recipe import Recipe

REPLACED = (
    "the override was not applied: a package with an open torch dependency brought its own; every `uv pip install` "
    "must see UV_OVERRIDE, also in a stage that begins again with FROM"
)
OTHER_CUDA = "this torch is for another CUDA; check image.torch.backend and where the build finds torch"
NO_DRIVER = (
    "vLLM's binaries need the driver's library, which this image does not see, nor a stub of it; take a -devel base"
)
OTHER_ABI = (
    "vLLM's binaries were made for another torch (an ABI break); take the vLLM that asks for exactly the torch of this "
    "recipe, or build it against that torch"
)
OTHER_PROCESSOR = "the binary ended the process that loaded it: it is made for another processor"
NOT_IMPORTED = "vLLM cannot be imported in this image; a dependency is missing, or does not fit"
MOD_MISSING = "the mod left no marker: the image was built without it"


@dataclass(frozen=True)
class Answer:
    """What one package said: its version, or the error of importing it."""

    version: str = ""
    error: str = ""


@dataclass(frozen=True)
class ImageFacts:
    """What an image says of itself."""

    python: str
    machine: str
    torch: Answer
    cuda: str | None
    vllm: Answer
    binaries: Answer
    stub: bool
    """Whether vLLM's binaries were loaded with the toolkit's stub in place of a GPU's driver."""
    mods: Mapping[str, str]
    """The outcome of each mod by its name."""


@dataclass(frozen=True)
class Verdict:
    """One thing that was looked at. `cause` says what usually leads here, and is empty where all is well."""

    name: str
    ok: bool
    found: str
    expected: str
    cause: str = ""

    def __str__(self) -> str:
        if self.ok:
            return f"{self.name}: {self.found}"
        return f"{self.name}: found {self.found}, expected {self.expected}: {self.cause}"


def parse(stdout: str) -> ImageFacts:
    """Read what templates/gate.py printed. Raises ValueError where that is not an answer."""
    lines = stdout.strip().splitlines()
    try:
        said = json.loads(lines[-1])
        return ImageFacts(
            python=said["python"],
            machine=said["machine"],
            torch=_answer(said["torch"]),
            cuda=said["torch"].get("cuda"),
            vllm=_answer(said["vllm"]),
            binaries=_answer(said["vllm_c"]),
            stub=bool(said["vllm_c"].get("stub")),
            mods={mod["name"]: mod["outcome"] for mod in said["mods"]},
        )
    except (IndexError, KeyError, TypeError, AttributeError, json.JSONDecodeError):
        raise ValueError(f"expected one JSON object on the last line, got {stdout[-500:]!r}") from None


def _answer(said: Mapping[str, str]) -> Answer:
    return Answer(said.get("version", ""), said.get("error", ""))


def verdicts(recipe: Recipe, facts: ImageFacts) -> tuple[Verdict, ...]:
    """Compare an image with its recipe. What the recipe does not name is not looked at."""
    wanted = recipe.image
    return (
        *((_torch(wanted.torch, facts), _cuda(wanted.torch, facts)) if wanted.torch else ()),
        *((_vllm(wanted.vllm, facts.vllm), _binaries(facts)) if wanted.vllm else ()),
        *(_mod(name, facts) for name in wanted.mods),
    )


def _torch(wanted: Torch, facts: ImageFacts) -> Verdict:
    """The package index's own builds are +cu130 only in torch.__version__, so there the local part says nothing."""
    expected = wanted.pin.removeprefix("torch==")
    found = facts.torch.version
    same = found == expected or (not wanted.local_version and _public(found) == wanted.version)
    return Verdict("torch", same, found or facts.torch.error, expected, "" if same else REPLACED)


def _cuda(wanted: Torch, facts: ImageFacts) -> Verdict:
    found, expected = facts.cuda or "none", wanted.cuda or "none"
    same = not facts.torch.error and found == expected
    cause = REPLACED if facts.cuda is None else OTHER_CUDA
    return Verdict("torch.version.cuda", same, found, expected, "" if same else cause)


def _vllm(requirement: str, said: Answer) -> Verdict:
    expected = requirement.partition("==")[2]
    same = said.version == expected or _public(said.version) == expected
    cause = NOT_IMPORTED if said.error else "another package replaced the vLLM that image.vllm names"
    return Verdict("vllm", same, said.version or said.error, expected, "" if same else cause)


def _binaries(facts: ImageFacts) -> Verdict:
    error = facts.binaries.error
    found = error or ("importable, with the driver's stub" if facts.stub else "importable")
    return Verdict("vllm._C", not error, found, "importable", _why_not_loaded(error))


def _why_not_loaded(error: str) -> str:
    if not error:
        return ""
    if "libcuda.so" in error:
        return NO_DRIVER
    if "signal" in error:
        return OTHER_PROCESSOR
    return OTHER_ABI if "undefined symbol" in error else NOT_IMPORTED


def _mod(name: str, facts: ImageFacts) -> Verdict:
    found = facts.mods.get(name, "no marker")
    same = found in ("applied", "already there")
    return Verdict(f"mod {name}", same, found, "applied or already there", "" if same else MOD_MISSING)


def _public(version: str) -> str:
    return version.partition("+")[0]
