"""`python -m sparkops.guard serve` answers a deploy; `watch` is the guard itself, the container's first process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sparkops.guard.daemon import watch
from sparkops.guard.serve import Ear
from sparkops.guard.store import DIRECTORY, Store
from sparkops.nodes.local import LocalNode


def main() -> None:
    """Run one of the two."""
    node = LocalNode(os.environ.get("SPARKOPS_NODE", "here"))
    store = Store(Path(os.environ.get("SPARKOPS_STATE", DIRECTORY)))
    if sys.argv[1:] == ["serve"]:
        Ear(store, node).listen(sys.stdin, sys.stdout)
    elif sys.argv[1:] == ["watch"]:
        watch(store, node)
    else:
        sys.exit("expected serve or watch")


main()
