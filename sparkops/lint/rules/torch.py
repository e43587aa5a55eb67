"""Check that every stage pins the same torch and build, and that no installation may replace it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sparkops.lint.dockerfile import BuildStage, StagedBuild
from sparkops.lint.files import (
    ENGINES,
    UNNAMED,
    WrittenFiles,
    copied_environments,
    located,
    wheel_name,
    wheels_in,
    written_files,
)
from sparkops.lint.finding import Violation
from sparkops.lint.installs import SOURCE, Install, lines, needing_torch, package, pins, version
from sparkops.lint.rules.cuda import cuda_stages
from sparkops.lint.torch_needs import BINDS, BOUND, NEEDS_TORCH, admits, release, required

OVERRIDES = ("--override", "UV_OVERRIDE")
CONSTRAINTS = ("--constraint", "PIP_CONSTRAINT")
PINNING = (*OVERRIDES, *CONSTRAINTS, "UV_CONSTRAINT", "--requirement")
PINNING_OF = {"uv": (*OVERRIDES, "--constraint", "UV_CONSTRAINT"), "pip": CONSTRAINTS}
VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
IMAGE_CUDA = re.compile(r"(?:cuda[:-]?|cu)([0-9]{2})(?=[.0-9])")
CUDA_BUILD = re.compile(r"cu1[0-9]{2}")
CUDA = re.compile(r"cuda|nvidia|nvcr\.io", re.IGNORECASE)
HAS_TORCH = re.compile(r"vllm|sglang|torch|tensorrt", re.IGNORECASE)
"""Images with their own torch, which no pin may replace."""
UNKNOWN_IMAGE = "$"
CONSTRAINS_PIP = re.compile(r"nvcr\.io/nvidia/(pytorch|vllm|sglang|tritonserver)(?!:(1[0-9]|2[0-4]|25\.0[12])[.-])")
"""NVIDIA's framework images since 25.03, whose environment has a PIP_CONSTRAINT with their own torch (release notes of
the PyTorch container, 25.12)."""
PIN_FIX = 'add "torch==X.Y.Z+cu130" to the requirements, or to a file of this stage in UV_OVERRIDE'
OVERRIDE_FIX = 'RUN echo "torch==X.Y.Z+cu130" > /opt/override.txt and ENV UV_OVERRIDE=/opt/override.txt in this stage'
CONSTRAINT_FIX = (
    'RUN echo "torch==X.Y.Z+cu130" > /opt/constraint.txt and ENV PIP_CONSTRAINT=/opt/constraint.txt in this stage'
)
KEEP_FIX = (
    "RUN pip freeze | grep '^torch==' > /opt/torch.txt and ENV {name}=/opt/torch.txt in this stage, "
    "to keep the torch of the image"
)
ENGINE = re.compile(rf"\b({'|'.join(sorted(ENGINES))})\b")
TORCH_LINE = re.compile(r"(?<![\w.-])torch(?![\w./-]*\.(py|txt)\b|\w)")
EDITORS = frozenset({"sed", "grep", "perl"})
NIGHTLY = re.compile(r"\.dev[0-9]{8}(?![0-9])")
"""The day of a nightly build: its companions of the same day need the torch of that day."""
FULL_VERSION = re.compile(r"[0-9][^$`*]*\+[^$`*]+")


class _NamedFile(NamedTuple):
    """A file of an option or variable. `may_exist`: whether the stage may create it."""

    path: str
    text: str | None
    may_exist: bool


@dataclass(frozen=True)
class _TorchPins:
    """The torch pins of a stage: in calls of the stage and its parents, and in the files of their options.

    `file_strips`: a stage of the file removes torch from the requirements of the engine that it builds.
    """

    stage: BuildStage
    file_strips: bool = False
    copied: tuple[BuildStage, ...] = ()
    """The stages whose Python packages it copies."""

    @cached_property
    def installing(self) -> list[Install]:
        """Its own calls that may install torch."""
        return [install for install in self.stage.installs if install.may_install_torch]

    @property
    def image_has_torch(self) -> bool:
        """Whether its image has a torch, or an unknown name."""
        return bool(HAS_TORCH.search(self.stage.root)) or UNKNOWN_IMAGE in self.stage.root

    @property
    def line(self) -> int:
        """The line of its first own call, else its own line."""
        return next((install.line for install in self.installing or self.stage.installs), self.stage.line)

    @cached_property
    def installs(self) -> list[Install]:
        """The calls of its parents and its own."""
        return [install for stage in self.stage.lineage for install in stage.installs]

    @cached_property
    def environment(self) -> list[Install]:
        """The calls that filled its Python: those of stages whose packages it copies, of its parents and its own."""
        return [*(install for stage in self.copied for install in _TorchPins(stage).installs), *self.installs]

    @cached_property
    def files(self) -> WrittenFiles:
        return written_files(self.stage)

    @property
    def overrides(self) -> bool:
        """Whether one of its calls has an override, by option or variable."""
        return any(self.named_files(install, OVERRIDES) for install in self.installs)

    def named_files(self, install: Install, names: tuple[str, ...]) -> list[_NamedFile]:
        """Return the files in these options and variables of a call."""
        paths = install.option(*names) + [path for name in names for path in install.setting(name).split()]
        return [self._file(install, path) for path in paths]

    def _file(self, install: Install, path: str) -> _NamedFile:
        if path.startswith("<("):
            return _NamedFile(path, path, may_exist=True)
        absolute = located(install.directory, path)
        return _NamedFile(path, self.files.contents.get(absolute), self.files.has(absolute))

    @cached_property
    def pinning_files(self) -> list[_NamedFile]:
        """The files that may pin torch: overrides, constraints and requirements."""
        return [file for install in self.installs for file in self.named_files(install, PINNING)]

    @cached_property
    def pins(self) -> list[str]:
        """The versions of torch in its requirements and the files of its options, such as 2.11.0+cu130."""
        versions = [pin for install in self.installs for pin in install.pins]
        versions += [pin for file in self.pinning_files for pin in pins(file.text or "")]
        backend = next((install.backend for install in self.installs if install.backend), "")
        return [pin if "+" in pin or not backend else f"{pin}+{backend}" for pin in dict.fromkeys(versions)]

    @property
    def own_pins(self) -> list[str]:
        """Its `pins` without those of its parent, where they are reported."""
        parent = _TorchPins(self.stage.parent).pins if self.stage.parent else []
        return [pin for pin in self.pins if pin not in parent]

    @property
    def strips(self) -> bool:
        """Whether vLLM's use_existing_torch.py, or an editor, removes torch from the requirements of a source."""
        calls = (call for stage in self.stage.lineage for call in stage.calls)
        return any(
            word.endswith("use_existing_torch.py") or (call.program in EDITORS and TORCH_LINE.search(word))
            for call in calls
            for word in call.argv
        )

    def torch_before(self, install: Install) -> str | None:
        """Return the version of torch before a call; empty if unknown, None without torch."""
        torch = _torch_of_image(self.stage.root) if self.image_has_torch else None
        for call in self.environment[: self.environment.index(install)]:
            names = PINNING if call.engines else ("--requirement",)
            pinned = [*call.pins, *(pin for file in self.named_files(call, names) for pin in pins(file.text or ""))]
            if call.verb == "uninstall":
                torch = None if call.names_torch else torch
            elif pinned:
                torch = pinned[0]
            elif call.names_torch and call.adds:
                torch = "" if torch is None or call.changes("torch") else torch
            elif torch is None and call.engines:
                needed = (required(package(engine, call.directory), version(engine)) for engine in call.engines)
                torch = next((text.removeprefix("torch==") for text in needed if text and "==" in text), "")
            elif torch is None and call.takes_engines and self._unread(call):
                torch = ""
        return torch

    def _clones(self, name: str) -> bool:
        """Return whether a call clones a repository of this name at its newest commit."""
        argvs = (call.argv for stage in self.stage.lineage for call in stage.calls if call.program == "git")
        cloned = (argv for argv in argvs if "clone" in argv and not {"-b", "--branch"} & set(argv))
        return any(package(word, "/") == name for argv in cloned for word in argv if "/" in word)

    def _pins_later(self, install: Install) -> bool:
        """Return whether a later call of the stage installs a pinned torch, so that it does not matter which came."""
        return any(call.pins and call.adds for call in self.installs[self.installs.index(install) + 1 :])

    def _installs_list_of(self, install: Install, source: str) -> bool:
        """Return whether an earlier call installs the requirements file of a source, whose torch it then has."""
        folder = located(install.directory, source)
        for call in self.installs[: self.installs.index(install)]:
            for file in self.named_files(call, ("--requirement",)) if call.takes_engines else ():
                path = located(call.directory, file.path)
                if file.text is None and "build" not in path and ("cuda" in path or path.startswith(f"{folder}/")):
                    return True
        return False

    def _unread(self, install: Install) -> bool:
        """Return whether a call installs requirements that the Dockerfile does not have, with which torch may come."""
        return install.verb == "sync" or any(
            file.text is None for file in self.named_files(install, ("--requirement",))
        )

    def replacing(self, build: StagedBuild, install: Install) -> Iterator[str]:
        """Yield the requirements of a call that choose torch, or may replace the installed one."""
        torch = self.torch_before(install)
        chosen = install.backend not in ("", "cpu") and not torch and not self.image_has_torch
        if install.pins or chosen:
            return
        requirements = self.named_files(install, ("--requirement",))
        if any(file.text is None or pins(file.text) for file in requirements):
            return
        every = install.changes("torch") if install.tool == "uv" else install.option("--force-reinstall")
        listed = (line for file in requirements for line in lines(file.text or "")) if install.takes_engines else ()
        for requirement in (*install.engines, *needing_torch(listed, install.directory)):
            name, wanted = package(requirement, install.directory), version(requirement)
            built = requirement in install.option("--editable") or bool(SOURCE.fullmatch(requirement))
            if ".whl" in requirement and wheel_name(requirement) == UNNAMED:
                if self.unnamed_may_replace(build, install, requirement, torch):
                    yield requirement
            elif (
                name not in NEEDS_TORCH
                or "$" in wanted
                or (self.strips and built)
                or (built and not torch and self._installs_list_of(install, requirement))
            ):
                continue
            elif torch is None:
                if (name in BOUND or ".whl" in requirement) and not self._pins_later(install):
                    yield requirement
            elif every or not (
                self.has(install, name, wanted, built=built) or self.suits(name, wanted, requirement, torch)
            ):
                yield requirement

    def has(self, install: Install, name: str, wanted: str, *, built: bool) -> bool:
        """Return whether the image or an earlier call has the package in a version that does.

        A source that is `built` counts as that of the image, unless it is a clone of a branch that goes on.
        """
        if install.changes(name) or (built and self._clones(name)):
            return False
        before = self.environment[: self.environment.index(install)]
        earlier = (call for call in before if call.tool == install.tool)
        named = (text for call in earlier for text in call.engines if package(text, call.directory) == name)
        if any(not wanted or version(text) == wanted for text in named):
            return True
        companion = name == "torchvision" and self.image_has_torch and UNKNOWN_IMAGE not in self.stage.root
        return (name in self.stage.root or companion) and (not wanted or wanted in self.stage.root)

    def suits(self, name: str, wanted: str, requirement: str, torch: str) -> bool:
        """Return whether a package needs no other torch than the installed one."""
        if name in BOUND and (built_for := _torch_of_wheel(requirement)):
            return built_for in {"".join(pin.split(".")[:2]) for pin in [*self.pins, torch] if pin}
        if name in BOUND and (day := NIGHTLY.search(wanted)) and day[0] in torch:
            return True
        needed = required(name, wanted)
        if needed is None:
            return name not in BOUND or bool(wanted and release(torch))  # a pair of versions was tried together
        if not release(torch):
            return not BINDS.search(needed)
        return admits(needed, torch)

    def unnamed_may_replace(self, build: StagedBuild, install: Install, requirement: str, torch: str | None) -> bool:
        """Return whether wheels without a name, such as all of a directory, may replace torch."""
        path = _path(install, requirement)
        if not install.changes("torch"):
            inherited = (call for call in self.installs if call not in self.stage.installs)
            if any(_path(call, engine) == path for call in inherited for engine in call.engines):
                return False
        names = wheels_in(build, self.stage, posixpath.dirname(path))
        if UNNAMED in names:
            texts = (instruction.rest.text for instruction in build.dockerfile.instructions)
            return install.tool == "uv" or any(map(ENGINE.search, texts))
        if torch is None:
            return bool(names & NEEDS_TORCH)
        return bool(names & ENGINES) and not (install.tool == "pip" and self.file_strips)

    @property
    def may_pin(self) -> bool:
        """Whether a file that may pin torch comes from elsewhere, so that its text is unknown."""
        return any(file.may_exist and file.text is None for file in self.pinning_files)


def _torch_of_image(image: str) -> str:
    """Return the version of torch in an image, from its tag; empty if unknown."""
    if named := re.search(r"torch[-_]?([0-9]+\.[0-9.]*[0-9])", image):
        return named[1]
    if digits := re.search(r"torch([0-9])([0-9]{1,2})([0-9])(?![0-9.])", image):  # as torch260 in tags of runpod
        return ".".join(digits.groups())
    name, _, tag = image.rpartition("/")[2].partition(":")
    number = re.match(r"v?([0-9]+(\.[0-9]+)+)(?![0-9a-z.]*(rc|dev|a[0-9]))", tag)
    if not number or image.startswith("nvcr.io/"):
        return ""
    engine = next((engine for engine in ("sglang", "vllm") if engine in name), "")
    needed = required(engine, number[1]) if engine else f"torch=={number[1]}" if name == "pytorch" else ""
    return (needed or "").removeprefix("torch==")


def _path(install: Install, requirement: str) -> str:
    """Return a wheel by its path from the root, also of `$(echo PATH)`; any other requirement unchanged."""
    plain = re.sub(r"\$\(echo |\)", "", requirement)
    return located(install.directory, plain) if ".whl" in plain else plain


def _torch_of_wheel(requirement: str) -> str:
    """Return the torch in the build tag of a wheel, as 28 for 2.8; empty without one."""
    match = re.search(r"\+[^/]*torch([0-9])\.?([0-9]+)", requirement)
    return match[1] + match[2] if match else ""


def check_pin(build: StagedBuild) -> Iterator[Violation]:
    """Yield a line of each stage for CUDA that installs an engine, a wheel or torch without a pinned build of torch."""
    first: tuple[str, str] | None = None
    for stage_pins in map(_TorchPins, cuda_stages(build)):
        name = stage_pins.stage.name
        yield from _empty(build, stage_pins)
        yield from _other_cuda(stage_pins)
        if stage_pins.installing and not stage_pins.image_has_torch:
            for problem in _unpinned(stage_pins):
                yield Violation(stage_pins.line, f"stage {name} {problem}", PIN_FIX)
        for pin in filter(FULL_VERSION.fullmatch, stage_pins.own_pins):
            first = first or (pin, name)
            if pin != first[0]:
                differing = f"stage {name} pins torch {pin}, and stage {first[1]} {first[0]}"
                problem = f"{differing}, expected one version: code compiled for one fails with the other"
                yield Violation(stage_pins.line, problem, PIN_FIX)
                break


def _empty(build: StagedBuild, stage_pins: _TorchPins) -> Iterator[Violation]:
    """Yield each installation of torch with a variable that only an ARG before the first FROM sets."""
    for install in stage_pins.installing:
        for name in dict.fromkeys(VARIABLE.findall(" ".join(install.call.argv))):
            if name in build.arguments and name not in install.call.environment:
                words = (word for word in install.call.argv if name in VARIABLE.findall(word))
                problem = f"{next(words)}: {name} is empty here, because an ARG before the first FROM has no effect"
                yield Violation(install.line, f"{problem} in a stage, expected ARG {name} in it", f"ARG {name}")


def _other_cuda(stage_pins: _TorchPins) -> Iterator[Violation]:
    """Yield the first installation for another major version of CUDA than the image has."""
    image = stage_pins.stage.root
    if not (version := IMAGE_CUDA.search(image)):
        return
    for install in stage_pins.installing:
        builds = [*install.builds, *(pin.partition("+")[2] for pin in install.pins)]
        for build in filter(CUDA_BUILD.fullmatch, builds):
            if build[2:4] != version[1]:
                problem = f"installs code for {build} on the image {image}, expected the CUDA {version[1]} of the image"
                yield Violation(
                    install.line, f"stage {stage_pins.stage.name} {problem}", f"an index for cu{version[1]}N"
                )
                return


def _unpinned(stage_pins: _TorchPins) -> Iterator[str]:
    """Yield the problems of the pins of a stage."""
    inherited = stage_pins.stage.parent and _TorchPins(stage_pins.stage.parent).installing
    if not stage_pins.pins and not stage_pins.may_pin and not inherited and not stage_pins.strips:
        requirements = " ".join(stage_pins.installing[0].requirements[:3]) or "requirements"
        yield f"installs {requirements} without a torch pin, expected torch==X.Y.Z+cuNNN in the stage itself"
    for pin in stage_pins.own_pins:
        version, _, local = pin.partition("+")
        if "*" in version:
            yield f"pins torch to {pin}, expected a full version and build, X.Y.Z+cuNNN"
        elif version[:1].isdigit() and not local:
            yield f"pins torch=={pin} without a build (it may be for the CPU), expected +cuNNN or --torch-backend"
        elif local == "cpu" and CUDA.search(stage_pins.stage.root):
            yield f"pins torch=={pin} on the CUDA image {stage_pins.stage.root}, expected +cuNNN"


def check_override(build: StagedBuild) -> Iterator[Violation]:
    """Yield, for each stage and problem, the first call that may replace torch."""
    strips = any(_TorchPins(stage).strips for stage in build.stages)
    all_pins = [_TorchPins(stage, strips, copied_environments(build, stage)) for stage in cuda_stages(build)]
    overriding = next((stage_pins.stage.name for stage_pins in all_pins if stage_pins.overrides), "")
    for stage_pins in all_pins:
        problems: dict[str, list[tuple[Install, str]]] = {}
        for install in stage_pins.stage.installs:
            if install.adds and install.verb != "add" and (problem := _problem(build, stage_pins, install, overriding)):
                problems.setdefault(f"{install.tool} {problem.partition(': ')[2]}", []).append((install, problem))
        for (install, problem), *others in problems.values():
            lines = f" (also on line {', '.join(str(other.line) for other, _ in others)})" if others else ""
            yield Violation(install.line, problem + lines, _override_fix(stage_pins, install))


def _problem(build: StagedBuild, stage_pins: _TorchPins, install: Install, overriding: str) -> str:
    """Return the problem of a call; empty if it keeps torch. `overriding` is a stage with an override."""
    if anew := _replaced(stage_pins, install):
        return anew
    if replacing := next(stage_pins.replacing(build, install), ""):
        return _replaceable(stage_pins, install, replacing)
    if install.tool != "uv" or not (install.pins and install.engines and overriding) or stage_pins.overrides:
        return ""
    without = f"{install.engines[0]} is installed without {' or '.join(OVERRIDES)}, which stage {overriding} has"
    return f"{without}: uv may choose other versions, expected the same file in each stage"


def _replaced(stage_pins: _TorchPins, install: Install) -> str:
    """Return the problem of a call that replaces an installed torch by naming it; empty if it does not."""
    if stage_pins.torch_before(install) is None or UNKNOWN_IMAGE in stage_pins.stage.root:
        return ""
    earlier = stage_pins.installs[: stage_pins.installs.index(install)]
    if install.names_torch and install.for_cpus and not any(call.for_cpus for call in earlier):
        return "torch for CPUs is installed over another torch: expected its build for CUDA, +cuNNN"
    option = install.changes("torch")
    if install.names_torch and option and not install.pins and not _safe(stage_pins, install):
        return f"torch is installed with {option} and without a version: it replaces the installed one, expected a pin"
    return ""


def _override_fix(stage_pins: _TorchPins, install: Install) -> str:
    if stage_pins.image_has_torch:
        return KEEP_FIX.format(name="UV_OVERRIDE" if install.tool == "uv" else "PIP_CONSTRAINT")
    return OVERRIDE_FIX if install.tool == "uv" else CONSTRAINT_FIX


def _replaceable(stage_pins: _TorchPins, install: Install, engine: str) -> str:
    """Return why a call may replace torch; empty if a file of its options may pin torch."""
    if _safe(stage_pins, install):
        return ""
    names = PINNING_OF[install.tool]
    if not (named := stage_pins.named_files(install, names)):
        without = f"{engine} is installed without {' or '.join(OVERRIDES if install.tool == 'uv' else CONSTRAINTS)}"
        effect = "choose the torch" if stage_pins.torch_before(install) is None else "may replace torch"
        return f"{without}: its requirements {effect}, expected a file that pins torch"
    if missing := [file.path for file in named if not file.may_exist]:
        return f"stage {stage_pins.stage.name} does not write {missing[0]}, expected a file that pins torch"
    return f"{named[0].path} does not pin torch, expected torch==X.Y.Z+cuNNN in it"


def _safe(stage_pins: _TorchPins, install: Install) -> bool:
    """Return whether a file of its options, or the constraints of its image, may pin torch."""
    unset = install.call.environment.get("PIP_CONSTRAINT") == ""
    if install.tool == "pip" and not unset and CONSTRAINS_PIP.search(stage_pins.stage.root):
        return True
    named = stage_pins.named_files(install, PINNING_OF[install.tool])
    return any(file.may_exist and (file.text is None or pins(file.text)) for file in named)
