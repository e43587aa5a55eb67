"""`--wait` as a user meets it: reports on stderr, nothing on stdout, and the refusal when the time is over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparkops.plan.lock import acquire
from tests.cli.here import install

pytestmark = pytest.mark.local


@pytest.mark.parametrize("verb", ["promote", "rollback"])
def test_who_holds_the_lock_is_reported_on_stderr_also_with_json(tmp_path: Path, verb: str) -> None:
    sparkops = install(tmp_path)
    sparkops.guard.change("chat", lambda journal, clock: acquire(journal, "ann@desk", "d1", clock, run="deploy, pid 7"))

    ran = sparkops(verb, "chat", "--wait", "2.5", "--json")

    assert (ran.code, ran.out) == (4, "")
    waits, refused, step = ran.err.splitlines()
    held = r"waiting for the lock of chat: held by ann@desk \(deploy, pid 7\) for \d+ s"
    assert re.fullmatch(rf"\[ +\d+ s\] here: {held}", waits)
    locked = r"chat: locked by ann@desk \(deploy, pid 7\) for \d+ s; lease ends in \d+ s"
    assert re.fullmatch(rf"sparkops: here: {locked}", refused)
    assert step == "  next: sparkops status shows it; `--wait` waits for it."
