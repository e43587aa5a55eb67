"""The files of builds: templates, mods, the gate's script, wheels and CA certificates."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath

from sparkops.config import files, shipped
from sparkops.config.fields import Location
from sparkops.config.image import CHAT_TEMPLATE, PATCH
from sparkops.config.inventory import Fleet
from sparkops.config.shipped import ShippedFile
from sparkops.errors import UsageError

TEMPLATE = ".Dockerfile.j2"
SHARED_MODS = ("mend.py", "diff.py")  # imported by every mod; applies a .patch
MOD_KINDS = ("*.py", f"*{PATCH}", f"*{CHAT_TEMPLATE}")
PEM = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True)
class WheelFile:
    """A wheel on this machine, with its hash. Builds stream its content."""

    name: str
    path: Path
    sha256: str
    size: int


@dataclass(frozen=True)
class BuildInputs:
    """The inventory's settings for every build. The two URLs may hold credentials."""

    package_index: str | None = None
    torch_index: str | None = None
    wheels: tuple[WheelFile, ...] = ()
    ca_certificates: tuple[tuple[str, bytes], ...] = ()


def load_templates() -> dict[str, str]:
    """Return the templates by file name, such as vllm-cpu.Dockerfile.j2, or guard/Dockerfile.j2 of another image.

    A template may have a directory of its own name for the programs that it copies: stand-in/vllm.py.
    """
    root = shipped.directory("templates")
    files = [*root.glob("*.j2"), *root.glob("*/*.j2")]
    for template in root.glob(f"*{TEMPLATE}"):
        files += (root / template.name.removesuffix(TEMPLATE)).rglob("*.py")
    return {_below(root, file): file.read_text(encoding="utf-8") for file in sorted(files)}


def load_mods() -> dict[str, bytes]:
    """Return the mods, their shared code and the files that they add by path, such as mend.py.

    Raises UsageError for one in ./mods that has the name of another: a foreign checkout could replace it.
    """
    return {name: file.read_bytes() for name, file in _mod_files().items()}


def template_names() -> list[str]:
    """Return the names for `image.template` of a recipe."""
    templates = shipped.directory("templates").glob(f"*{TEMPLATE}")
    return sorted(file.name.removesuffix(TEMPLATE) for file in templates)


def mod_names() -> list[str]:
    """Return the names for `image.mods` of a recipe; a diff keeps its suffix."""
    return sorted(name.removesuffix(".py") for name in _mod_files() if "/" not in name and name not in SHARED_MODS)


def own_mods() -> list[str]:
    """Return the names of the mods in ./mods."""
    return [name.removesuffix(".py") for name in _own_mod_files()]


def _mod_files() -> dict[str, ShippedFile]:
    """Return the files of the mods by their path: those of sparkops, and those in ./mods. Raises UsageError."""
    mods, own = _shipped_mod_files(), _own_mod_files()
    if both := sorted(own.keys() & mods):
        problem = f"mods/{both[0]} has the name of a mod of sparkops, which other recipes use"
        raise UsageError(problem, next_step=f"Rename mods/{both[0]}, and the mod in `image.mods` of your recipe.")
    return dict(sorted({**mods, **own}.items()))


@cache
def _shipped_mod_files() -> Mapping[str, ShippedFile]:
    root = shipped.directory("templates") / "mods"
    return {_below(root, file): file for kind in MOD_KINDS for file in root.rglob(kind)}


def _own_mod_files() -> dict[str, ShippedFile]:
    return {file.name: file for kind in MOD_KINDS for file in Path("mods").glob(kind) if file.is_file()}


def _below(root: ShippedFile, file: ShippedFile) -> str:
    """Return the path of a file below a directory."""
    return PurePath(str(file)).relative_to(str(root)).as_posix()


def load_package() -> dict[str, bytes]:
    """Return the source of sparkops by path, such as operator/deploy/plan.py, without templates and recipes."""
    root = shipped.PACKAGE
    files = sorted(root.rglob("*.py"))
    contents = {file.relative_to(root).as_posix(): file.read_bytes() for file in files}
    return dict(sorted({**contents, **shipped.packed_package()}.items()))


def load_gate() -> bytes:
    """Return the script that inspects a built image."""
    return (shipped.directory("templates") / "gate.py").read_bytes()


def load_parser(engine: str) -> bytes:
    """Return the script with which an engine's own parser reads arguments; empty for an engine without one."""
    with suppress(FileNotFoundError):
        return (shipped.directory("templates") / "arguments" / f"{engine}.py").read_bytes()
    return b""


def load_hub_packages() -> bytes:
    """Return the pinned packages of the image that downloads models, with their hashes."""
    return (shipped.directory("templates") / "hub/requirements.txt").read_bytes()


def load_rendezvous() -> bytes:
    """Return the script with which ranks connect before they load a model."""
    return (shipped.directory("templates") / "rendezvous.py").read_bytes()


def load_inputs(fleet: Fleet, *, wheels: bool = True) -> BuildInputs:
    """Read the inventory's `build` section. Raises ConfigError for a missing file.

    `wheels`: whether the build mounts them. Hashing them takes about a second per GB.
    """
    build, wheel_files = fleet.build, _wheels(fleet) if wheels else ()
    return BuildInputs(build.package_index, build.torch_index, wheel_files, _ca_certificates(fleet))


def _wheels(fleet: Fleet) -> tuple[WheelFile, ...]:
    if fleet.build.wheels is None:
        return ()
    directory = fleet.resolve(fleet.build.wheels)
    wheels = sorted(directory.glob("*.whl"))
    if not wheels:
        problem = "has no .whl file" if directory.is_dir() else "is not a directory"
        raise fleet.fail(("build", "wheels"), f"{directory} {problem}")
    with ThreadPoolExecutor() as threads:
        return tuple(threads.map(_wheel, wheels))


def _wheel(file: Path) -> WheelFile:
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        return WheelFile(file.name, file, digest, opened.tell())


def _ca_certificates(fleet: Fleet) -> tuple[tuple[str, bytes], ...]:
    certificates: dict[str, bytes] = {}
    for number, path in enumerate(fleet.build.ca_certificates):
        file, where = fleet.resolve(path), ("build", "ca_certificates", number)
        if file.suffix != ".crt" or file.name in certificates:
            raise fleet.fail(where, f"expected a unique file name that ends in .crt, got {file.name!r}")
        certificates[file.name] = _certificate(fleet, where, file)
    return tuple(sorted(certificates.items()))


def _certificate(fleet: Fleet, where: Location, file: Path) -> bytes:
    try:
        content = files.read(file)
    except OSError as error:
        raise fleet.fail(where, f"{file} cannot be read: {error.strerror}") from None
    if PEM not in content:  # the image's tool ignores anything else
        raise fleet.fail(where, f"{file} has no PEM certificate")
    return content
