"""Known causes of failed starts: Ray. Texts of Ray 2.40 to 2.60, and of the executors of vLLM on it."""

from __future__ import annotations

import re

from sparkops.engines.causes import Advice, Cause
from sparkops.serving.startup.causes.nccl import LESS_MEMORY, OPEN, OTHER, PROCESSES, SAME_IMAGE

HEAD = "Read the log of rank 0, which has the head of Ray: `sparkops logs SERVICE --rank 0`."
GPU = (
    "Check `gpu` (runtime, cdi or devices) of each node in the inventory and `nvidia-smi` there, run `sparkops "
    "doctor`, "
    "then deploy again."
)
NO_RAY = "Add ray[cgraph], pinned with ==, to image.packages, or set serve.executor: mp; then build and deploy again."
ONE_ADDRESS = (
    "Remove VLLM_HOST_IP (and RAY_NODE_IP_ADDRESS) from serve.env and from `env` of the node, or set it to the address "
    "that Ray uses; `fabric` of the node in the inventory gives both."
)

AT = re.compile(
    r"GCS at address:? (\S{1,128}?)\.? within|GCS \(ray cluster\) at (\S{1,128}?)\.? |--address[=' ]{1,3}(\S{1,64})"
)
OWN = re.compile(r"Local node IP: (\S{1,64})|existing Ray cluster at address: (\S{1,64}):\d")
DEMANDED = re.compile(r"'node:([\d.]{7,15}|[\da-fA-F:]{2,45})'")


def _no_head(match: re.Match[str], before: str) -> Advice:
    found = AT.findall(f"{before}\n{match.string}")
    address = next((part for part in (found[-1] if found else ()) if part), "")
    at = f" at {address}" if address else ""
    cause = (
        f"the head of Ray{at} cannot be reached: it does not run, listens at another address or port, or a firewall "
        "drops the packets"
    )
    port = address.rpartition(":")[2]
    look = f"`sudo ss -ltnp 'sport = :{port}'`" if port.isdigit() else "`sudo ss -ltnp`"
    step = f"{HEAD} On its node {look} shows where the head listens. {OPEN} Leave ports of Ray out of serve.args."
    return Advice(cause, step)


def _no_place(match: re.Match[str], before: str) -> Advice:
    demanded, own = DEMANDED.search(match.string), OWN.findall(before)
    known = {address for pair in own for address in pair if address}
    if demanded and known and demanded[1] not in known:
        address = demanded[1]
        cause = f"vLLM asks Ray for the node {address} (VLLM_HOST_IP), but Ray has no such node: it knows it as "
        return Advice(cause + " or ".join(sorted(known)), ONE_ADDRESS)
    cause = (
        "Ray has too few GPUs that are free: the container of a rank has no GPU or did not join, VLLM_HOST_IP is not "
        "an "
        "address that Ray knows, or another engine has one"
    )
    return Advice(cause, f"{GPU} {OTHER}")


CAUSES: tuple[Cause, ...] = (
    # What sparkops prints while the ranks join
    Cause(
        r"sparkops: not all (\d{1,4}) ranks have joined the Ray cluster at (\S{1,128}) within (\d{1,6}) s",
        "a rank did not join the Ray cluster at {1} within {2} s: its container did not start, ended, or cannot reach "
        "it",
        f"{OTHER} {OPEN}",
        source="sparkops/engines/ray.py",
        of_others=True,
    ),
    Cause(
        r"sparkops: (\S{1,64}) has not reached the Ray head at (\S{1,128}) within (\d{1,6}) s",
        "the head of Ray at {1} cannot be reached from {0}: rank 0 did not start or ended, or a firewall drops the "
        "packets",
        f"{HEAD} {OPEN}",
        source="sparkops/engines/ray.py",
    ),
    Cause(
        r"sparkops: ray: no token authentication: expected version (\S{1,16}) or newer, measured (\S{1,32})",
        "Ray {1} of the image is too old: from {0} it can demand a token",
        "Pin a newer ray in image.packages or image.override, or set serve.executor: mp; then build and deploy again.",
        source="sparkops/engines/ray.py",
    ),
    # The image
    Cause(
        r"(?:Using Ray backend requires installation of ray|Failed to import Ray|"
        r"No package metadata was found for ray\b|"
        r"No module named 'ray'|[Rr]ay is not installed)",
        "the image has no Ray, or one that cannot be imported, and serve.executor is ray",
        NO_RAY,
        source="vllm/v1/executor/ray_utils.py",
        unless=r"INFO|DEBUG|falling back",
    ),
    Cause(
        r"Ray Compiled Graph is not installed|cupy is not installed but required",
        "the Ray of the image lacks what its compiled graphs need (cupy)",
        NO_RAY,
        source="vllm/v1/executor/ray_executor.py",
    ),
    Cause(
        r"Ray version (\S{1,32}) is required, but found (\S{1,32})",
        "this vLLM needs Ray {0}, and the image has {1}",
        "Pin it in image.packages or image.override, then build and deploy again.",
        source="vllm/v1/executor/ray_executor.py",
    ),
    Cause(
        r"Ray version mismatch: cluster has Ray version (\S{1,32}) but local Ray version is (\S{1,32})",
        "the nodes have different images: the head runs Ray {0}, this rank Ray {1}",
        SAME_IMAGE,
        source="ray/scripts/scripts.py",
    ),
    Cause(
        r"(?<!patch )[Vv]ersion mismatch: The cluster was started with",
        "the nodes have different images: Ray or Python of this rank is another version than the head's",
        SAME_IMAGE,
        source="ray/_private/utils.py",
    ),
    Cause(
        r"The actor with name (\w{1,128}) failed to import on the worker",
        "a node cannot import {}: its image has another release of the engine than that of rank 0",
        SAME_IMAGE,
        source="ray/_private/function_manager.py",
    ),
    Cause(
        r"RaySystemError: System error: (?:No module named|Can't get attribute|cannot import name) ?'?([\w.]{0,256})",
        "the images of the nodes differ: one cannot load what another sent ({})",
        SAME_IMAGE,
        source="ray/exceptions.py",
    ),
    Cause(
        r"Error: No such option:? (-{1,2}[\w-]{1,64})",
        "the Ray of the image does not know the option {}",
        "Pin the Ray that vLLM requires in image.packages or image.override, then build and deploy again.",
        source="click (ray start)",
        beside=r"\bray start\b",
    ),
    # Addresses and ports
    Cause(
        r"Ray is trying to start at (\S{1,128}), but is already running at (\S{1,128}?)\. ",
        "a Ray already runs at {1}, most likely of an earlier start or of another program on this node",
        "Run `sparkops stop` for it, or on the node `docker ps` and `ray stop`; then deploy again.",
        source="ray/scripts/scripts.py",
    ),
    Cause(
        r"AF_UNIX path length cannot exceed (\d{1,4}) bytes",
        "the temporary folder of Ray has so long a path that the name of its socket exceeds the {} bytes of a "
        "Unix socket",
        "Remove RAY_TMPDIR and TMPDIR from serve.env, or set RAY_TMPDIR to a short directory such as /tmp/ray.",
        source="ray/_private/utils.py",
    ),
    Cause(
        r"Session name \S{1,128} does not match persisted value",
        "another Ray cluster runs already at this address, most likely of an earlier start",
        "Run `sparkops stop` for it, or on the node `docker ps` and `ray stop`; then deploy again.",
        source="ray/_private/node.py",
    ),
    Cause(
        r"Failed to start the grpc server\. The specified port is (\d{1,5})",
        "another program uses port {}, which Ray was to listen on",
        "Find it on the node with `sudo ss -ltnp 'sport = :{}'` and stop it (`sparkops stop` for an earlier start).",
        source="ray src/ray/rpc/grpc_server.cc",
    ),
    Cause(
        r"Failed to bind to (\S{1,64}):(\d{1,5}) because it's already occupied",
        "another program uses port {1}, which Ray's dashboard was to listen on",
        "Find it on the node with `sudo ss -ltnp 'sport = :{1}'` and stop it.",
        source="ray/_private/services.py",
    ),
    Cause(
        r"Cannot canonicalize address|Malformed (?:address|host)|Invalid address (?:port|format)|"
        r"Port is not specified for address",
        "the address of the head of Ray is malformed or cannot be resolved",
        "Remove RAY_ADDRESS from serve.env and from `env` of the node; give the address in `fabric` of the inventory.",
        source="ray/_private/services.py",
    ),
    Cause(
        r"Every node should have a unique IP address\. Got (\d{1,4}) nodes?[^\n]{0,512}?and (\d{1,4}) unique IP",
        "{0} nodes give only {1} addresses: VLLM_HOST_IP is the same on several nodes",
        ONE_ADDRESS,
        source="vllm/v1/executor/ray_executor.py",
    ),
    Cause(
        r"Token authentication is enabled but no (?:authentication )?token was found|"
        r"(?:Invalid|Missing|missing|invalid)(?: or missing)? authentication token|"
        r"InvalidAuthToken|ray\.exceptions\.AuthenticationError|WrongClusterID|[Cc]luster ID (?:token )?mismatch",
        "this rank has not the token of the Ray cluster that it reached: that cluster is of another start, or the "
        "token "
        "is missing",
        "Run `sparkops stop` for earlier starts, leave RAY_AUTH_MODE and RAY_AUTH_TOKEN out of serve.env, and deploy "
        "again.",
        source="ray/exceptions.py (AuthenticationError)",
        unless=r"Requests to authenticated clusters will fail",
    ),
    Cause(
        r"Could not find any running Ray instance",
        "no Ray runs where the engine looks for it: the head did not start, or RAY_ADDRESS is wrong",
        f"Remove RAY_ADDRESS from serve.env and from `env` of the node. {HEAD}",
        source="ray/_private/services.py",
    ),
    Cause(
        r"(?:Failed to start GCS)\.",
        "the head of Ray did not start: its port is taken, or its process ended",
        "See `sudo ss -ltnp` on the node, stop what is left of earlier starts (`sparkops stop`), and deploy again.",
        source="ray/_private/node.py",
    ),
    Cause(
        r"Failed to connect to GCS\.|Failed to connect to GCS at address \S{1,128} within|"
        r"Timed out while waiting for GCS to become available|Unable to connect to GCS|"
        r"Failed to connect to Ray cluster at|Failed to get cluster ID from GCS",
        source="ray/_private/node.py, src/ray/rpc/gcs_rpc_client.h",
        explain=_no_head,
    ),
    Cause(
        r"Failed to connect to GCS within \d{1,6} seconds|GCS (?:server )?(?:may have been|was) killed|"
        r"Could not (?:list|read) '[^'\n]{1,128}' from GCS|No node info found for head node in GCS|"
        r"The head node may have|Head node (?:temp_dir|session dir) not found in NodeInfo",
        "the head of Ray has ended, or its node can no longer be reached",
        HEAD,
        source="ray src/ray/rpc/gcs_rpc_client.h, ray/_private/utils.py",
        of_others=True,
    ),
    Cause(
        r"none match this node's IP|No node info found matching attributes|"
        r"Failed to get node info for possible node ids|"
        r"we can ?not find the matched Raylet|Can't find a `node_ip_address\.json` file",
        "the engine looks for Ray at another address of the node than the one that Ray joined with",
        ONE_ADDRESS,
        source="ray/_private/services.py",
    ),
    Cause(
        r"The current node timed out during startup|Timed out after \d{1,6} seconds while waiting for node to startup|"
        r"Timed out waiting for node info for node_id",
        "the raylet of this node did not register with the head: it ended, or the head cannot reach this node's "
        "address",
        f"{OPEN} `fabric` in the inventory gives the address; {PROCESSES}",
        source="ray/_private/node.py, ray/_private/services.py",
    ),
    # GPUs
    Cause(
        r"Cannot provide a placement group|Waiting for creating a placement group of specs",
        "Ray has fewer GPUs than the replica has ranks: another rank did not join, or its container has no GPU",
        f"{GPU} {OTHER}",
        source="vllm/v1/executor/ray_utils.py",
        beside=r"number of required \w{1,16}s exceeds the total number of available \w{1,16}s in the placement group",
        of_others=True,
        quiet=True,
    ),
    Cause(
        r"Cannot provide a placement group|No available node types can fulfill resource request|"
        r"number of required \w{1,16}s exceeds the total number of available \w{1,16}s in the placement group\. "
        r"Required",
        source="vllm/v1/executor/ray_utils.py",
        explain=_no_place,
    ),
    Cause(
        r"Current node has no (\w{1,16}) available",
        "Ray has no free {} on the node of rank 0: its container has none, or another engine in this Ray uses it",
        f"{GPU} Stop what is left of an earlier start: `sparkops stop`.",
        source="vllm/v1/executor/ray_utils.py",
    ),
    Cause(
        r"driver node id \w{1,64} is not included in a placement group",
        "all GPUs that Ray gave are on other nodes than that of rank 0, whose GPU is taken or missing",
        f"{GPU} Stop what is left of an earlier start: `sparkops stop`.",
        source="vllm/v1/executor/ray_utils.py",
    ),
    Cause(
        r"(?:ActorUnschedulableError|TaskUnschedulableError|is not schedulable: )",
        "Ray finds no node with the resources that a worker asks for",
        f"{GPU} {OTHER}",
        source="ray/exceptions.py",
    ),
    Cause(
        r"Placement group bundle cannot have more than 1|"
        r"current platform (\S{1,32}) does not support ray",
        "this engine cannot use Ray in this way: the container has no GPU, or the placement group is not its own",
        f"{GPU} Or set serve.executor: mp.",
        source="vllm/v1/executor/ray_utils.py",
    ),
    # Memory, files, processes
    Cause(
        r"configured object store size \(([\d.]{1,16} ?\w{2,3})\) exceeds /dev/shm size \(([\d.]{1,16} ?\w{2,3})\)",
        "the container's shared memory (/dev/shm) of {1} is smaller than Ray's object store of {0}",
        "Raise serve.shm_gib above it, and deploy again.",
        source="ray/_private/services.py",
    ),
    Cause(
        r"requested object store memory size is greater than the total available memory|"
        r"Attempting to cap object store memory usage at \d{1,20} bytes, but the minimum|"
        r"object store memory[^\n]{0,64}(?:too small|too large)",
        "the node has too little free memory for the object store of Ray",
        LESS_MEMORY,
        source="ray/_private/services.py",
    ),
    Cause(
        r"(?:plasma|object store|dlmalloc)[^\n]{0,128}(?:No space left on device|Cannot allocate memory)|"
        r"ObjectStoreFullError",
        "the object store of Ray in the container's shared memory (/dev/shm) is full",
        "Raise serve.shm_gib, and deploy again.",
        source="ray src/ray/object_manager/plasma",
        unless=r"falling back|fallback",
    ),
    Cause(
        r"OutOfDiskError|local disk's utilization is over capacity",
        "the disk of a node, under /tmp/ray in its container, is full",
        "Free space on the node (df): `sparkops prune` removes images and builds that nothing uses.",
        source="ray/exceptions.py",
    ),
    Cause(
        r"killed due to the node running low on memory|killed due to memory pressure|ray\.exceptions\.OutOfMemoryError",
        "the memory monitor of Ray killed a worker because the node's memory was nearly full",
        f"{LESS_MEMORY} RAY_memory_monitor_refresh_ms=0 in serve.env switches the monitor off.",
        source="ray src/ray/raylet (memory monitor), vllm-project/vllm#322",
    ),
    Cause(
        r"Failed to start worker with return value[^\n]{0,64}Resource temporarily unavailable|"
        r"pthread_create failed: Resource temporarily unavailable|"
        r"(?:thread|process|fork)[^\n]{0,96}Resource temporarily unavailable|can't start new thread",
        "the container may not start more processes or threads (limit of pids, or nproc)",
        PROCESSES,
        source="ray src/ray/raylet/worker_pool.cc, ray-project/ray#59778",
    ),
    Cause(
        r"PermissionError: \[Errno 13\] Permission denied: '(/tmp/ray[^']{0,256})'",
        "Ray may not write {} in the container: it belongs to another user",
        "Remove RAY_TMPDIR from serve.env, so that Ray uses a directory of its own container.",
        source="ray/_private/node.py",
    ),
    Cause(
        r"[Rr]aylet exited immediately because (?:one |the )Ray agent failed|raylet fate shares with the agent|"
        r"exited immediately because the runtime env agent timed out",
        "an agent of Ray on this node failed, and the raylet ends with it: grpcio of the image does not fit Ray, its "
        "port "
        "is taken, or the node's memory is full",
        "Pin ray and grpcio as vLLM requires them (image.packages, image.override); check `sudo ss -ltnp` and `free "
        "-g` "
        "on the node.",
        source="ray src/ray/raylet/agent_manager.cc",
    ),
    Cause(
        r"Failed to set up runtime environment|RuntimeEnvSetupError",
        "Ray could not prepare the environment of a worker on a node",
        "Remove working_dir, pip and the like of ray-runtime-env from serve.args; the image must contain all packages.",
        source="ray/exceptions.py (RuntimeEnvSetupError)",
    ),
    Cause(
        r"^\s{0,8}(raylet|gcs_server|log_monitor|dashboard_agent|runtime_env_agent) \[exit code=-(?:9|SIGKILL)\b",
        "the process {} of Ray was killed with SIGKILL, most likely because the node's memory was full",
        LESS_MEMORY,
        source="ray/scripts/scripts.py",
    ),
    Cause(
        r"^\s{0,8}(raylet|gcs_server) \[exit code=",
        "the process {} of Ray on this node ended",
        "Read the lines after `BEGIN {}` in its log: `sparkops logs SERVICE --node NODE`.",
        source="ray/scripts/scripts.py",
    ),
    Cause(
        r"Failed to register worker[^\n]{0,128}to [Rr]aylet|Unable to register worker with raylet|"
        r"local raylet died|LocalRayletDiedError|Failed to connect to socket at address:?\s?/\S{0,256}raylet",
        "the raylet of this node has ended: memory, processes or shared memory of its container were exhausted, or its "
        "own log says why",
        f"Read the log of that rank: `sparkops logs SERVICE --node NODE`. {PROCESSES}",
        source="ray src/ray/core_worker, src/ray/raylet_client",
    ),
    # Reports about other ranks
    Cause(
        r"(?:The actor|task|worker)[^\n]{0,64} died because its node has died|has been marked dead because|"
        r"health check failed due to missing too many heartbeats|node was terminated unexpectedly|NodeDiedError",
        "the node of another rank left the Ray cluster: its raylet has ended, or the network broke",
        f"{OTHER} {OPEN}",
        source="ray src/ray/gcs (node failure)",
        of_others=True,
    ),
    Cause(
        r"Worker exit type: SYSTEM_ERROR|Worker unexpectedly exits with a connection error code|WorkerCrashedError|"
        r"worker died unexpectedly while executing this task|The worker process has died",
        "a worker process of Ray ended without a word: most likely the kernel killed it because the node's memory was "
        "full, or it crashed",
        f"Look for `Out of memory` in `sudo dmesg` of the nodes. {LESS_MEMORY} {OTHER}",
        source="ray/exceptions.py",
        of_others=True,
    ),
    Cause(
        r"ActorDiedError: The actor died (?:unexpectedly )?before finishing this task|ActorUnavailableError|"
        r"The actor died unexpectedly before finishing this task|OwnerDiedError|ActorPlacementGroupRemoved",
        "a worker on another node has ended",
        OTHER,
        source="ray/exceptions.py",
        of_others=True,
    ),
    # What a start waits for
    Cause(
        r"Waiting for creating a placement group of specs for (\d{1,9}) seconds",
        source="vllm/v1/executor/ray_utils.py, vllm-project/vllm#12983",
        explain=_no_place,
        quiet=True,
    ),
    Cause(
        r"Failed to connect to GCS at address \S{1,128} within|This node has an IP address of \S{1,64}",
        source="ray src/ray/rpc/gcs_rpc_client.h",
        explain=_no_head,
        quiet=True,
    ),
    Cause(
        r"The NVIDIA Driver was not detected",
        "the container has no GPU: the driver of the node was not passed to it",
        GPU,
        source="entry script of NVIDIA's images",
        quiet=True,
    ),
    Cause(
        r"Waiting for removing a placement group",
        "Ray does not give back the GPUs of an earlier start",
        "Run `sparkops stop` for the service, then deploy again.",
        source="vllm/v1/executor/ray_utils.py",
        quiet=True,
    ),
)
