"""How often a plain log shows that a wait continues."""

from __future__ import annotations

from sparkops.node.progress import REPEAT_S, Repeats


def test_a_plain_log_keeps_changes_and_one_report_a_minute() -> None:
    repeats, kept = Repeats(), []
    for at_s, key in ((0.0, "a"), (2.0, "a"), (4.0, "b"), (6.0, "b"), (4.0 + REPEAT_S, "b"), (6.0 + REPEAT_S, "b")):
        if repeats.keeps(key, at_s):
            kept.append(at_s)

    assert kept == [0.0, 4.0, 64.0]
