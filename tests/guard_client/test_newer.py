"""What is newer than this client."""

from __future__ import annotations

import pytest

from sparkops import __version__
from sparkops.doctor import discovery
from sparkops.guard_client.newer import newer


def test_guards_of_one_version_are_one_line_in_the_order_of_versions() -> None:
    guards = {"n1": "0.10.0\n", "n2": "0.3.0\n", "n3": "0.2.0\n", "n4": "0.10.0\n", "n5": "0.1.9\n"}

    assert [*newer("0.2.0", "", guards)] == [
        "the guard of n2 is of sparkops 0.3.0",
        "the guard of n1, n4 is of sparkops 0.10.0",
    ]


@pytest.mark.parametrize("printed", ["", "\n", "Traceback (most recent call last):", "0.2.0", "0.2.0.dev1"])
def test_what_is_no_newer_version_is_left_out(printed: str) -> None:
    assert [*newer("0.2.0", f"# Written by sparkops {printed}.\n", {"n1": printed})] == []


def test_an_inventory_that_init_wrote_states_its_version() -> None:
    text = discovery.inventory({"local": {"transport": "local"}}, {}, {})

    assert [*newer("0.0.1", text, {})] == [f"the inventory was written by sparkops {__version__}"]
    assert [*newer(__version__, text, {})] == []
