"""The ranks of a replica as a Ray cluster, for engines that run on one."""

from __future__ import annotations

import json

from sparkops.engines.launch import RankPlace, RankProgram

JOIN_S = 120  # Ray's ranks find each other within seconds, or not at all (facts of sparkrun: 30 tries of 2 s)
TOKEN = "/run/sparkops-ray-token"  # noqa: S105 - a path
"""File in a container that holds the token of its Ray cluster."""
# `ray start` refuses port 0 for the Ray Client server (2.60), and starts that server wherever gRPC for Python can be
# imported: without gRPC there is none, and the agents serve less. Ports that Ray picks come from the kernel's ephemeral
# range, which node/network/firewall.py filters: its default for workers, 10002 to 19999, holds other services' ports.
START = """import sys
from importlib.metadata import version
ray = version("ray")
if tuple(map(int, ray.split(".")[:2])) < (2, 52):
    sys.exit(f"sparkops: ray: no token authentication: expected version 2.52 or newer, measured {ray}")
sys.modules["grpc"] = None
from ray.scripts.scripts import main
main()"""
PORTS = "--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0"
# A start must not depend on who is quicker, so a worker waits for the head and the head for its workers. What differs
# between nodes must not go with the driver's environment to its workers: vLLM reads the names from this file.
HEAD = """set -eu
address=$1 port=$2 ranks=$3 own=$4 patience=$5 start=$6 ports=$7; shift 7
config=${VLLM_CONFIG_ROOT:-$HOME/.config/vllm}
mkdir -p "$config"
printf '%s' "$own" >"$config/ray_non_carry_over_env_vars.json"
python3 -c "$start" start --head --node-ip-address="$address" --port="$port" $ports --num-gpus=1 --num-cpus=2 \
    --object-store-memory=1073741824 --include-dashboard=false --disable-usage-stats
end=$(($(date +%s) + patience))
until ray status 2>/dev/null | grep -q "/$ranks\\.0 GPU"; do
    if [ "$(date +%s)" -gt "$end" ]; then
        ray status || true
        echo "sparkops: not all $ranks ranks have joined the Ray cluster at $address:$port within $patience s"
        exit 1
    fi
    sleep 1
done
echo "sparkops: all $ranks ranks have joined the Ray cluster at $address:$port"
exec "$@"
"""
WORKER = """set -eu
address=$1 port=$2 head=$3 patience=$4 start=$5 ports=$6
end=$(($(date +%s) + patience))
until python3 -c "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 2)" \
    "$head" "$port" 2>/dev/null; do
    if [ "$(date +%s)" -gt "$end" ]; then
        echo "sparkops: $address has not reached the Ray head at $head:$port within $patience s"
        exit 1
    fi
    sleep 1
done
echo "sparkops: $address joins the Ray cluster at $head:$port"
exec python3 -c "$start" start --block --address="$head:$port" --node-ip-address="$address" $ports \
    --num-gpus=1 --num-cpus=2 \
    --object-store-memory=1073741824 --disable-usage-stats
"""


def join(place: RankPlace, alone: RankProgram) -> RankProgram:
    """Return the program of a rank in a Ray cluster. Ray leaves child processes behind; Docker's init reaps them.

    Rank 0 starts the engine as `alone` says, once all ranks have joined. By default Ray prints a line of several ranks
    once: then the log of rank 0 would not show the network of each.
    """
    seat, port = place.seat, str(place.port)
    begin, engine = (str(JOIN_S), START, PORTS), (alone.entrypoint, *alone.arguments)
    head = (HEAD, "sparkops", seat.address, port, str(place.size), json.dumps(seat.own), *begin, *engine)
    worker = (WORKER, "sparkops", seat.address, port, seat.head, *begin)
    env = {**seat.env, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": TOKEN, "RAY_DEDUP_LOGS": "0"}
    return RankProgram("sh", ("-c", *(worker if place.index else head)), env, ("--init", *seat.options))
