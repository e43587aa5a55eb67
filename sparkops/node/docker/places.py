"""Containers, sockets and directories of guard and gateway. Short requests load no more than this module."""

from __future__ import annotations

from sparkops.command import Command

CONTAINER = "sparkops-guard"
STATE = "/var/lib/sparkops"
RUN = "/run/sparkops"
"""Directory of a node that its guard shares. Docker makes it as root, again after a reboot."""
REPORT = f"{RUN}/status.sock"
"""Sends what `sparkops status` shows of the node to root and to the group of Docker's socket."""
GATEWAY = "sparkops-gateway"
GATEWAY_USER = 10842
"""User ID of the gateway's programs (templates/gateway/Dockerfile.j2), chosen like that of engines."""
SHOW = Command(("docker", "exec", GATEWAY, "gateway", "show"), timeout_s=30.0)
"""Queries the gateway in one round trip: gateway.facts.parse_gateway reads the reply."""
SHOW_EACH = Command(("docker", "exec", "--interactive", GATEWAY, "gateway", "show-each"), timeout_s=30.0)
"""A stream: for each line sent, one line with the reply to SHOW."""
PROBE_EACH = Command(("docker", "exec", "--interactive", GATEWAY, "gateway", "probe-each"), timeout_s=30.0)
"""A stream: for each line with a request to a slot, one line with what came, in any order; both JSON with an id."""
RELAY = Command(("docker", "exec", "--interactive", CONTAINER, "python3", "-m", "sparkops.guard.ask"), timeout_s=30.0)
"""A stream of requests of an operator to the guard and replies, a line of JSON each; the same in every version."""
