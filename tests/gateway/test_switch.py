"""Many switches while clients call and stream: nobody notices, and the old slot gets nothing more."""

from __future__ import annotations

import statistics
import time

import pytest

from sparkops.names import Slot
from sparkops.operator.demo.traffic.generator import Traffic
from sparkops.operator.demo.traffic.report import RequestRecord
from tests.gateway.live import RELEASES, Live, wait_for

pytestmark = pytest.mark.fleet

SWITCHES = 20
BETWEEN_S = 0.7
STREAMS = 20


@pytest.mark.timeout(900)
def test_twenty_switches_under_load_lose_nothing(live: Live) -> None:
    switched: list[tuple[float, Slot, float]] = []
    with Traffic(live.url, "chat", streams=STREAMS, rate=200.0, stream_tokens=60) as load:
        load.wait_for(400)
        rest = load.report()
        for number in range(SWITCHES):
            slot = (Slot.GREEN, Slot.BLUE)[number % 2]
            began = time.monotonic()
            live.switch(slot)
            switched.append((time.monotonic(), slot, time.monotonic() - began))
            time.sleep(BETWEEN_S)
        wait_for("enough streams", lambda: load.report().streams > 2 * STREAMS)
        during = load.report((switched[0][0], time.monotonic()))
    records = list(load.records())
    took = [duration for _, _, duration in switched]

    print(f"at rest:  {rest}\nswitching: {during}")
    print(f"a switch: median {statistics.median(took) * 1000:.0f} ms, longest {max(took) * 1000:.0f} ms")
    assert load.report().clean, load.report()
    assert {record.stand_in for record in records} == {"blue", "green"}
    assert [record for record in records if record.release != RELEASES[Slot(record.stand_in)]] == []
    assert [record for record in records if _late(record, switched)] == []
    wait_for("drained", lambda: [live.slot(slot).sessions for slot in Slot] == [0, 0])


def _late(record: RequestRecord, switched: list[tuple[float, Slot, float]]) -> bool:
    """Whether a request began after a switch had returned, was answered before the next began, and by the old slot."""
    answered = record.start + (record.first_s or record.latency_s)
    for (end, slot, _), following in zip(switched, [*switched[1:], None], strict=True):
        next_begin = following[0] - following[2] if following else float("inf")
        if end < record.start and answered < next_begin:
            return record.stand_in != slot.value
    return False
