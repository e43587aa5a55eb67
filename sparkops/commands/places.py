"""Where the guard is. On its own, since what starts for every question must not load how containers are made."""

from __future__ import annotations

CONTAINER = "sparkops-guard"
STATE = "/var/lib/sparkops"
