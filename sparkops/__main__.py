"""The program, and `python -m sparkops`: completion answers before the command line is loaded."""

from __future__ import annotations

import os
import sys
from importlib import import_module

COMPLETE = "_SPARKOPS_COMPLETE"
"""Variable in which a shell names its kind of completion."""


def main() -> None:
    """Answer a shell that completes a word, or run the command line."""
    mode = os.environ.get(COMPLETE)
    answer = import_module("sparkops.operator.cli.completion").answer(mode, os.environ) if mode else None
    if answer is None:
        import_module("sparkops.operator.cli.main").main()
    else:
        sys.stdout.write(f"{answer}\n")


if __name__ == "__main__":
    main()
