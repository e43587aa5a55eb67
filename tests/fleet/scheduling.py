"""Which tests on real nodes stay together when several workers run them, each with a fleet of its own."""

from __future__ import annotations

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

VLLM_FILES = {
    *("tests/real/test_added_modules.py", "tests/real/test_arguments.py", "tests/real/test_build.py"),
    *("tests/real/test_caches.py", "tests/real/test_deploy.py", "tests/real/test_llama_cpp.py"),
    *("tests/real/test_local.py", "tests/real/test_lock.py", "tests/real/test_models_hub.py"),
    *("tests/real/test_pair.py", "tests/real/test_quick_starts.py", "tests/real/test_rank_ports.py"),
    "tests/real/test_swap_vllm.py",
}
"""They share the image of the real vLLM, which takes minutes to build. Other files go to whichever worker is free."""
DIRECTORIES = ("tests/containerd/", "tests/guard/docker/", "tests/gateway/")
"""All tests of one share nodes of their own."""
SINGLE = ("tests/real/test_conformance.py", "tests/real/test_faults.py")
"""Each of their tests takes about a minute and begins with a service of its own."""
CRASH, PHASE = "tests/real/test_crash.py", re.compile(r", ([a-z-]+, [a-z ]+), blue on")
"""Its cases of one mode and phase stay together: most begin with the service as the last one has left it."""


class ByFleet(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker the tests that share what they make on nodes, in the order of collection."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    @property
    def nodes(self) -> list[Any]:
        """The workers by number, so that the first one gets the first group: `make images` has built its image."""
        return sorted(super().nodes, key=lambda worker: str(worker.gateway.id))

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(nodeid: str) -> str:
    """Return the name of the group of a test that stays on one fleet."""
    file = nodeid.split("::", maxsplit=1)[0]
    if file in VLLM_FILES:
        return "vllm"
    if file == CRASH and (moment := PHASE.search(nodeid)):
        return f"{file}::{moment[1]}"
    if file in SINGLE:
        return nodeid
    return next((directory for directory in DIRECTORIES if file.startswith(directory)), file)


def order(nodeid: str) -> int:
    """Return what sorts the longest groups first and single tests last, so that workers end at about the same time."""
    longest = (
        *("vllm", "tests/containerd/", "tests/guard/docker/", "tests/real/test_agents.py", "tests/real/test_swap.py"),
        "tests/gateway/",
    )
    if group(nodeid) in longest:
        return longest.index(group(nodeid))
    if group(nodeid) == nodeid:
        return len(longest) + 2
    return len(longest) + nodeid.startswith(CRASH)
