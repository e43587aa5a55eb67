"""Work for which no thread could be started never runs."""

from __future__ import annotations

import pytest

from sparkops.guard.watch.workers import Workers
from tests.node.threads import no_thread_starts

pytestmark = pytest.mark.local


def test_refused_work_never_runs() -> None:
    ran: list[int] = []
    with Workers(2) as workers:
        with no_thread_starts():
            for number in range(3):
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    workers.submit(ran.append, number)
        workers.submit(ran.append, 9).result(30.0)

    assert ran == [9]
