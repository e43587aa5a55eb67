"""Check timeouts and retries of uv and pip in every stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sparkops.lint.finding import Violation
from sparkops.lint.installs import Install, only_tools
from sparkops.lint.stages import BuildStage, StagedBuild
from sparkops.lint.written import files, located

UV = {"UV_HTTP_TIMEOUT": 30, "UV_HTTP_RETRIES": 3}
"""Defaults of uv 0.13.8, measured: seconds without a byte, and retries."""
PIP = {"PIP_DEFAULT_TIMEOUT": 15, "PIP_RETRIES": 5}
"""Defaults of pip, from its documentation."""
DEFAULTS: Mapping[str, Mapping[str, int]] = {"uv": UV, "pip": PIP}
PIP_OPTIONS = {"PIP_DEFAULT_TIMEOUT": ("--timeout", "--default-timeout"), "PIP_RETRIES": ("--retries",)}
FIXES = {
    "uv": "ENV UV_HTTP_TIMEOUT=600 UV_HTTP_RETRIES=10 in this stage, before this line",
    "pip": "ENV PIP_DEFAULT_TIMEOUT=600 PIP_RETRIES=10 in this stage, before this line",
}


def check(build: StagedBuild) -> Iterator[Violation]:
    """Yield, for each stage and program, the first call that lacks one of the variables."""
    for stage in build.stages:
        for tool in DEFAULTS:
            installs = (install for install in stage.installs if install.tool == tool and _lacking(install))
            install = next((install for install in installs if tool != "pip" or not _small(stage, install)), None)
            if install is None:
                continue
            names = _lacking(install)
            runs = f"stage {stage.name} runs {tool} without {' and '.join(names)}, expected them in the stage itself"
            yield Violation(install.line, runs + _cause(build, stage, names[0], tool), FIXES[tool])


def _lacking(install: Install) -> list[str]:
    """Return the variables that a call lacks."""
    if not install.downloads:
        return []
    return [name for name, least in DEFAULTS[install.tool].items() if not _raised(install, name, least)]


def _small(stage: BuildStage, install: Install) -> bool:
    """Return whether pip installs only tools such as uv: their wheels are small, so pip's defaults are enough."""
    if install.only_tools:
        return True
    contents = files(stage).contents
    texts = [contents.get(located(install.directory, path)) for path in install.option("--requirement")]
    return bool(texts) and all(text and only_tools(text) for text in texts) and not install.requirements


def _raised(install: Install, name: str, default: int) -> bool:
    options = install.option(*PIP_OPTIONS.get(name, ()))
    value = options[-1] if options else install.setting(name)
    return bool(value) and not (value.isdecimal() and int(value) <= default)


def _cause(build: StagedBuild, stage: BuildStage, name: str, tool: str) -> str:
    """Return why a variable of the file has no effect on this call; empty if the file does not set it."""
    if stage.values.get(name):
        least = DEFAULTS[tool][name]
        return f": {name} is set after this line, or to at most {least}, the default of {tool}"
    for other in build.stages:
        if other.values.get(name):
            return f": stage {other.name} sets {name}, and FROM {stage.root} does not inherit it"
    if name in build.arguments:
        return f": ARG before the first FROM has no effect in a stage, expected `ARG {name}` in the stage"
    return ""
