"""The feed of the page: nodes are read while somebody asks, and every request gets something newer or nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest

from sparkops.operator.status.page.feed import IDLE_S, Feed


class Fleet:
    """Counts how often it is read; its clock stands still."""

    def __init__(self) -> None:
        self.reads, self.now_s = 0, 1000.0
        self.feed = Feed(self.read, lambda: self.now_s, pause_s=0.0, wait_s=60.0)
        self.reading = threading.Thread(target=self.feed.run)

    def read(self) -> object:
        self.reads += 1
        return {"reads": self.reads}


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    watched = Fleet()
    watched.reading.start()
    yield watched
    watched.feed.close()
    watched.reading.join()


def number(feed: Feed, known: str = "") -> tuple[int, str]:
    newest = feed.newest(known)
    assert newest
    return json.loads(newest.body)["reads"], newest.tag


def test_nothing_is_read_before_somebody_asks_nor_once_nobody_does(fleet: Fleet) -> None:
    assert fleet.reads == 0
    first, tag = number(fleet.feed)
    later, _ = number(fleet.feed, tag)
    fleet.now_s += IDLE_S + 1
    reads = -1
    while reads != fleet.reads:  # the reading in progress ends
        reads = fleet.reads
        threading.Event().wait(0.05)

    newest, _ = number(fleet.feed)

    assert first < later < newest, "an old picture is no answer after a pause"


def test_a_request_waits_for_a_picture_that_it_does_not_know() -> None:
    gate, feed = threading.Event(), Feed(dict, pause_s=60.0, wait_s=0.05)

    def read() -> object:
        gate.wait()
        return {}

    feed.read = read
    reading = threading.Thread(target=feed.run)
    reading.start()
    assert feed.newest() is None
    gate.set()
    feed.wait_s = 60.0
    tag = number_of(feed)
    feed.wait_s = 0.05
    assert feed.newest(tag) is None
    feed.close()
    reading.join()


def number_of(feed: Feed) -> str:
    newest = feed.newest()
    assert newest
    return newest.tag


def test_the_end_wakes_who_waits(fleet: Fleet) -> None:
    fleet.feed.close()

    assert fleet.feed.newest('"unknown"') is None


def test_equal_pictures_have_one_tag_whatever_they_contain() -> None:
    feed = Feed(lambda: {"name": "\ud800 </script>"}, pause_s=60.0, wait_s=60.0)
    reading = threading.Thread(target=feed.run)
    reading.start()
    one, two = feed.newest(), feed.newest()
    feed.close()
    reading.join()

    assert one
    assert one == two
    assert json.loads(one.body)["name"] == "\ud800 </script>"
