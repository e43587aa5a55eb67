"""One torch, of one build, in every stage, and no installation that may put another one in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sparkops.lint.finding import Found
from sparkops.lint.installs import SOURCE, Install, pins
from sparkops.lint.platform import cuda_stages
from sparkops.lint.stages import BuildStage, StagedBuild
from sparkops.lint.written import WrittenFiles, files, located

OVERRIDES = ("--override", "UV_OVERRIDE")
CONSTRAINTS = ("--constraint", "PIP_CONSTRAINT")
HOLDING = (*OVERRIDES, *CONSTRAINTS, "UV_CONSTRAINT")
REQUIREMENTS = ("--requirement",)
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
WHOLE = re.compile(r"[0-9][^$`*]*\+[^$`*]+")


class _Named(NamedTuple):
    """A file that an option or a variable names; `there`: whether anything makes it or may make it."""

    path: str
    text: str | None
    there: bool


@dataclass(frozen=True)
class _Holding:
    """What holds torch in a stage: its own calls, those of the stages that it begins with, and their files.

    `file_strips`: a stage of the file takes torch out of the requirements of the engine that it builds.
    """

    stage: BuildStage
    file_strips: bool = False

    @cached_property
    def asking(self) -> list[Install]:
        """Its own calls that may bring a torch."""
        return [each for each in self.stage.installs if each.may_bring_torch]

    @property
    def has_own(self) -> bool:
        """Whether its image has a torch, or may have one because its name is not known here."""
        return bool(BRINGS_TORCH.search(self.stage.root)) or UNKNOWN_IMAGE in self.stage.root

    @property
    def lines(self) -> list[int]:
        """The lines of its own calls, or its own line if there is none."""
        return [each.line for each in self.asking or self.stage.installs] or [self.stage.line]

    @cached_property
    def inherited(self) -> list[Install]:
        return [each for stage in self.stage.lineage for each in stage.installs]

    @cached_property
    def files(self) -> WrittenFiles:
        return files(self.stage)

    @property
    def overrides(self) -> bool:
        """Whether one of its calls has an override, by option or variable."""
        return any(self.named(each, OVERRIDES) for each in self.inherited)

    def named(self, install: Install, names: tuple[str, ...]) -> list[_Named]:
        given = install.option(*names) + [path for name in names for path in install.setting(name).split()]
        return [self._file(install, each) for each in given]

    def _file(self, install: Install, path: str) -> _Named:
        if path.startswith("<("):
            return _Named(path, path, there=True)
        whole = located(install.directory, path)
        return _Named(path, self.files.contents.get(whole), self.files.has(whole))

    @cached_property
    def pins(self) -> list[str]:
        """The torch that its requirements and the files behind its options name, such as 2.11.0+cu130."""
        named = [file for each in self.inherited for file in self.named(each, HOLDING + REQUIREMENTS)]
        found = [pin for each in self.inherited for pin in each.pins]
        found += [pin for file in named for pin in pins(file.text or "")]
        return [pin if "+" in pin or not self.backend else f"{pin}+{self.backend}" for pin in dict.fromkeys(found)]

    @property
    def own_pins(self) -> list[str]:
        """Those of `pins` that its own calls name: the others are told in the stage that it begins with."""
        parent = _Holding(self.stage.parent).pins if self.stage.parent else []
        return [pin for pin in self.pins if pin not in parent]

    @property
    def strips(self) -> bool:
        """Whether vLLM's use_existing_torch.py takes torch out of the requirements of a source."""
        calls = (call for stage in self.stage.lineage for call in stage.calls)
        return any(word.endswith("use_existing_torch.py") for call in calls for word in call.argv)

    def replacing(self, install: Install) -> list[str]:
        """Return the requirements of a call that may put another torch in place."""
        if install.pins:
            return []
        earlier = self.inherited[: self.inherited.index(install)]
        present = self.has_own or any(each.names_torch for each in earlier)
        found = install.replacing if present else install.engines
        if not install.option(*UPGRADES):
            below = {_path(each, one) for each in earlier if each not in self.stage.installs for one in each.engines}
            found = [each for each in found if _path(install, each) not in below]
        if present and self.file_strips:
            found = [each for each in found if not UNNAMED_WHEEL.fullmatch(each)]
        found = [each for each in found if _torch_of_wheel(each) not in map(_short, self.pins)]
        return [each for each in found if ".whl" in each or SOURCE.fullmatch(each) is None] if self.strips else found

    @property
    def unread(self) -> bool:
        """Whether a file that may hold torch comes from elsewhere, so that its text is not known."""
        named = (file for each in self.inherited for file in self.named(each, HOLDING + REQUIREMENTS))
        return any(file.there and file.text is None for file in named)

    @cached_property
    def backend(self) -> str:
        return next((each.backend for each in self.inherited if each.backend), "")


def _path(install: Install, requirement: str) -> str:
    """Return a wheel by its path from the root, `$(echo PATH)` as well; any other requirement as it is."""
    plain = re.sub(r"\$\(echo |\)", "", requirement)
    return located(install.directory, plain) if ".whl" in plain else plain


def _torch_of_wheel(requirement: str) -> str:
    """Return the torch that the name of a wheel says it is built for, as 28 for 2.8; empty where it says none."""
    named = re.search(r"\+[^/]*torch([0-9])\.?([0-9]+)", requirement)
    return named[1] + named[2] if named else ""


def _short(pin: str) -> str:
    return "".join(pin.split(".")[:2])


def check_pin(build: StagedBuild) -> Iterator[Found]:
    """Yield a line in each stage for CUDA that installs an engine, a wheel or torch, and pins no build of torch."""
    first: tuple[str, str] | None = None
    for holding in map(_Holding, cuda_stages(build)):
        name = holding.stage.name
        if holding.asking and not holding.has_own:
            for problem in _unpinned(holding):
                yield Found(holding.asking[0].line, f"stage {name} {problem}", PIN_FIX)
        for pin in filter(WHOLE.fullmatch, holding.own_pins):
            first = first or (pin, name)
            if pin != first[0]:
                told = f"stage {name} holds torch to {pin}, and stage {first[1]} to {first[0]}"
                problem = f"{told}, expected one torch: what is compiled for one fails in the other"
                yield Found(holding.lines[0], problem, PIN_FIX)
                break


def _unpinned(holding: _Holding) -> Iterator[str]:
    """Yield what is wrong with how the stage holds torch."""
    inherited = holding.stage.parent and _Holding(holding.stage.parent).asking
    if not holding.pins and not holding.unread and not inherited and not holding.strips:
        what = " ".join(holding.asking[0].requirements[:3]) or "requirements"
        yield f"installs {what} and pins no torch, expected torch==X.Y.Z+cuNNN in the stage itself"
    for pin in holding.own_pins:
        version, _, local = pin.partition("+")
        if "*" in version:
            yield f"pins torch to {pin}, expected a whole version and its build, X.Y.Z+cuNNN"
        elif version[:1].isdigit() and not local:
            yield f"pins torch=={pin} without its build, which may be the CPU's, expected +cuNNN or --torch-backend"
        elif local == "cpu" and CUDA.search(holding.stage.root):
            yield f"pins torch=={pin} on the CUDA image {holding.stage.root}, expected +cuNNN"


def check_override(build: StagedBuild) -> Iterator[Found]:
    """Yield, for each stage and slip, the first call that installs an engine without a file that holds torch."""
    strips = any(_Holding(stage).strips for stage in build.stages)
    holdings = [_Holding(stage, strips) for stage in cuda_stages(build)]
    overriding = next((holding.stage.name for holding in holdings if holding.overrides), "")
    for holding in holdings:
        slips: dict[str, list[tuple[Install, str]]] = {}
        for install in holding.asking:
            if install.verb != "add" and (problem := _problem(holding, install, overriding)):
                slips.setdefault(f"{install.tool} {problem.partition(': ')[2]}", []).append((install, problem))
        for (install, problem), *others in slips.values():
            lines = f" (also on line {', '.join(str(other.line) for other, _ in others)})" if others else ""
            yield Found(install.line, problem + lines, _override_fix(holding, install))


def _problem(holding: _Holding, install: Install, overriding: str) -> str:
    """Return what is wrong with a call; empty where it keeps torch. `overriding` is a stage with an override."""
    if holding.replacing(install):
        return _replaceable(holding, install)
    if install.tool != "uv" or not (install.pins and install.engines and overriding) or holding.overrides:
        return ""
    without = f"{install.engines[0]} is installed without {' or '.join(OVERRIDES)}, which stage {overriding} has"
    return f"{without}: uv may find no versions that fit, or others, expected the same file in each stage"


def _override_fix(holding: _Holding, install: Install) -> str:
    if holding.has_own:
        return KEEP_FIX.format(name="UV_OVERRIDE" if install.tool == "uv" else "PIP_CONSTRAINT")
    return OVERRIDE_FIX if install.tool == "uv" else CONSTRAINT_FIX


def _replaceable(holding: _Holding, install: Install) -> str:
    names = OVERRIDES if install.tool == "uv" else CONSTRAINTS
    if install.tool == "pip" and HOLDS_PIP.search(holding.stage.root):
        return ""
    named = holding.named(install, names)
    if not named:
        without = f"{holding.replacing(install)[0]} is installed without {' or '.join(names)}"
        return f"{without}: what it asks for may replace torch, expected a file there that pins torch"
    if missing := [file.path for file in named if not file.there]:
        return f"nothing in stage {holding.stage.name} writes {missing[0]}, expected a file there that pins torch"
    if not any(file.text is None or pins(file.text) for file in named):
        return f"{named[0].path} does not name torch, expected torch==X.Y.Z+cuNNN in it"
    return ""
