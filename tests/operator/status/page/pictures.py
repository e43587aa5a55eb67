"""Pictures for the page: a fleet of one to sixteen nodes with a swap in progress, and one with hostile names."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

from sparkops.node.host import Gpu
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.ui import picture
from sparkops.operator.status.hour import Hour
from sparkops.operator.status.picture import (
    Drift,
    GatewayRow,
    Health,
    Live,
    Memory,
    NodeRow,
    RankRow,
    ReplicaRow,
    ServiceRow,
    Status,
    SwapRow,
    WarmRow,
)
from sparkops.serving.watch.finding import EngineFinding
from sparkops.serving.watch.minutes import KEPT, Minute
from tests.operator.status.test_view import NEW, OLD, rank

HOSTILE = (
    "<img src=x onerror=\"document.title='broken out'\">",
    "</script><script>document.title='broken out'</script>",
    "\"' onmouseover='document.title=1' x=\"",
    "\u202egnp.exe \x1b[31m\u2066",
    "__proto__",
)
"""Names and texts that would leave their place if the page made HTML of them, or reorder what follows."""
STAGE = "loading weights 40 %, about 3 min left, from 3 past starts"


def node(number: int) -> NodeRow:
    """A node with a GB10; every fifth is unlike the others."""
    name, busy = f"spark-{number}", 0.35 + 0.6 * abs(math.sin(number))
    gpu = Gpu(use=busy, power_w=None, temperature_c=52.0 + number, clock_mhz=2411.0)
    memory = Memory(total_gib=119.7, available_gib=round(6.2 + 7 * (number % 9), 1))
    row = NodeRow(name=name, reachable=True, error=None, memory=memory, disk_free_gib=812.4 - 31 * number, gpus=[gpu])
    if number == 5:
        return replace(row, cordon="update of the driver, by ana since 2026-11-29 20:10 UTC", displaced=["embed"])
    if number == 11:
        error = "cannot connect to ops@192.168.1.21:22: no answer"
        return NodeRow(
            name=name, reachable=False, error=error, memory=None, next_step="Check that it is on and in the network."
        )
    return row


def engine(at: str, **changes: Any) -> RankRow:
    return rank(at, container=f"{OLD}-blue-r0", **changes)


LOADING: dict[str, Any] = {
    **dict.fromkeys(("running", "waiting", "tok_s", "ttft_s", "kv_use")),
    **{"stage": "loading weights 40 %", "health": Health.STARTING, "up_s": 120.0, "progress": STAGE, "left_s": 180.0},
}
SWAPPING = ServiceRow(
    name="qwen3.5-122b",
    url="http://192.168.1.11:8000/v1",
    state="healthy",
    live=Live(slot="blue", release=OLD, image="sha256:a", changes=["args.max-num-seqs=16"]),
    swap=SwapRow(
        release=NEW, mode="across", phase="wait until ready", reverting=False, waits_for_promote=False, why=""
    ),
    replicas=[
        ReplicaRow(release=OLD, slot="blue", age_s=300_000.0, ranks=[engine("spark-1")], active=True),
        ReplicaRow(release=NEW, slot="green", age_s=130.0, ranks=[engine("spark-2", **LOADING)]),
    ],
    events=[
        "2026-11-30T02:10:04Z  intent   deploy of 122b-autoround-999b3c4d5e, mode across",
        "2026-11-30T02:10:06Z  phase    start workers",
        "2026-11-30T02:10:09Z  phase    wait until ready",
    ],
    event_age_s=121.0,
)
CALM = ServiceRow(
    name="embed",
    url="http://192.168.1.11:8002/v1",
    state="healthy",
    live=Live(slot="green", release="embed-1b2c3d4e5f", image="sha256:b"),
    replicas=[
        ReplicaRow(
            release="embed-1b2c3d4e5f", slot="green", ranks=[engine(at, running=0, waiting=0, tok_s=0.0)], active=True
        )
        for at in ("spark-3", "spark-4")
    ],
    events=["2026-11-30T01:58:31Z  promoted embed-1b2c3d4e5f"],
    event_age_s=820.0,
)
STOPPED = ServiceRow(
    name="vision", url=None, state="stopped", live=None, replicas=[], next_step="sparkops restart vision"
)
FINDING = EngineFinding(
    code="SLOW",
    service="embed",
    node="spark-4",
    container="embed-1b2c3d4e5f-green-r0",
    since=0.0,
    detail="11.2 tok/s in three samples, 31.3 tok/s in the best hour of this release",
    next_step="sparkops status --gpu; nvidia-smi -q -d PERFORMANCE and docker stats, on spark-4",
)


def fleet(nodes: int = 16, now: float = 1_796_000_000.0) -> Status:
    """A fleet with a swap in progress, a finding, and with 16 nodes one that cannot be read."""
    warm = WarmRow(release="embed-0a1b2c3d4e", until=now + 480)
    return Status(
        nodes=[node(number) for number in range(1, nodes + 1)],
        services=[SWAPPING, replace(CALM, warm=warm), STOPPED],
        gateway=GatewayRow(node="spark-1", address="192.168.1.11", state="up"),
        findings=[replace(FINDING, since=now - 1500)],
        drift=[],
    )


def hostile() -> Status:
    """A fleet in which every text is one of HOSTILE."""
    one, two, three, four, five = HOSTILE
    problem = engine(two, state="exited", exit_code=1, health=Health.NONE, problem=one, next_step=three, stage=four)
    replicas = [ReplicaRow(release=name, slot=two, ranks=[engine(name, stage=one)], active=True) for name in HOSTILE]
    swap = SwapRow(release=one, mode=five, phase=two, reverting=True, waits_for_promote=True, why=three)
    services = [
        ServiceRow(
            name=name,
            url=one,
            state="failed",
            live=Live(slot=two, release=three, image="", changes=[one]),
            swap=swap,
            warm=WarmRow(release=four, until=None),
            hold=four,
            replicas=[*replicas, ReplicaRow(release=one, slot=two, ranks=[problem])],
            events=[*HOSTILE],
            unread=two,
            next_step=f"{one}\n{two}",
        )
        for name in HOSTILE
    ]
    finding = EngineFinding(code=two, service=one, node=three, container=four, since=0.0, detail=two, next_step=one)
    return Status(
        nodes=[NodeRow(name=name, reachable=False, error=two, memory=None, next_step=one) for name in HOSTILE],
        services=services,
        gateway=GatewayRow(node=one, address=two, url=three, state="up"),
        findings=[finding],
        drift=[Drift(code=one, node=two, detail=three, next_step=four, service=five)],
    )


def hour(end: int) -> Hour:
    """Samples up to minute `end`: one service at changing load, with a gap and some errors, one that is calm."""
    chat = [
        Minute(
            minute=end - KEPT + 1 + at,
            tok_s=round(95 + 60 * math.sin(at / 7) + 11 * math.sin(at * 2.1), 1),
            ttft_s=round(0.3 + 0.12 * math.sin(at / 5) + (0.9 if at in (41, 42) else 0), 3),
            first_tokens=40,
            waiting=max(0, round(4 * math.sin(at / 9 - 1))),
            errors={41: 3, 42: 1}.get(at, 0),
        )
        for at in range(KEPT)
        if not 17 <= at < 21
    ]
    calm = [Minute(minute=end - 20 + at, tok_s=0.0, waiting=0, errors=0) for at in range(21)]
    return {"qwen3.5-122b": chat, "embed": calm}


def shown(status: Status) -> dict[str, Any]:
    """Return what the page gets for a status, with samples up to now."""
    made = picture(status, {}, Settings())
    samples = hour(int(made["read_at"] // 60))
    return {**made, "hour": {service: [*map(asdict, minutes)] for service, minutes in samples.items()}}
