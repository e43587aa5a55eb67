"""uv and pip wait long enough, and try again, in every stage."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.lint.finding import Found
from sparkops.lint.installs import Install
from sparkops.lint.stages import Build, Stage

UV = {"UV_HTTP_TIMEOUT": 30, "UV_HTTP_RETRIES": 3}
"""What uv does by itself: seconds without a byte, and further attempts (seen with uv 0.13.8)."""
PIP = {"PIP_DEFAULT_TIMEOUT": 15, "PIP_RETRIES": 5}
"""What pip does by itself, as its documentation says."""
FIX = "ENV UV_HTTP_TIMEOUT=600 UV_HTTP_RETRIES=10 in this stage, before this line"


def check(build: Build) -> Iterator[Found]:
    """In each stage, the first call whose environment lacks one of the variables."""
    for stage in build.stages:
        for install in filter(_lacking, stage.installs):
            names = _lacking(install)
            runs = f"stage {stage.name} runs {install.tool} without {' and '.join(names)}, expected in the stage itself"
            yield Found(install.line, runs + _elsewhere(build, stage, names[0]), FIX)
            break


def _lacking(install: Install) -> list[str]:
    if not install.asks_network:
        return []
    names = [name for name, least in UV.items() if not _raised(install, name, least)]
    if install.tool == "pip" and all(_raised(install, name, least) for name, least in PIP.items()):
        return []
    return names


def _raised(install: Install, name: str, default: int) -> bool:
    value = install.setting(name)
    return bool(value) and not (value.isdecimal() and int(value) <= default)


def _elsewhere(build: Build, stage: Stage, name: str) -> str:
    """Where it was set instead, which is why one may think that it is set here."""
    if stage.values.get(name):
        return f": {name} comes after this line, or is no more than the {UV[name]} that uv has by itself"
    for other in build.stages:
        if other.values.get(name):
            return f": stage {other.name} has {name}, and FROM {stage.root} begins without it"
    if name in build.arguments:
        return f": the ARG before the first FROM reaches no RUN, expected `ARG {name}` again in the stage"
    return ""
