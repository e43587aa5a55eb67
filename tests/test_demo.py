"""The pure parts of `make demo`: its two releases, and what it prints at the end."""

from __future__ import annotations

from itertools import pairwise

import pytest

from sparkops.config import assets, recipe
from sparkops.config.assets import BuildInputs
from sparkops.config.recipe import Recipe
from sparkops.release import Release
from sparkops.render.context import build_context
from sparkops.traffic.record import RequestRecord
from sparkops.traffic.report import TrafficReport, report
from tests import demo
from tests.examples import INPUTS

OLD, NEW = "tiny-demo-0123456789", "tiny-demo-abcdef0123"
GOOD = [
    RequestRecord("short", "fresh", 0.0, 1.0, 200, release=OLD),
    RequestRecord("stream", "kept", 0.5, 3.0, 200, release=NEW),
]
CUT = RequestRecord("stream", "kept", 2.0, 2.5, 200, "cut", "the connection ended inside an answer")
REFUSED = RequestRecord("short", "kept", 3.0, 3.1, 503, "status", retry_after="5", openai_error=True)


def loaded(argv: tuple[str, ...]) -> Recipe:
    """The recipe of one of the demo's deploys."""
    changes = [word for option, word in pairwise(argv) if option == "--set"]
    return recipe.load(demo.ROOT / argv[1], None, changes)


def counted(*records: RequestRecord) -> dict[str, TrafficReport]:
    return {"swap": report(GOOD), "all": report([*GOOD, *records])}


def test_the_swap_brings_another_release_from_the_same_image() -> None:
    first, second = loaded(demo.FIRST), loaded(demo.SECOND)
    images = [
        build_context(demo_recipe, assets.load_templates(), assets.load_mods(), BuildInputs()).digest
        for demo_recipe in (first, second)
    ]

    assert images[0] == images[1]
    assert Release(first, INPUTS).id != Release(second, INPUTS).id
    assert (first.service, first.model.path) == (demo.SERVICE, demo.MODEL)


def test_the_old_release_is_still_warm_when_the_rollback_comes() -> None:
    assert loaded(demo.FIRST).swap.keep_old_s >= 300


def test_the_end_counts_requests_by_part_and_by_release() -> None:
    lines = list(demo.requests_lines(counted()))

    assert lines[:3] == [
        "requests through the gateway",
        "     2 answered, 0 failed: swap, longest time without an answer 2.0 s",
        "     2 answered, 0 failed: all, longest time without an answer 2.0 s",
    ]
    assert lines[3:] == [f"     1 answered by {OLD}", f"     1 answered by {NEW}"]


@pytest.mark.parametrize(("record", "reason"), [(CUT, "stream: stream cut"), (REFUSED, "")])
def test_a_request_without_a_whole_and_right_answer_has_failed(record: RequestRecord, reason: str) -> None:
    lines = "\n".join(demo.requests_lines(counted(record)))

    assert demo.failed(report([*GOOD, record])) == 1
    assert "2 answered, 1 failed: all" in lines
    assert reason in lines


def test_the_times_of_all_parts_add_up() -> None:
    lines = list(demo.times_lines([("nodes", 10.0), ("image", 12.5), ("the end", 20.0)]))

    assert lines == ["\ntimes", "   2.5 s  nodes", "   7.5 s  image", "  10.0 s  all"]
