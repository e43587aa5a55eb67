"""The stage of an engine's start. Apart from observation.py, because it imports pydantic: most engines have started."""

from __future__ import annotations

from sparkops.config.startup import Startup
from sparkops.engines import ENGINES
from sparkops.node.docker.facts import log_lines
from sparkops.serving.startup.verdict import Line, Sample, Watch, advance


def stage(log: str) -> tuple[bool, str]:
    """Return whether the engine has served by its log with Docker's timestamps, and its stage in words.

    A container does not name its engine: the one whose phrases lead furthest has written the log.
    """
    lines = tuple(Line(0.0, line) for _, line in log_lines(log))
    logs = {id(engine.log): engine.log for engine in ENGINES.values()}
    watches = (advance(Watch(Startup(), log), Sample(0.0, lines)) for log in logs.values())
    watch = max(watches, key=lambda watch: watch.stage.order)
    return watch.stage.name == "SERVING", watch.text
