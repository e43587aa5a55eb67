"""Several servers in the slot with the traffic: each leaves, returns and changes its release, and nobody notices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.names import Slot
from sparkops.operator.demo.traffic.generator import Traffic
from tests.gateway.live import CHAT, Live, refused, wait_for

pytestmark = pytest.mark.fleet

BLUE = Slot.BLUE
OLD, NEW = "chat-0123456789", "chat-aaaaaaaaaa"
PORTS = {"one": 9321, "two": 9322, "three": 9323}


def at(name: str, release: str = OLD) -> Endpoint:
    return Endpoint("127.0.0.1", PORTS[name], release)


@pytest.fixture
def three(alone: Live) -> Iterator[Live]:
    """The gateway with three engines behind slot blue, which has the traffic, and afterwards as it was."""
    alone.run(commands.switch_down("chat"))
    with alone.engine("one", PORTS["one"]), alone.engine("two", PORTS["two"]), alone.engine("three", PORTS["three"]):
        give(alone, OLD, at("one"), at("two"), at("three"))
        alone.run(commands.switch("chat", BLUE, OLD))
        yield alone
        alone.run(commands.switch_down("chat"))
    alone.point(BLUE)


def give(live: Live, release: str, *servers: Endpoint) -> None:
    live.run(commands.point("chat", BLUE, release, servers))


def engines_of(live: Live, requests: int = 12) -> Counter[tuple[str, str]]:
    """The engines that answer, each with the release that the gateway names."""
    answers = [live.ask() for _ in range(requests)]
    assert {answer.status for answer in answers} == {200}
    return Counter((answer.headers["x-stand-in"], answer.headers["x-sparkops-release"]) for answer in answers)


def test_requests_are_spread_and_the_header_names_the_release_of_the_server(three: Live) -> None:
    give(three, NEW, at("one", NEW), at("two"), at("three"))

    wait_for("checked", lambda: ("one", NEW) in engines_of(three))

    assert {*engines_of(three)} == {("one", NEW), ("two", OLD), ("three", OLD)}
    assert three.slot(BLUE).release == NEW
    assert not three.facts.drift


def test_each_of_three_is_replaced_under_load_and_nothing_is_lost(three: Live) -> None:
    with Traffic(three.url, "chat", streams=6, rate=100.0, stream_tokens=30) as load:
        load.wait_for(100)
        done: list[str] = []
        for name in PORTS:
            others = [at(other, NEW if other in done else OLD) for other in PORTS if other != name]
            give(three, NEW if done else OLD, *others)
            wait_for("drained", lambda: three.slot(BLUE).left == 0)
            done.append(name)
            give(three, NEW, *others, at(name, NEW))
            wait_for("back", lambda name=name: (name, NEW) in engines_of(three))
        load.wait_for(100)
        report = load.report()

    assert report.clean, report
    assert {*engines_of(three)} == {(name, NEW) for name in PORTS}


def test_a_server_that_does_not_answer_gets_nothing_until_it_does(three: Live) -> None:
    port = PORTS["two"]
    three.engines["two"].stdin.close()  # type: ignore[union-attr]
    three.engines["two"].wait()

    assert {name for name, _ in engines_of(three)} == {"one", "three"}
    wait_for("down", lambda: three.slot(BLUE).down == (f"127.0.0.1:{port}",))
    assert not three.facts.drift
    with three.engine("two", port):
        wait_for("up", lambda: three.slot(BLUE).down == ())
        assert {name for name, _ in engines_of(three)} == {*PORTS}


def test_a_lone_server_gets_others_beside_it_also_after_a_reload(three: Live) -> None:
    give(three, OLD, at("one"))
    three.configure(CHAT)
    assert {name for name, _ in engines_of(three)} == {"one"}

    give(three, OLD, at("one"), at("three"))

    wait_for("spread", lambda: len(engines_of(three)) == 2)
    three.configure(CHAT)
    assert len(engines_of(three)) == 2


def test_of_the_slot_with_the_traffic_some_server_stays(three: Live) -> None:
    refusal = refused(lambda: give(three, NEW, Endpoint("127.0.0.1", 9399, NEW)))

    assert "chat blue is active: some of its servers must stay" in refusal
    assert {name for name, _ in engines_of(three)} == {*PORTS}


def test_only_the_requests_of_a_server_that_has_left_are_cut(three: Live) -> None:
    with Traffic(three.url, "chat", streams=6, rate=0.0, stream_tokens=10_000) as load:
        wait_for("streams", lambda: three.slot(BLUE).sessions == 6)
        give(three, OLD, at("two"), at("three"))
        left = three.slot(BLUE).left
        assert left == 2

        assert three.run(commands.cut("chat", BLUE, left=True)) == str(left)

        time.sleep(0.5)
        assert (three.slot(BLUE).left, (three.slot(BLUE).sessions or 0) >= 4) == (0, True)
        for name in PORTS:
            three.finish_streams(name)
    assert load


def test_a_server_that_was_withdrawn_belongs_to_its_slot_no_more_once_its_engine_has_stopped(three: Live) -> None:
    with Traffic(three.url, "chat", streams=6, rate=0.0, stream_tokens=10_000) as load:
        wait_for("streams", lambda: three.slot(BLUE).sessions == 6)
        give(three, OLD, at("two"), at("three"))
        three.engines["one"].stdin.close()  # type: ignore[union-attr]
        wait_for("ended", lambda: three.slot(BLUE).left == 0)
        time.sleep(5)  # HAProxy's checks, whose result it shows in place of what it was told

        slot = three.slot(BLUE)
        assert (set(slot.serving), slot.down) == ({f"127.0.0.1:{PORTS[name]}" for name in ("two", "three")}, ())
        assert not three.facts.drift
        for name in ("two", "three"):
            three.finish_streams(name)
    assert load
