"""A program that ends when nobody waits for it any more. Standard library only: this runs in containers on nodes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

INTERRUPTED = 130


def begin():
    """What the second line of stdin asks for. From now on it ends when it is told to, or when its stdin ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=watch, daemon=True).start()
    return request


def watch():
    """Whoever started us holds our stdin open, and is gone when it ends."""
    while os.read(0, 4096):
        pass
    stop()


def stop(*_):
    """At once: other threads may wait for the network. What is whole stays, and the next run goes on with it."""
    os._exit(INTERRUPTED)
