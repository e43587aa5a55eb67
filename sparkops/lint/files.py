"""The files that a stage writes, with their contents if the text has them, and the packages of its wheels."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from posixpath import basename, dirname

from sparkops.lint.dockerfile import BuildStage, BuildStep, StagedBuild
from sparkops.lint.installs import Install, package
from sparkops.lint.shell import HEREDOCS, Call
from sparkops.lint.text import expand

READERS = frozenset({"uv", "uvx", "pip", "pip3", "rm", "cat", "echo", "printf", "test", "["})
WRITES = frozenset({">", ">>", ">|"})


@dataclass(frozen=True)
class WrittenFiles:
    """Contents by path; None: unknown. `copied`: paths from elsewhere. `named`: arguments of programs."""

    contents: dict[str, str | None]
    copied: tuple[str, ...]
    named: frozenset[str]

    def has(self, path: str) -> bool:
        """Return whether this stage or its parents may create the file."""
        if path in self.contents or any(path == target or path.startswith(f"{target}/") for target in self.copied):
            return True
        return any(word.endswith(posixpath.basename(path)) for word in self.named)


def written_files(stage: BuildStage) -> WrittenFiles:
    """Return the files that the stage and its parents write."""
    contents: dict[str, str | None] = {}
    copied: list[str] = []
    named: set[str] = set()
    for step in (step for ancestor in stage.lineage for step in ancestor.steps):
        copied += _copied(step)
        contents |= _heredocs(step)
        for call in step.calls:
            _write(call, contents)
            named |= set(call.argv[1:]) if call.program not in READERS else set()
    return WrittenFiles(contents, tuple(copied), frozenset(named))


def located(directory: str, path: str) -> str:
    """Return the absolute path; empty for the root, so that every path starts with it and a slash."""
    absolute = posixpath.normpath(posixpath.join("/", directory, path))
    return "" if absolute == "/" else absolute


def mounted(step: BuildStep) -> Iterator[str]:
    """Yield the targets of the mounts of a RUN. No layer contains them."""
    return (located(step.directory, target) for target, _ in _mounts(step))


def _mounts(step: BuildStep) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield target and settings of each mount of a RUN."""
    for value in (value for flag, value in step.instruction.flags if flag == "mount"):
        settings = dict(part.partition("=")[::2] for part in value.split(","))
        if target := settings.get("target") or settings.get("dst") or settings.get("destination"):
            yield target, settings


def _copied(step: BuildStep) -> Iterator[str]:
    """Yield the targets of COPY, ADD and mounts."""
    yield from mounted(step)
    if step.instruction.keyword in ("COPY", "ADD") and (paths := step.instruction.paths):
        yield located(step.directory, expand(paths[-1], step.values))


def _heredocs(step: BuildStep) -> Iterator[tuple[str, str | None]]:
    """Yield path and text of the file of `COPY <<EOF /path`."""
    instruction = step.instruction
    if instruction.keyword in ("COPY", "ADD") and len(instruction.heredocs) == 1:
        [heredoc] = instruction.heredocs
        target = expand(instruction.rest.text.split()[-1], step.values)
        text = heredoc.body.text
        yield located(step.directory, target), text if heredoc.quoted else expand(text, step.values)


def _write(call: Call, contents: dict[str, str | None]) -> None:
    text = _printed(call)
    for target, appends in _targets(call):
        path = located(call.directory, target)
        earlier = contents.get(path, "") if appends else ""
        contents[path] = earlier or None if text is None else f"{earlier or ''}{text}\n"


def _targets(call: Call) -> Iterable[tuple[str, bool]]:
    """Return the files that a call writes, and whether it appends to them."""
    if call.program == "tee":
        appends = "-a" in call.argv or "--append" in call.argv
        return [(word, appends) for word in call.argv[1:] if not word.startswith("-")]
    writes = (redirect for redirect in call.redirects if redirect.operator in WRITES)
    return [(redirect.target, redirect.operator == ">>") for redirect in writes]


def _printed(call: Call) -> str | None:
    """Return the output of a call; None if it is unknown."""
    if heredocs := [redirect.body for redirect in call.redirects if redirect.operator in HEREDOCS]:
        return heredocs[-1] if call.program in ("cat", "tee") else None
    if call.program in ("echo", "printf"):
        return "\n".join(call.argv[1:])
    if call.program == "tee" and call.before:
        return _printed(call.before[-1])
    return None


UNNAMED = ""
"""The name of a wheel whose package the file does not have."""
KEEPS_FILES = READERS | {"chmod", "chown", "du", "find", "git", "ls", "mkdir", "sha256sum", "wc"}
"""Programs that put no wheel into a directory among their arguments."""
OUTPUTS = ("--out-dir", "--outdir", "--wheel-dir", "--dist-dir", "-d", "-o")
WHEELS = frozenset({"dist", "wheel", "wheels", "whl", "whls"})
ANY_PROJECT = WHEELS | {"app", "build", "data", "home", "install", "mnt", "mount", "opt", "out", "output", "root"}
ANY_PROJECT |= {"src", "tmp", "usr", "work", "workspace"}
"""Directories that are not named after a project."""
ENGINES = frozenset({"lmdeploy", "sglang", "vllm"})
MAX_DEPTH = 8


def wheels_in(build: StagedBuild, stage: BuildStage, directory: str) -> frozenset[str]:
    """Return the packages of the wheels in a directory of a stage; UNNAMED among them if the file does not name all."""
    return frozenset(_Trace(build).names(stage, directory, 0))


def wheel_name(path: str) -> str:
    """Return the package of a wheel with a name, such as `vllm-*.whl`; UNNAMED for any other path."""
    name = package(path, "/") if ".whl" in path else UNNAMED
    return UNNAMED if "$" in name else name


ENVIRONMENT = re.compile(r"venv|(site|dist)-packages|^/(usr/local|opt/conda)$")
"""Paths that hold the packages of a Python: a virtual environment, or the whole prefix."""


def copied_environments(build: StagedBuild, stage: BuildStage) -> tuple[BuildStage, ...]:
    """Return the earlier stages whose Python packages a stage or its parents copy."""
    trace = _Trace(build)
    placed = (item for ancestor in stage.lineage for step in ancestor.steps for item in trace.placed(step))
    origins = (origin for _, source, origin in placed if origin and ENVIRONMENT.search(source))
    return tuple({origin.name: origin for origin in origins}.values())


class _Trace:
    def __init__(self, build: StagedBuild) -> None:
        self.stages = {stage.name: stage for stage in build.stages}
        self.arguments = build.arguments

    def names(self, stage: BuildStage | None, directory: str, depth: int) -> list[str]:
        if not stage or depth > MAX_DEPTH:
            return [UNNAMED]
        names = list(self._written(stage, directory, depth)) or [UNNAMED]
        return [_project(directory)] if UNNAMED in names else names

    def _written(self, stage: BuildStage, directory: str, depth: int) -> Iterator[str]:
        for step in (step for ancestor in stage.lineage for step in ancestor.steps):
            for target, source, origin in self.placed(step):
                if name := wheel_name(source) if _overlap(target, directory) else "":
                    yield name
                elif _overlap(target, directory) and (origin or len(target) >= len(directory)):
                    below = directory[len(target) :] if directory.startswith(target) else ""
                    yield from self.names(origin, located(source, f".{below}"), depth + 1)
            for call in step.calls:
                install = next((install for install in step.installs if install.call is call), None)
                if (output := _wheel_directory(call, install)) is not None:
                    if output == directory:
                        sources = install.requirements if install else ()
                        yield from (_known(package(source, call.directory)) for source in sources or (".",))
                elif not install and call.program not in KEEPS_FILES:
                    yield from self._copied(stage, directory, call, depth)

    def placed(self, step: BuildStep) -> Iterator[tuple[str, str, BuildStage | None]]:
        """Yield target, source and stage of all that COPY, ADD or a mount takes from elsewhere."""
        values = {**self.arguments, **step.values}
        for target, mount in _mounts(step):
            if mount.get("type", "bind") == "bind":
                source = mount.get("source") or mount.get("src") or "/"
                origin = self.stages.get(expand(mount.get("from", ""), values).lower())
                yield located(step.directory, expand(target, values)), located("/", expand(source, values)), origin
        if step.instruction.keyword in ("COPY", "ADD") and (paths := step.instruction.paths):
            origin = self.stages.get(expand(dict(step.instruction.flags).get("from", ""), values).lower())
            for source in (located("/", expand(path, values)) for path in paths[:-1]):
                unnamed = "*" in basename(source) and not wheel_name(source)
                yield (
                    located(step.directory, expand(paths[-1], values)),
                    dirname(source) if unnamed else source,
                    origin,
                )

    def _copied(self, stage: BuildStage, directory: str, call: Call, depth: int) -> Iterator[str]:
        """Yield the wheels that a program such as cp or curl puts into a directory."""
        paths = [located(call.directory, word.partition("=")[2] or word) for word in call.argv[1:]]
        written = paths[-1:] if call.program in ("cp", "mv") else paths
        if any(f"{path}/".startswith(f"{directory}/") for path in written):
            wheels = [path for path in paths if ".whl" in path]
            yield from () if wheels else (UNNAMED,)
            for path in wheels:
                if name := wheel_name(path):
                    yield name
                else:
                    yield from self.names(stage, dirname(path), depth + 1)


def _project(directory: str) -> str:
    """Return the project that a directory of wheels is named after, such as vllm for /src/vllm/dist or /w/vllm-wheels.

    UNNAMED without one.
    """
    *_, parent, name = ("", "", *directory.split("/"))
    words = re.split(r"[-_]", name)
    if name in WHEELS or parent in WHEELS:
        return _known(parent if name in WHEELS else name)
    return _known("-".join(words[:-1])) if words[-1] in WHEELS else UNNAMED


def _known(project: str) -> str:
    """Return the name of a project, or the engine in it; UNNAMED for a name that any project may have."""
    words = re.split(r"[-_]", project)
    engine = next((word for word in words if word in ENGINES), "")
    return engine or (UNNAMED if not project or ANY_PROJECT & set(words) or "$" in project else project)


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _wheel_directory(call: Call, install: Install | None) -> str | None:
    """Return the directory into which a call builds wheels; None if it builds none."""
    setup = call.program.startswith("python") and "bdist_wheel" in call.argv
    if not (setup or call.program == "build" or (install and install.verb in ("build", "wheel"))):
        return None
    wheel = install is not None and install.verb == "wheel"
    where, options = (".", (*OUTPUTS, "-w")) if wheel else ("dist", OUTPUTS)
    for word, following in zip(call.argv, (*call.argv[1:], ""), strict=True):
        name, sign, value = word.partition("=")
        if name in options:
            where = value if sign else following
    return located(call.directory, where)
