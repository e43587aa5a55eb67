"""One torch, of one build, in every stage, and no installation that may put another one in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sparkops.lint.finding import Found
from sparkops.lint.installs import Install, pins
from sparkops.lint.stages import Build, Stage
from sparkops.lint.written import Files, files, located

OVERRIDES = ("--override", "UV_OVERRIDE")
CONSTRAINTS = ("--constraint", "PIP_CONSTRAINT")
HOLDING = (*OVERRIDES, *CONSTRAINTS, "UV_CONSTRAINT")
REQUIREMENTS = ("--requirement",)
ABOUT_TORCH = re.compile(r"torch|vllm|sglang|flashinfer|cuda|nvidia|\.whl", re.IGNORECASE)
CUDA = re.compile(r"cuda|nvidia|nvcr\.io", re.IGNORECASE)
BRINGS_TORCH = re.compile(r"vllm|sglang|torch|tensorrt", re.IGNORECASE)
"""Images that have a torch: the version is enough to keep it."""
PIN_FIX = 'add "torch==X.Y.Z+cu130" to the requirements here, or to a file of this stage that UV_OVERRIDE names'
OVERRIDE_FIX = 'RUN echo "torch==X.Y.Z+cu130" > /opt/override.txt and ENV UV_OVERRIDE=/opt/override.txt in this stage'
CONSTRAINT_FIX = (
    'RUN echo "torch==X.Y.Z+cu130" > /opt/constraint.txt and ENV PIP_CONSTRAINT=/opt/constraint.txt in this stage'
)
WHOLE = re.compile(r"[0-9][^$`*]*\+[^$`*]+")


class _Named(NamedTuple):
    """A file that an option or a variable names; `there`: whether anything makes it or may make it."""

    path: str
    text: str | None
    there: bool


@dataclass(frozen=True)
class _Holding:
    """What holds torch in a stage: its own calls, those of the stages that it begins with, and their files."""

    stage: Stage

    @cached_property
    def asking(self) -> list[Install]:
        """Its own calls that may bring a torch."""
        return [each for each in self.stage.installs if each.may_bring_torch]

    @cached_property
    def inherited(self) -> list[Install]:
        return [each for stage in self.stage.lineage for each in stage.installs]

    @cached_property
    def files(self) -> Files:
        return files(self.stage)

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
    def unread(self) -> bool:
        """Whether a file that is there to hold torch comes from elsewhere: nobody can tell from here."""
        named = (file for each in self.inherited for file in self.named(each, HOLDING))
        return any(file.there and file.text is None for file in named)

    @cached_property
    def backend(self) -> str:
        return next((each.backend for each in self.inherited if each.backend), "")


def check_pin(build: Build) -> Iterator[Found]:
    """In each stage that installs more than tools, the first such call, if no build of torch is pinned."""
    if not any(ABOUT_TORCH.search(each.rest.text) for each in build.dockerfile.instructions):
        return
    first: tuple[str, str] | None = None
    for holding in filter(lambda each: each.asking, map(_Holding, build.stages)):
        line, name = holding.asking[0].line, holding.stage.name
        if problem := _unpinned(holding):
            yield Found(line, f"stage {name} {problem}", PIN_FIX)
        for pin in filter(WHOLE.fullmatch, holding.pins):
            first = first or (pin, name)
            if pin != first[0]:
                told = f"stage {name} holds torch to {pin}, and stage {first[1]} to {first[0]}"
                yield Found(line, f"{told}, expected one torch: what is compiled for one fails in the other", PIN_FIX)
                break


def _unpinned(holding: _Holding) -> str:
    """What is wrong with how the stage holds torch; empty if nothing is."""
    if not holding.pins and not holding.unread:
        what = " ".join(holding.asking[0].requirements[:3]) or "requirements"
        return f"installs {what} and pins no torch, expected torch==X.Y.Z+cuNNN in the stage itself"
    for pin in holding.pins:
        version, _, local = pin.partition("+")
        if "*" in version:
            return f"pins torch to {pin}, expected a whole version and its build, X.Y.Z+cuNNN"
        if version[:1].isdigit() and not local and not BRINGS_TORCH.search(holding.stage.root):
            return f"pins torch=={pin} without its build, which may be the CPU's, expected +cuNNN or --torch-backend"
        if local == "cpu" and CUDA.search(holding.stage.root):
            return f"pins torch=={pin} on the CUDA image {holding.stage.root}, expected +cuNNN"
    return ""


def check_override(build: Build) -> Iterator[Found]:
    """Each call that installs wheels or an engine, and has no file that keeps the torch that is there."""
    for holding in map(_Holding, build.stages):
        for install in holding.asking:
            if install.engines and install.verb != "add" and (problem := _replaceable(holding, install)):
                yield Found(install.line, problem, OVERRIDE_FIX if install.tool == "uv" else CONSTRAINT_FIX)


def _replaceable(holding: _Holding, install: Install) -> str:
    names = OVERRIDES if install.tool == "uv" else CONSTRAINTS
    named = holding.named(install, names)
    if not named:
        without = f"{install.engines[0]} is installed without {' or '.join(names)}"
        return f"{without}: what it asks for may replace torch, expected a file there that pins torch"
    if missing := [file.path for file in named if not file.there]:
        return f"nothing in stage {holding.stage.name} writes {missing[0]}, expected a file there that pins torch"
    if not any(file.text is None or pins(file.text) for file in named):
        return f"{named[0].path} does not name torch, expected torch==X.Y.Z+cuNNN in it"
    return ""
