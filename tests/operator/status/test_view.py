"""A status as lines for a terminal."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from sparkops.node.host import Gpu
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
    Source,
    Status,
    SwapRow,
    WarmRow,
)
from sparkops.operator.status.view import BAD, BUSY, GOOD, WIDE, age, lines
from sparkops.serving.watch.finding import EngineFinding

OLD, NEW = "122b-autoround-1a2b3c4d5e", "122b-autoround-999b3c4d5e"
LEFT = "loading weights 40 %, about 3 min left, from 3 past starts"
UNREACHABLE = "cannot connect to ops@192.168.1.12:22: no answer"


def rank(node: str = "spark-1", **changes: Any) -> RankRow:
    """A busy engine."""
    values: dict[str, Any] = {
        "rank": 0,
        "container": "c",
        "image": "sha256:a",
        "state": "running",
        "stage": "serving",
        "health": Health.OK,
        "port": 8001,
        "exit_code": None,
        "running": 2,
        "waiting": 1,
        "tok_s": 31.3,
        "ttft_s": 0.21,
        "kv_use": 0.12,
        "prefix_hits": 0.45,
        "draft_accepted": 0.7,
        "up_s": 90_000.0,
    }
    return RankRow(node=node, **{**values, **changes})


IDLE: dict[str, Any] = {"running": None, "waiting": None, "tok_s": None, "stage": None}
LOADS = rank("spark-22", health=Health.STARTING, **IDLE, up_s=120.0, progress=LEFT, left_s=180.0)
ENDED = rank(
    "spark-3", health=Health.NONE, **IDLE, state="exited", exit_code=1, problem="out of memory", next_step="do x"
)
SWAP = SwapRow(release=NEW, mode="across", phase="wait until ready", reverting=False, waits_for_promote=False, why="")
SERVICE = ServiceRow(
    name="qwen3.5-122b",
    url="http://192.168.1.11:8000/v1",
    state="degraded",
    live=Live(slot="blue", release=OLD, image="sha256:a"),
    swap=SWAP,
    replicas=[
        ReplicaRow(release=OLD, slot="blue", age_s=300_000.0, ranks=[rank()], active=True),
        ReplicaRow(release=NEW, slot="green", age_s=70.0, ranks=[LOADS, ENDED]),
    ],
    events=["2026-11-22T07:00:00Z  phase    start"],
)
STATUS = Status(
    nodes=[
        NodeRow(name="spark-1", reachable=True, error=None, memory=Memory(total_gib=119.7, available_gib=33.1)),
        NodeRow(name="spark-22", reachable=False, error=UNREACHABLE, memory=None, next_step="Check that it is on."),
    ],
    gateway=GatewayRow(node="spark-1", address="192.168.1.11", state="up"),
    services=[SERVICE],
    drift=[Drift(code="ORPHAN", node="spark-1", detail="c runs, and nothing needs it", next_step="docker stop c")],
)


def texts(status: Status = STATUS, width: int = WIDE) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines(status, width)]


def colors(status: Status = STATUS) -> dict[str, str]:
    return {text.strip(): color for line in lines(status) for text, color in line}


def test_disk_and_gpus_are_shown_where_they_are_known() -> None:
    node = STATUS.nodes[0]
    gb10 = Gpu(use=0.96, power_w=None, temperature_c=71.0, clock_mhz=2411.0)
    memory = {"memory_used_gib": 24.4, "memory_total_gib": 79.6}
    h100 = Gpu(use=0.0, power_w=119.2, temperature_c=37.0, clock_mhz=1980.0, **memory)
    known = replace(node, name="spark-2", disk_free_gib=812.44, gpus=[gb10, h100])

    shown = texts(replace(STATUS, nodes=[node, known]))

    assert shown[:5] == [
        "NODE     STATE      MEMORY AVAILABLE   DISK FREE",
        "spark-1  reachable  33.1 of 119.7 GiB  -",
        "spark-2  reachable  33.1 of 119.7 GiB  812.4 GiB",
        "spark-2: GPU 0  96% busy  71 °C  2411 MHz",
        "spark-2: GPU 1  0% busy  119 W  37 °C  1980 MHz  24.4 of 79.6 GiB used",
    ]


def test_a_release_that_is_kept_warm_is_no_swap_that_the_owner_must_follow() -> None:
    until = 1_780_000_000.0
    calm = replace(SERVICE, state="healthy", swap=None, warm=WarmRow(release=OLD, until=until))
    late = replace(calm, warm=WarmRow(release=OLD, until=None))

    shown, shown_late = (texts(replace(STATUS, services=[service])) for service in (calm, late))

    clock = time.strftime("%H:%M", time.localtime(until))
    assert f"  keeps {OLD} warm until {clock}; rollback switches in seconds" in shown
    assert f"  keeps {OLD} warm; rollback switches in seconds" in shown_late
    assert not [line for line in shown if "swap" in line or "follow" in line]


def test_a_status_on_200_columns() -> None:
    assert texts(width=200) == [
        "NODE      STATE        MEMORY AVAILABLE",
        "spark-1   reachable    33.1 of 119.7 GiB",
        "spark-22  unreachable  -",
        f"spark-22: {UNREACHABLE}",
        "  next: Check that it is on.",
        "gateway  up  on spark-1 (192.168.1.11)",
        "",
        "drift ORPHAN on spark-1: c runs, and nothing needs it",
        "  next: docker stop c",
        "",
        "qwen3.5-122b  degraded  http://192.168.1.11:8000/v1",
        f"  swap to {NEW}, across, phase wait until ready",
        "    next: sparkops status qwen3.5-122b --follow",
        f"  blue   {OLD}  age 3 d  active",
        "    spark-1  running  up 1 d  port 8001  serving",
        "      2 running  1 waiting  31.3 tok/s  TTFT 0.21 s  KV 12%  prefix hits 45%  drafts accepted 70%",
        f"  green  {NEW}  age 1 min",
        "    spark-22  running     up 2 min  port 8001  -",
        f"      {'█' * 12}{'░' * 18} 40%",
        "      about 3 min left, from 3 past starts",
        "    spark-3   exited (1)  up 1 d    port 8001  -",
        "      out of memory",
        "        next: do x",
        "  2026-11-22T07:00:00Z  phase    start",
    ]


def test_the_same_drift_of_several_nodes_is_one_line_and_an_operator_is_needed_first() -> None:
    def row(code: str, node: str, detail: str, step: str) -> Drift:
        return Drift(code=code, node=node, detail=detail, next_step=step)

    drift = [
        *(row("GUARD_DOWN", name, "the guard is stopped", f"docker start g, on {name}") for name in ("n1", "n11")),
        row("NEEDS_PERSON", "n1", "chat: no progress", "sparkops retry chat"),
    ]

    assert texts(Status(nodes=[], services=[SERVICE], drift=drift))[1:7] == [
        "",
        "drift NEEDS_PERSON on n1: chat: no progress",
        "  next: sparkops retry chat",
        "",
        "drift GUARD_DOWN on n1, n11: the guard is stopped",
        "  next: docker start g, on n1, n11",
    ]


def test_unreachable_nodes_share_their_next_step() -> None:
    nodes = [replace(STATUS.nodes[1], name=name, error=f"no answer from {name}") for name in ("a", "b")]

    assert texts(Status(nodes=nodes, services=[SERVICE], drift=[]))[3:7] == [
        "a: no answer from a",
        "b: no answer from b",
        "  next: Check that it is on.",
        "",
    ]


def test_a_service_that_fails_precedes_one_that_works() -> None:
    services = [replace(SERVICE, name=state, state=state) for state in ("healthy", "stopped", "failed", "starting")]

    shown = texts(Status(nodes=[], services=services, drift=[]))

    heads = [line.split()[0] for line in shown if line.endswith("/v1")]
    assert heads == ["failed", "starting", "healthy", "stopped"]


@pytest.mark.parametrize("width", [20, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, texts(width=width))) <= width


def test_on_80_columns_figures_are_folded_between_two_figures() -> None:
    shown = texts(width=80)

    start = next(number for number, line in enumerate(shown) if "2 running" in line)
    assert shown[start : start + 2] == [
        "      2 running  1 waiting  31.3 tok/s  TTFT 0.21 s  KV 12%  prefix hits 45%",
        "        drafts accepted 70%",
    ]


def test_states_have_colors() -> None:
    shown = colors()

    assert (shown["reachable"], shown["unreachable"], shown["up"], shown["degraded"]) == (GOOD, BAD, GOOD, BUSY)
    assert (shown["exited (1)"], shown["out of memory"], shown["active"]) == (BAD, BAD, GOOD)


def test_a_container_that_was_stopped_is_counted() -> None:
    stopped = rank(**IDLE, state="exited", exit_code=143, health=Health.NONE)
    replicas = [ReplicaRow(release=OLD, slot="blue", ranks=[stopped])]

    shown = texts(Status(nodes=[], services=[replace(SERVICE, replicas=replicas)], drift=[]))

    assert "  and 1 stopped: sparkops status qwen3.5-122b" in shown
    assert not [line for line in shown if OLD in line]


def test_an_engine_that_waits_for_its_next_start_is_shown_with_what_it_waits_for() -> None:
    waits = rank(**IDLE, state="exited", exit_code=137, health=Health.NONE, progress="waiting for the load of agent")
    replicas = [ReplicaRow(release=OLD, slot="blue", ranks=[waits])]

    shown = texts(Status(nodes=[], services=[replace(SERVICE, state="starting", replicas=replicas)], drift=[]))

    assert "      waiting for the load of agent" in shown


def test_a_stopped_service_is_shown_last_with_what_starts_it() -> None:
    attempts = [rank(**IDLE, state="exited", exit_code=1, health=Health.NONE) for _ in range(4)]
    replicas = [ReplicaRow(release=f"r{number}", slot="blue", ranks=[row]) for number, row in enumerate(attempts)]
    stopped = replace(SERVICE, name="a-chat", state="stopped", live=None, swap=None, replicas=replicas)
    stopped = replace(stopped, next_step="sparkops restart a-chat")

    shown = texts(Status(nodes=[], services=[stopped, SERVICE], drift=[]))

    assert shown.index("qwen3.5-122b  degraded  http://192.168.1.11:8000/v1") < shown.index("") + 2
    assert shown[-3:] == [
        "a-chat  stopped  http://192.168.1.11:8000/v1",
        "  next: sparkops restart a-chat",
        "  and 4 stopped: sparkops status a-chat",
    ]


@pytest.mark.parametrize(
    ("changes", "news"),
    [
        ({"swap": SWAP, "event_age_s": 3600.0}, True),
        ({"warm": WarmRow(release=OLD, until=None), "event_age_s": 3600.0}, True),
        ({"event_age_s": 599.0}, True),
        ({"event_age_s": 601.0}, False),
    ],
    ids=["in progress", "warm", "ten minutes", "later"],
)
def test_the_phases_of_a_change_are_shown_while_they_are_news_and_always_of_one_service(
    changes: dict[str, Any], *, news: bool
) -> None:
    stopped = rank(**IDLE, state="exited", exit_code=143, health=Health.NONE)
    replicas = [*SERVICE.replicas, ReplicaRow(release="older", slot="blue", ranks=[stopped])]
    service = replace(SERVICE, **{"swap": None, "replicas": replicas, **changes})
    status = Status(nodes=[], services=[service], drift=[])
    detailed = ["".join(text for text, _ in line) for line in lines(status, whole=True)]

    assert (f"  {SERVICE.events[0]}" in texts(status)) is news
    assert f"  {SERVICE.events[0]}" in detailed
    assert [line for line in texts(status) if "older" in line] == []
    assert "  blue   older  age -" in detailed


def test_a_container_of_a_node_that_was_not_read_is_shown_as_reported_or_unknown() -> None:
    changes: dict[str, Any] = {**IDLE, "up_s": None, "port": 0}
    reported = rank("spark-2", **changes, source=Source.REPORTED)
    unknown = rank("spark-3", **{**changes, "state": "unknown", "health": Health.UNKNOWN}, source=Source.UNKNOWN)
    service = replace(SERVICE, unread="spark-2 cannot be read from here", swap=None)
    service = replace(service, replicas=[ReplicaRow(release=OLD, slot="blue", ranks=[reported, unknown])])

    shown = texts(Status(nodes=[], services=[service], drift=[]))

    assert "  spark-2 cannot be read from here" in shown
    assert "    spark-2  running  up -  port -  ok, as its guard reports" in shown
    assert "    spark-3  unknown  up -  port -  not read, no report" in shown


def test_the_set_of_the_active_release_is_a_mark_and_whole_where_one_service_is_asked_for() -> None:
    live = Live(slot="blue", release=OLD, image="sha256:a", changes=["serve.args.a=1", "serve.env.B=x y"])
    status = replace(STATUS, services=[replace(SERVICE, live=live)])
    title = f"  blue   {OLD}  age 3 d  active"

    short = texts(status)
    whole = ["".join(text for text, _ in line) for line in lines(status, whole=True)]

    assert f"{title}  with --set" in short
    assert not [line for line in short if "args.a" in line]
    assert whole[whole.index(title) + 1 :][:2] == ["    --set serve.args.a=1", "    --set 'serve.env.B=x y'"]


def test_a_release_in_both_slots_is_active_in_one() -> None:
    """It moves from one node to another."""
    blue = ReplicaRow(release=OLD, slot="blue", age_s=70.0, ranks=[rank()], active=True)
    moves = [blue, replace(blue, slot="green", active=False)]

    shown = texts(Status(nodes=[], services=[replace(SERVICE, replicas=moves)], drift=[]))

    assert [line for line in shown if OLD in line] == [
        f"  blue   {OLD}  age 1 min  active",
        f"  green  {OLD}  age 1 min",
    ]


def test_replicas_of_a_release_stand_together_and_those_that_serve_are_marked() -> None:
    rows = [
        ReplicaRow(release=NEW, slot="blue", age_s=70.0, ranks=[replace(rank(), node="spark-1")], active=True),
        ReplicaRow(release=OLD, slot="blue", age_s=300.0, ranks=[replace(rank(), node="spark-2")], active=True),
        ReplicaRow(release=NEW, slot="blue", age_s=60.0, ranks=[replace(rank(), node="spark-3")], active=True),
        ReplicaRow(release=OLD, slot="blue", age_s=300.0, ranks=[replace(rank(), node="spark-1")]),
    ]

    shown = texts(Status(nodes=[], services=[replace(SERVICE, replicas=rows)], drift=[]))

    titles = [line for line in shown if line.startswith("  blue")]
    assert titles == [
        f"  blue   {NEW}  age 1 min  active",
        f"  blue   {OLD}  age 5 min  active",
        f"  blue   {OLD}  age 5 min",
    ]
    nodes = [line.split()[0] for line in shown if line.startswith("    spark-")]
    assert nodes == ["spark-1", "spark-3", "spark-2", "spark-1"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0.0, "0 s"), (59.4, "59 s"), (60.0, "1 min"), (7199.0, "1 h"), (86_400.0, "1 d"), (8e6, "92 d")],
)
def test_an_age_is_in_its_largest_unit(seconds: float | None, text: str) -> None:
    assert age(seconds) == text


def test_findings_of_the_watch_come_first_in_a_line_each() -> None:
    names = {"code": "STALLED", "service": "chat", "node": "spark-1", "container": "chat-blue-r0"}
    found = EngineFinding(**names, since=1000.0, detail="no engine step for 310 s", next_step="sparkops history chat")

    first, second, *_ = lines(Status(nodes=[], services=[], drift=[], findings=[found]))

    since = time.strftime("%H:%M", time.localtime(1000.0))
    text = f"STALLED chat-blue-r0 on spark-1 since {since}: no engine step for 310 s; next: sparkops history chat"
    assert (first, second) == (((text, BAD),), ())


def test_a_cordoned_node_is_marked_with_its_reason_and_what_was_taken_from_it() -> None:
    memory = Memory(total_gib=119.7, available_gib=33.1)
    closed = NodeRow(name="n1", reachable=True, error=None, memory=memory, cordon="fan, by ann", displaced=["chat"])
    opened = NodeRow(name="n2", reachable=True, error=None, memory=memory, displaced=["chat", "other"])
    unread = NodeRow(name="n3", reachable=True, error=None, memory=memory, cordon_unknown=True)

    shown = [*lines(Status(nodes=[closed, opened, unread], services=[], drift=[]))]

    states = [("cordoned", BUSY), ("reachable", GOOD), ("guard silent", BUSY)]
    assert [(line[1][0].strip(), line[1][1]) for line in shown[1:4]] == states
    assert [line[0] for line in shown[4:6]] == [
        ("n1: cordoned: fan, by ann; taken from it: chat; next: sparkops node return n1", BUSY),
        ("n2: taken from it: chat, other; next: sparkops node return n2", BUSY),
    ]
