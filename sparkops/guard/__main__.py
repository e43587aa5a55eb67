"""`python -m sparkops.guard` is the guard itself, the container's first process."""

from __future__ import annotations

from sparkops.guard import here
from sparkops.guard.daemon import Daemon

Daemon(here.state(), here.node()).run()
