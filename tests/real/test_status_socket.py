"""`sparkops status` on real nodes: one channel through OpenSSH's server to each guard, and no command."""

from __future__ import annotations

import pytest

from tests.real.service import Service

pytestmark = pytest.mark.fleet
SOCKET = "/run/sparkops/status.sock"
CONNECT = f"import socket; s = socket.socket(socket.AF_UNIX); s.connect('{SOCKET}'); print(len(s.makefile().read()))"


def test_status_asks_each_guard_once_and_runs_nothing_on_the_nodes(service: Service) -> None:
    ran = service.cli("-v", "status", "--json")

    assert ran.code == 0, ran.err
    assert sorted(ran.err.splitlines()) == [f"{node}: connect to {SOCKET}" for node in ("node-1", "node-2")]
    [row] = ran.json["services"]
    [rank] = [rank for replica in row["replicas"] for rank in replica["ranks"] if rank["exit_code"] is None]
    assert (row["state"], rank["health"], ran.json["gateway"]["state"]) == ("healthy", "ok", "up")
    assert 0 <= rank["sampled_s"] <= 5
    assert all(node["disk_free_gib"] > 0 for node in ran.json["nodes"])


def test_a_user_who_may_not_use_docker_reads_nothing(service: Service) -> None:
    node = service.nodes.node("node-2")

    def length(*user: str) -> int:
        return int(node.exec("setpriv", *user, "python3", "-c", CONNECT))

    assert length("--reuid=65534", "--regid=65534", "--clear-groups") == 0
    assert length("--reuid=65534", "--regid=65534", "--groups=docker") > 1000
