"""The log of the guard's container."""

from __future__ import annotations

import sys
import time

from sparkops.redact import redacted


def log(text: str) -> None:
    """Write one line with its time (UTC), without credentials."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {redacted(text)}\n")
    sys.stderr.flush()
