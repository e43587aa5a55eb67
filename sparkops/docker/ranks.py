"""The program of each rank of a replica: vLLM on one node, or on several nodes with Ray or vLLM's own launcher."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkops.config.inventory import LOOPBACK
from sparkops.engines import ENGINES
from sparkops.release import Rank

JSON_LISTS = frozenset({"allowed-origins", "allowed-methods", "allowed-headers"})
"""Flags of vLLM that take a list as JSON; so does each key behind a dot. Every other list is several words: nargs='+'
(vllm/entrypoints/launchers/cli_args.py and utils/argparse_utils.py of 0.32.0)."""
REPEATED = frozenset({"middleware"})
"""Flags of vLLM that are written once for each item (ibid., action='append')."""
JOIN_S = 120  # Ray's ranks find each other within seconds, or not at all (facts of sparkrun: 30 tries of 2 s)
TOKEN = "/run/sparkops-ray-token"  # noqa: S105 - a path
"""File in a container that holds the token of its Ray cluster."""
# `ray start` refuses port 0 for the Ray Client server (2.60), and starts that server wherever gRPC for Python can be
# imported: without gRPC there is none, and the agents serve less. Ports that Ray picks come from the kernel's ephemeral
# range, which network/firewall.py filters: its default for workers, 10002 to 19999, holds other services' ports.
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


@dataclass(frozen=True)
class Seat:
    """The place of a rank in its replica's network: its own address, and that of rank 0."""

    address: str
    head: str
    env: Mapping[str, str] = field(default_factory=dict)
    """Settings for the network of its own node."""
    options: tuple[str, ...] = ()
    """Options of `docker create` for the network's devices."""
    own: tuple[str, ...] = ()
    """Names in `env` whose values are this node's alone."""
    peers: tuple[str, ...] = ()
    """Addresses of all ranks, which alone may connect to this one."""


@dataclass(frozen=True)
class RankProgram:
    """The program of a container, and its environment and options."""

    entrypoint: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()


def program(rank: Rank, models: str, seat: Seat | None = None) -> RankProgram:
    """Return the program of one rank. `models` is the model directory in its container; a single rank has no seat."""
    engine = ENGINES[rank.release.recipe.engine]
    arguments = serve(rank, models)
    if seat is None:
        return RankProgram(engine.program, arguments)
    ranked = (*arguments, f"--tensor-parallel-size={rank.size}")
    if rank.release.recipe.serve.executor == "ray":
        return _ray(rank, seat, (engine.program, *ranked, "--distributed-executor-backend=ray"))
    joins = (f"--nnodes={rank.size}", f"--node-rank={rank.index}", f"--master-addr={seat.head}")
    headless = ("--headless",) if rank.index else ()
    join = (*joins, f"--master-port={rank.rendezvous_port}", *headless)
    return RankProgram(engine.program, (*ranked, *join), seat.env, seat.options)


def _ray(rank: Rank, seat: Seat, engine: tuple[str, ...]) -> RankProgram:
    """Return the program of a rank in a Ray cluster. Ray leaves child processes behind; Docker's init reaps them.

    By default Ray prints a line of several ranks once: then the log of rank 0 would not show the network of each.
    """
    port = str(rank.rendezvous_port)
    begin = (str(JOIN_S), START, PORTS)
    head = (HEAD, "sparkops", seat.address, port, str(rank.size), json.dumps(seat.own), *begin, *engine)
    worker = (WORKER, "sparkops", seat.address, port, seat.head, *begin)
    env = {**seat.env, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": TOKEN, "RAY_DEDUP_LOGS": "0"}
    return RankProgram("sh", ("-c", *(worker if rank.index else head)), env, ("--init", *seat.options))


def serve(rank: Rank, models: str) -> tuple[str, ...]:
    """Return the arguments of the engine's program. `models` is where its container sees the node's model directory."""
    recipe = rank.release.recipe
    engine = ENGINES[recipe.engine]
    host = LOOPBACK if rank.callers == () else "0.0.0.0"  # noqa: S104 - the guard filters, or there is no gateway
    known = {"model": f"{models}/{recipe.model.path}", "host": host, "port": rank.port}
    given = (argument.format(**known) for argument in engine.arguments)
    name = [recipe.service, *recipe.serve.aliases] if recipe.serve.aliases else recipe.service
    return (*given, *arguments({engine.name_flag: name, **recipe.serve.args}, engine.off))


def arguments(args: Mapping[str, Any], off: str) -> Iterable[str]:
    """Yield the arguments of the recipe's mapping, in their order. `off` formats a false one."""
    for flag, value in args.items():
        match value:
            case True:
                yield f"--{flag}"
            case False:
                yield off.format(flag=flag)
            case dict():
                yield f"--{flag}={json.dumps(value)}"
            case list() if "." in flag or flag in JSON_LISTS:
                yield f"--{flag}={json.dumps(value)}"
            case list() if flag in REPEATED:
                yield from (f"--{flag}={_text(item)}" for item in value)
            case list():
                yield from (f"--{flag}", *(_text(item) for item in value))
            case _:
                yield f"--{flag}={value}"


def _text(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item)
