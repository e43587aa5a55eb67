"""One torch, of one build, in every stage, and no installation that may replace it."""

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
BRINGS_TORCH = re.compile(r"vllm|sglang|torch|tensorrt", re.IGNORECASE)
"""Images that have a torch, which no pin may replace."""
UNKNOWN_IMAGE = "$"
HOLDS_PIP = re.compile(r"nvcr\.io/nvidia/(pytorch|vllm|sglang|tritonserver)")
"""Images whose environment has a PIP_CONSTRAINT with their own torch (containers of NVIDIA's frameworks)."""
PIN_FIX = 'add "torch==X.Y.Z+cu130" to the requirements here, or to a file of this stage that UV_OVERRIDE names'
OVERRIDE_FIX = 'RUN echo "torch==X.Y.Z+cu130" > /opt/override.txt and ENV UV_OVERRIDE=/opt/override.txt in this stage'
CONSTRAINT_FIX = (
    'RUN echo "torch==X.Y.Z+cu130" > /opt/constraint.txt and ENV PIP_CONSTRAINT=/opt/constraint.txt in this stage'
)
KEEP_FIX = (
    "RUN pip freeze | grep '^torch==' > /opt/torch.txt and ENV {name}=/opt/torch.txt in this stage, "
    "which keeps the torch of the image"
)
UPGRADES = ("--upgrade", "-U", "--reinstall", "--force-reinstall")
UNNAMED_WHEEL = re.compile(r"(.*/)?\*\.whl")
"""Every wheel of a directory."""
FULL_VERSION = re.compile(r"[0-9][^$`*]*\+[^$`*]+")


class _NamedFile(NamedTuple):
    """A file that an option or a variable names. `may_exist`: whether anything makes it or may make it."""

    path: str
    text: str | None
    may_exist: bool


@dataclass(frozen=True)
class _Hold:
    """What pins torch in a stage: the calls of the stage and its parents, and the files that these name.

    `file_strips`: a stage of the file removes torch from the requirements of the engine that it builds.
    """

    stage: BuildStage
    file_strips: bool = False

    @cached_property
    def bringing(self) -> list[Install]:
        """Its own calls that may install torch."""
        return [install for install in self.stage.installs if install.may_bring_torch]

    @property
    def image_has_torch(self) -> bool:
        """Whether its image has a torch, or may have one because its name is unknown."""
        return bool(BRINGS_TORCH.search(self.stage.root)) or UNKNOWN_IMAGE in self.stage.root

    @property
    def line(self) -> int:
        """The line of its first own call, or its own line if there is none."""
        return next((install.line for install in self.bringing or self.stage.installs), self.stage.line)

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
        """Return the files that these options and variables of a call name."""
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
        """The torch that its requirements and the files behind its options name, such as 2.11.0+cu130."""
        versions = [pin for install in self.installs for pin in install.pins]
        versions += [pin for file in self.pinning_files for pin in pins(file.text or "")]
        backend = next((install.backend for install in self.installs if install.backend), "")
        return [pin if "+" in pin or not backend else f"{pin}+{backend}" for pin in dict.fromkeys(versions)]

    @property
    def own_pins(self) -> list[str]:
        """Those of `pins` that are not pins of its parent, where they are reported."""
        parent = _Hold(self.stage.parent).pins if self.stage.parent else []
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
    """Return the torch in the build tag of a wheel, as 28 for 2.8; empty if it names none."""
    match = re.search(r"\+[^/]*torch([0-9])\.?([0-9]+)", requirement)
    return match[1] + match[2] if match else ""


def check_pin(build: StagedBuild) -> Iterator[Violation]:
    """Yield a line in each stage for CUDA that installs an engine, a wheel or torch, and pins no build of torch."""
    first: tuple[str, str] | None = None
    for hold in map(_Hold, cuda_stages(build)):
        name = hold.stage.name
        if hold.bringing and not hold.image_has_torch:
            for problem in _unpinned(hold):
                yield Violation(hold.line, f"stage {name} {problem}", PIN_FIX)
        for pin in filter(FULL_VERSION.fullmatch, hold.own_pins):
            first = first or (pin, name)
            if pin != first[0]:
                differing = f"stage {name} holds torch to {pin}, and stage {first[1]} to {first[0]}"
                problem = f"{differing}, expected one torch: what is compiled for one fails in the other"
                yield Violation(hold.line, problem, PIN_FIX)
                break


def _unpinned(hold: _Hold) -> Iterator[str]:
    """Yield what is wrong with the pins of a stage."""
    inherited = hold.stage.parent and _Hold(hold.stage.parent).bringing
    if not hold.pins and not hold.may_pin and not inherited and not hold.strips:
        requirements = " ".join(hold.bringing[0].requirements[:3]) or "requirements"
        yield f"installs {requirements} and pins no torch, expected torch==X.Y.Z+cuNNN in the stage itself"
    for pin in hold.own_pins:
        version, _, local = pin.partition("+")
        if "*" in version:
            yield f"pins torch to {pin}, expected a whole version and its build, X.Y.Z+cuNNN"
        elif version[:1].isdigit() and not local:
            yield f"pins torch=={pin} without its build, which may be the CPU's, expected +cuNNN or --torch-backend"
        elif local == "cpu" and CUDA.search(hold.stage.root):
            yield f"pins torch=={pin} on the CUDA image {hold.stage.root}, expected +cuNNN"


def check_override(build: StagedBuild) -> Iterator[Violation]:
    """Yield, for each stage and problem, the first call that installs an engine without a file that pins torch."""
    strips = any(_Hold(stage).strips for stage in build.stages)
    holds = [_Hold(stage, strips) for stage in cuda_stages(build)]
    overriding = next((hold.stage.name for hold in holds if hold.overrides), "")
    for hold in holds:
        problems: dict[str, list[tuple[Install, str]]] = {}
        for install in hold.bringing:
            if install.verb != "add" and (problem := _problem(hold, install, overriding)):
                problems.setdefault(f"{install.tool} {problem.partition(': ')[2]}", []).append((install, problem))
        for (install, problem), *others in problems.values():
            lines = f" (also on line {', '.join(str(other.line) for other, _ in others)})" if others else ""
            yield Violation(install.line, problem + lines, _override_fix(hold, install))


def _problem(hold: _Hold, install: Install, overriding: str) -> str:
    """Return what is wrong with a call; empty if it keeps torch. `overriding` is a stage with an override."""
    if replacing := hold.replacing(install):
        return _replaceable(hold, install, replacing[0])
    if install.tool != "uv" or not (install.pins and install.engines and overriding) or hold.overrides:
        return ""
    without = f"{install.engines[0]} is installed without {' or '.join(OVERRIDES)}, which stage {overriding} has"
    return f"{without}: uv may find no versions that fit, or others, expected the same file in each stage"


def _override_fix(hold: _Hold, install: Install) -> str:
    if hold.image_has_torch:
        return KEEP_FIX.format(name="UV_OVERRIDE" if install.tool == "uv" else "PIP_CONSTRAINT")
    return OVERRIDE_FIX if install.tool == "uv" else CONSTRAINT_FIX


def _replaceable(hold: _Hold, install: Install, engine: str) -> str:
    """Return why a call may replace torch; empty if a file that it names pins torch, or may do so."""
    names = OVERRIDES if install.tool == "uv" else CONSTRAINTS
    if install.tool == "pip" and HOLDS_PIP.search(hold.stage.root):
        return ""
    named = hold.named_files(install, names)
    if not named:
        without = f"{engine} is installed without {' or '.join(names)}"
        return f"{without}: what it asks for may replace torch, expected a file there that pins torch"
    if missing := [file.path for file in named if not file.may_exist]:
        return f"nothing in stage {hold.stage.name} writes {missing[0]}, expected a file there that pins torch"
    if not any(file.text is None or pins(file.text) for file in named):
        return f"{named[0].path} does not name torch, expected torch==X.Y.Z+cuNNN in it"
    return ""
