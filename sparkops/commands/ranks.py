"""What each rank of a replica runs: a vLLM on one node, or the two halves of one that a Ray cluster or vLLM joins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkops.commands.engine import serve
from sparkops.config.engine import ENGINES
from sparkops.release import Rank

JOIN_S = 120  # Ray's ranks find each other within seconds, or not at all (facts of sparkrun: 30 tries of 2 s)
# A start must not depend on who is quicker, so a worker waits for the head and the head for its workers. What differs
# between nodes must not go with the driver's environment to its workers: vLLM reads the names from this file.
HEAD = """set -eu
address=$1 port=$2 ranks=$3 own=$4 patience=$5; shift 5
config=${VLLM_CONFIG_ROOT:-$HOME/.config/vllm}
mkdir -p "$config"
printf '%s' "$own" >"$config/ray_non_carry_over_env_vars.json"
ray start --head --node-ip-address="$address" --port="$port" --num-gpus=1 --num-cpus=2 \
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
address=$1 port=$2 head=$3 patience=$4
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
exec ray start --block --address="$head:$port" --node-ip-address="$address" --num-gpus=1 --num-cpus=2 \
    --object-store-memory=1073741824 --disable-usage-stats
"""


@dataclass(frozen=True)
class Seat:
    """Where a rank sits in its replica's network: its own address, and that of rank 0."""

    address: str
    head: str
    env: Mapping[str, str] = field(default_factory=dict)
    """What the rank is told about the network of its own node."""
    options: tuple[str, ...] = ()
    """Options of `docker create` for the network's devices."""
    own: tuple[str, ...] = ()
    """Names in `env` whose values are this node's alone."""


@dataclass(frozen=True)
class Program:
    """What a container runs, and what it needs for that."""

    entrypoint: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


def program(rank: Rank, models: str, seat: Seat | None = None) -> Program:
    """The program of one rank. `models` is where its container sees the node's models; a single rank has no seat."""
    engine = ENGINES[rank.release.recipe.engine]
    arguments = serve(rank, models)
    if seat is None:
        return Program(engine.program, arguments)
    ranked = (*arguments, f"--tensor-parallel-size={rank.size}")
    if rank.release.recipe.serve.executor == "ray":
        return _ray(rank, seat, (engine.program, *ranked, "--distributed-executor-backend=ray"))
    joins = (f"--nnodes={rank.size}", f"--node-rank={rank.index}", f"--master-addr={seat.head}")
    headless = ("--headless",) if rank.index else ()
    join = (*joins, f"--master-port={rank.meeting_port}", *headless)
    return Program(engine.program, (*ranked, *join), seat.env, seat.options)


def _ray(rank: Rank, seat: Seat, engine: tuple[str, ...]) -> Program:
    """Ray leaves children behind that somebody must collect: Docker's own init does."""
    port = str(rank.meeting_port)
    head = (HEAD, "sparkops", seat.address, port, str(rank.size), json.dumps(seat.own), str(JOIN_S), *engine)
    worker = (WORKER, "sparkops", seat.address, port, seat.head, str(JOIN_S))
    return Program("sh", ("-c", *(worker if rank.index else head)), seat.env, ("--init", *seat.options))
