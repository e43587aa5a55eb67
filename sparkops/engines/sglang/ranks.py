"""SGLang's command line: the form of its flags, and its ranks on several nodes."""

from __future__ import annotations

from dataclasses import replace

from sparkops.engines.launch import FlagForm, RankPlace, RankProgram

FORM = FlagForm(
    off="--no-{flag}", json_lists=frozenset({"forward-hooks", "sidecar-args", "decoupled-spec-connect-endpoints"})
)
"""A list is nargs='+', or one JSON text where the field has `json_list_type`; few flags have a --no- form
(sglang/srt/arg_groups/arg_utils.py of 0.5.23)."""


def with_mp(place: RankPlace, alone: RankProgram) -> RankProgram:
    """Return the program of a rank of SGLang's own launcher. Ranks above 0 serve no API.

    The ranks meet at the port of torch.distributed on rank 0; the other connections between them are those of Gloo and
    NCCL. Without data parallelism the processes of one rank talk over Unix sockets (PortArgs.init_new in
    sglang/srt/server_args.py of 0.5.23). With one GPU a node, node k holds rank k % tp of stage k // tp
    (_calculate_rank_ranges in entrypoints/engine.py of 0.5.17).
    """
    seat = place.seat
    address = {"SGLANG_HOST_IP": seat.address}  # sglang/srt/utils/network.py: else the route to 8.8.8.8 decides
    words = (
        f"--tp-size={place.tensor}",
        *((f"--pp-size={place.pipeline}",) if place.pipeline > 1 else ()),
        f"--nnodes={place.size}",
        f"--node-rank={place.index}",
        f"--dist-init-addr={seat.head}:{place.port}",
    )
    return replace(alone, arguments=(*alone.arguments, *words), env={**seat.env, **address}, options=seat.options)
