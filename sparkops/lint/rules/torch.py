"""Check that every stage pins the same torch and build, and that no installation may replace it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sparkops.lint.finding import Violation
from sparkops.lint.installs import SOURCE, Install, pins
from sparkops.lint.rules.cuda import cuda_stages
from sparkops.lint.stages import BuildStage, StagedBuild
from sparkops.lint.written import WrittenFiles, files, located

OVERRIDES = ("--override", "UV_OVERRIDE")
CONSTRAINTS = ("--constraint", "PIP_CONSTRAINT")
PINNING = (*OVERRIDES, *CONSTRAINTS, "UV_CONSTRAINT", "--requirement")
CUDA = re.compile(r"cuda|nvidia|nvcr\.io", re.IGNORECASE)
HAS_TORCH = re.compile(r"vllm|sglang|torch|tensorrt", re.IGNORECASE)
"""Images with their own torch, which no pin may replace."""
UNKNOWN_IMAGE = "$"
CONSTRAINS_PIP = re.compile(r"nvcr\.io/nvidia/(pytorch|vllm|sglang|tritonserver)")
"""NVIDIA's framework images, whose environment has a PIP_CONSTRAINT with their own torch."""
PIN_FIX = 'add "torch==X.Y.Z+cu130" to the requirements, or to a file of this stage in UV_OVERRIDE'
OVERRIDE_FIX = 'RUN echo "torch==X.Y.Z+cu130" > /opt/override.txt and ENV UV_OVERRIDE=/opt/override.txt in this stage'
CONSTRAINT_FIX = (
    'RUN echo "torch==X.Y.Z+cu130" > /opt/constraint.txt and ENV PIP_CONSTRAINT=/opt/constraint.txt in this stage'
)
KEEP_FIX = (
    "RUN pip freeze | grep '^torch==' > /opt/torch.txt and ENV {name}=/opt/torch.txt in this stage, "
    "to keep the torch of the image"
)
UPGRADES = ("--upgrade", "-U", "--reinstall", "--force-reinstall")
UNNAMED_WHEEL = re.compile(r"(.*/)?\*\.whl")
"""Every wheel of a directory."""
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
    def files(self) -> WrittenFiles:
        return files(self.stage)

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
        """Whether vLLM's use_existing_torch.py removes torch from the requirements of a source."""
        calls = (call for stage in self.stage.lineage for call in stage.calls)
        return any(word.endswith("use_existing_torch.py") for call in calls for word in call.argv)

    def replacing(self, install: Install) -> list[str]:
        """Return the requirements of a call that may replace torch."""
        if install.pins:
            return []
        earlier = self.installs[: self.installs.index(install)]
        has_torch = self.image_has_torch or any(call.names_torch for call in earlier)
        engines = install.replacing if has_torch else install.engines
        if not install.option(*UPGRADES):
            inherited = (call for call in earlier if call not in self.stage.installs)
            installed = {_path(call, engine) for call in inherited for engine in call.engines}
            engines = [engine for engine in engines if _path(install, engine) not in installed]
        if has_torch and self.file_strips:
            engines = [engine for engine in engines if not UNNAMED_WHEEL.fullmatch(engine)]
        pinned = {"".join(pin.split(".")[:2]) for pin in self.pins}
        engines = [engine for engine in engines if _torch_of_wheel(engine) not in pinned]
        if self.strips:
            engines = [engine for engine in engines if ".whl" in engine or not SOURCE.fullmatch(engine)]
        return engines

    @property
    def may_pin(self) -> bool:
        """Whether a file that may pin torch comes from elsewhere, so that its text is unknown."""
        return any(file.may_exist and file.text is None for file in self.pinning_files)


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
    """Yield, for each stage and problem, the first call that installs an engine without a file that pins torch."""
    strips = any(_TorchPins(stage).strips for stage in build.stages)
    all_pins = [_TorchPins(stage, strips) for stage in cuda_stages(build)]
    overriding = next((stage_pins.stage.name for stage_pins in all_pins if stage_pins.overrides), "")
    for stage_pins in all_pins:
        problems: dict[str, list[tuple[Install, str]]] = {}
        for install in stage_pins.installing:
            if install.verb != "add" and (problem := _problem(stage_pins, install, overriding)):
                problems.setdefault(f"{install.tool} {problem.partition(': ')[2]}", []).append((install, problem))
        for (install, problem), *others in problems.values():
            lines = f" (also on line {', '.join(str(other.line) for other, _ in others)})" if others else ""
            yield Violation(install.line, problem + lines, _override_fix(stage_pins, install))


def _problem(stage_pins: _TorchPins, install: Install, overriding: str) -> str:
    """Return the problem of a call; empty if it keeps torch. `overriding` is a stage with an override."""
    if replacing := stage_pins.replacing(install):
        return _replaceable(stage_pins, install, replacing[0])
    if install.tool != "uv" or not (install.pins and install.engines and overriding) or stage_pins.overrides:
        return ""
    without = f"{install.engines[0]} is installed without {' or '.join(OVERRIDES)}, which stage {overriding} has"
    return f"{without}: uv may choose other versions, expected the same file in each stage"


def _override_fix(stage_pins: _TorchPins, install: Install) -> str:
    if stage_pins.image_has_torch:
        return KEEP_FIX.format(name="UV_OVERRIDE" if install.tool == "uv" else "PIP_CONSTRAINT")
    return OVERRIDE_FIX if install.tool == "uv" else CONSTRAINT_FIX


def _replaceable(stage_pins: _TorchPins, install: Install, engine: str) -> str:
    """Return why a call may replace torch; empty if a file of its options may pin torch."""
    names = OVERRIDES if install.tool == "uv" else CONSTRAINTS
    if install.tool == "pip" and CONSTRAINS_PIP.search(stage_pins.stage.root):
        return ""
    named = stage_pins.named_files(install, names)
    if not named:
        without = f"{engine} is installed without {' or '.join(names)}"
        return f"{without}: its requirements may replace torch, expected a file that pins torch"
    if missing := [file.path for file in named if not file.may_exist]:
        return f"stage {stage_pins.stage.name} does not write {missing[0]}, expected a file that pins torch"
    if not any(file.text is None or pins(file.text) for file in named):
        return f"{named[0].path} does not pin torch, expected torch==X.Y.Z+cuNNN in it"
    return ""
