"""What apt has fetched to know its packages does not stay in a layer."""

from __future__ import annotations

from collections.abc import Iterator

from sparkops.lint.calls import Call
from sparkops.lint.finding import Found
from sparkops.lint.stages import BuildStep, StagedBuild
from sparkops.lint.written import mounted

APT = frozenset({"apt", "apt-get", "aptitude"})
LISTS = "/var/lib/apt/lists"
CLEANS = frozenset({"distclean", "dist-clean"})
FIX = f"&& rm -rf {LISTS}/* at the end of the same RUN"


def check(build: StagedBuild) -> Iterator[Found]:
    """Each RUN that fetches apt's lists and leaves them."""
    for step in (step for stage in build.stages for step in stage.steps):
        if call := _left(step):
            problem = f"{call.program} update leaves its lists in the layer"
            yield Found(call.line, f"{problem}, expected `rm -rf {LISTS}/*` in the same RUN", FIX)


def _left(step: BuildStep) -> Call | None:
    left: Call | None = None
    for call in step.calls:
        if call.program in APT and "update" in call.argv:
            left = call
        elif any(word.startswith(LISTS) for word in call.argv[1:]) or CLEANS & set(call.argv):
            left = None
    shown = any(LISTS.startswith(target) for target in mounted(step))
    return None if shown else left
