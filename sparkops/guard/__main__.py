"""`python -m sparkops.guard` is the guard itself, the container's first process."""

from __future__ import annotations

from sparkops.guard.daemon import watch
from sparkops.guard.here import node, store

watch(store(), node())
