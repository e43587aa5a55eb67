"""The containers of this node as they were read last, and for how long that counts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sparkops.docker.facts import Container
from sparkops.errors import NotReady, SparkopsError
from sparkops.guard.engines import Engines, reason

FRESH_S = 15.0
"""Older than that, the state of the containers is unknown. A read takes tens of ms, on a busy node seconds."""


@dataclass
class LastRead:
    """The last read. `began_s` is its time in monotonic seconds."""

    engines: Engines
    log: Callable[[str], None]
    containers: Mapping[str, Container] = field(default_factory=dict)
    began_s: float = -math.inf
    trouble: str = ""

    def renew(self) -> bool:
        """Read the containers; False while Docker cannot be read, which is logged once."""
        began_s, trouble = time.monotonic(), ""
        try:
            self.containers, self.began_s = self.engines.containers(), began_s
        except (SparkopsError, OSError, ValueError, KeyError) as error:
            trouble = reason(error)
        if trouble and trouble != self.trouble:
            self.log(trouble)
        self.trouble = trouble
        return not trouble

    def require(self) -> None:
        """Raise NotReady while the containers are unknown."""
        unseen_s = time.monotonic() - self.began_s
        if unseen_s > FRESH_S:
            since = f"for {unseen_s:.0f} s" if unseen_s < math.inf else "since this guard started"
            problem = f"containers unknown: Docker was not read {since}: {self.trouble or 'the first read is due'}"
            raise NotReady(self.engines.node.name, problem, next_step="Check `sparkops doctor`.")
