"""`python -m sparkops.guard serve` answers a deploy; `watch` is the guard itself, the container's first process."""

from __future__ import annotations

import os
import sys

from sparkops.guard.daemon import watch
from sparkops.guard.serve import Ear
from sparkops.guard.store import Store
from sparkops.nodes.local import LocalNode


def main() -> None:
    """Run one of the two."""
    node = LocalNode(os.environ.get("SPARKOPS_NODE", "here"))
    if sys.argv[1:] == ["serve"]:
        Ear(Store(), node).listen(sys.stdin, sys.stdout)
    elif sys.argv[1:] == ["watch"]:
        watch(Store(), node)
    else:
        sys.exit("expected serve or watch")


main()
