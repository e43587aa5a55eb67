"""Work for which no thread could be started never runs."""

from __future__ import annotations

import threading

import pytest

from sparkops.guard.workers import Workers

pytestmark = pytest.mark.local


def refuse(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_refused_work_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    with Workers(2) as workers:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            for number in range(3):
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    workers.submit(ran.append, number)
        workers.submit(ran.append, 9).result(30.0)

    assert ran == [9]
