"""Name the wheels in a directory of a stage, from the calls that build or copy them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import basename, dirname

from sparkops.lint.calls import Call
from sparkops.lint.installs import Install, package
from sparkops.lint.stages import BuildStage, BuildStep, StagedBuild
from sparkops.lint.text import expand
from sparkops.lint.written import READERS, located

UNKNOWN = ""
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


def packages(build: StagedBuild, stage: BuildStage, directory: str) -> frozenset[str]:
    """Return the packages of the wheels in a directory of a stage; UNKNOWN among them if the file does not name all."""
    return frozenset(_Trace(build).names(stage, directory, 0))


def named(path: str) -> str:
    """Return the package of a wheel with a name, such as `vllm-*.whl`; UNKNOWN for any other path."""
    name = package(path, "/") if ".whl" in path else UNKNOWN
    return UNKNOWN if "$" in name else name


class _Trace:
    def __init__(self, build: StagedBuild) -> None:
        self.stages = {stage.name: stage for stage in build.stages}
        self.arguments = build.arguments

    def names(self, stage: BuildStage | None, directory: str, depth: int) -> list[str]:
        if not stage or depth > MAX_DEPTH:
            return [UNKNOWN]
        names = list(self._written(stage, directory, depth)) or [UNKNOWN]
        return [_project(directory)] if UNKNOWN in names else names

    def _written(self, stage: BuildStage, directory: str, depth: int) -> Iterator[str]:
        for step in (step for ancestor in stage.lineage for step in ancestor.steps):
            for target, source, origin in self._placed(step):
                if name := named(source) if _overlap(target, directory) else "":
                    yield name
                elif _overlap(target, directory) and (origin or len(target) >= len(directory)):
                    below = directory[len(target) :] if directory.startswith(target) else ""
                    yield from self.names(origin, located(source, f".{below}"), depth + 1)
            for call in step.calls:
                install = next((install for install in step.installs if install.call is call), None)
                if (output := _output(call, install)) is not None:
                    if output == directory:
                        sources = install.requirements if install else ()
                        yield from (_known(package(source, call.directory)) for source in sources or (".",))
                elif not install and call.program not in KEEPS_FILES:
                    yield from self._copied(stage, directory, call, depth)

    def _placed(self, step: BuildStep) -> Iterator[tuple[str, str, BuildStage | None]]:
        """Yield target, source and stage of all that COPY, ADD or a mount takes from elsewhere."""
        values = {**self.arguments, **step.values}
        for flag, value in step.instruction.flags:
            mount = dict(part.partition("=")[::2] for part in value.split(","))
            target = mount.get("target") or mount.get("dst") or mount.get("destination")
            if flag == "mount" and target and mount.get("type", "bind") == "bind":
                source = mount.get("source") or mount.get("src") or "/"
                origin = self.stages.get(expand(mount.get("from", ""), values).lower())
                yield located(step.directory, expand(target, values)), located("/", expand(source, values)), origin
        if step.instruction.keyword in ("COPY", "ADD") and (paths := step.instruction.paths):
            origin = self.stages.get(expand(dict(step.instruction.flags).get("from", ""), values).lower())
            for source in (located("/", expand(path, values)) for path in paths[:-1]):
                unnamed = "*" in basename(source) and not named(source)
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
            yield from () if wheels else (UNKNOWN,)
            for path in wheels:
                if name := named(path):
                    yield name
                else:
                    yield from self.names(stage, dirname(path), depth + 1)


def _project(directory: str) -> str:
    """Return the project that a directory of wheels is named after, such as vllm for /src/vllm/dist or /w/vllm-wheels.

    UNKNOWN without one.
    """
    *_, parent, name = ("", "", *directory.split("/"))
    words = re.split(r"[-_]", name)
    if name in WHEELS or parent in WHEELS:
        return _known(parent if name in WHEELS else name)
    return _known("-".join(words[:-1])) if words[-1] in WHEELS else UNKNOWN


def _known(project: str) -> str:
    """Return the name of a project, or the engine in it; UNKNOWN for a name that any project may have."""
    words = re.split(r"[-_]", project)
    engine = next((word for word in words if word in ENGINES), "")
    return engine or (UNKNOWN if not project or ANY_PROJECT & set(words) or "$" in project else project)


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


def _output(call: Call, install: Install | None) -> str | None:
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
