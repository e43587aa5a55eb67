"""`sparkops status` on real nodes: one channel through OpenSSH's server to each guard, and no command."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.node.agents.commands import PEER_PORT
from tests.real.service import Service, wait_for

pytestmark = pytest.mark.fleet
SOCKET = "/run/sparkops/status.sock"
CONNECT = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{SOCKET}'); print(len(s.makefile().read()))"


def test_status_asks_each_guard_once_and_runs_nothing_on_the_nodes(service: Service) -> None:
    ran = service.cli("-v", "status", "--json")

    assert ran.code == 0, ran.err
    assert sorted(ran.err.splitlines()) == [f"{node}: connect to {SOCKET}" for node in ("node-1", "node-2")]
    [row] = [row for row in ran.json["services"] if row["name"] == service.name]  # others may have stopped
    rank = running_rank(row)
    assert (row["state"], rank["health"], ran.json["gateway"]["state"]) == ("healthy", "ok", "up")
    assert rank["sampled_s"] >= 0
    wait_for(lambda: sampled_s(service) <= 5)
    assert all(node["disk_free_gib"] > 0 for node in ran.json["nodes"])


def test_a_guard_that_the_leader_does_not_reach_is_named_until_the_link_is_back(service: Service) -> None:
    """The leader is node-1, the gateway's node. Of node-2 only the port of its guard is closed, silently.

    Services that others have stopped wait for it, too: each has a row.
    """
    node = service.nodes.node("node-2")

    def named(verb: str = "status") -> list[Any]:
        key, text = ("drift", "detail") if verb == "status" else ("findings", "problem")
        rows = [row for row in service.cli(verb, "--json").json[key] if row["code"] == "GUARD_NOT_REACHED"]
        return [row for row in rows if row[text].startswith(f"{service.name}: ")]

    assert named() == []
    node.exec("iptables", "-t", "mangle", "-A", "PREROUTING", "-p", "tcp", f"--dport={PEER_PORT}", "-j", "DROP")
    try:
        [drift] = wait_for(named)
        [finding] = named("doctor")
        row = service.status()
    finally:
        node.heal()

    problem = "stand-in: node-1 cannot reach the guard of node-2, swaps wait: "
    why = f"node-2: no reply from {node.address} port {PEER_PORT}: timed out"
    assert (drift["node"], drift["detail"]) == ("node-2", problem + why)
    assert drift["next_step"] == "docker logs sparkops-guard, on node-2"
    assert (finding["node"], finding["problem"]) == ("node-2", problem + why)
    assert finding["next_step"] == "docker logs --tail 50 sparkops-guard, on both nodes"
    assert row["state"] == "healthy"
    wait_for(lambda: not named())


def running_rank(row: Any) -> Any:
    """The only rank that runs, in the row of its service."""
    [rank] = [rank for replica in row["replicas"] for rank in replica["ranks"] if rank["exit_code"] is None]
    return rank


def sampled_s(service: Service) -> float:
    """The age of what `status` shows of the engine's load."""
    return float(running_rank(service.status())["sampled_s"])


def test_a_user_who_may_not_use_docker_reads_nothing(service: Service) -> None:
    node = service.nodes.node("node-2")

    def length(*user: str) -> int:
        return int(node.exec("setpriv", *user, "python3", "-c", CONNECT))

    assert length("--reuid=65534", "--regid=65534", "--clear-groups") == 0
    assert length("--reuid=65534", "--regid=65534", "--groups=docker") > 1000
