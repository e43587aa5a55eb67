"""Known causes of failed starts: Gloo, and torch's rendezvous (TCPStore). Texts of torch 2.4 to 2.11."""

from __future__ import annotations

import re

from sparkops.engines.causes import Advice, Cause
from sparkops.serving.startup.causes.nccl import FABRIC, OPEN, OTHER, SAME_IMAGE

INTERFACE = (
    "Remove GLOO_SOCKET_IFNAME from serve.env and from `env` of the node, or give it the plain name of one interface "
    "there, such as enp1s0f0np0; `fabric` in the inventory names the interface, and `sparkops doctor` checks it."
)
NAME = (
    "Set GLOO_SOCKET_IFNAME in `env` of the node in the inventory to the interface of the cable, or write its address "
    "behind the node's name in /etc/hosts (Ubuntu has 127.0.1.1 there), then run `sparkops doctor`."
)
ADDRESS = r"\[?([\w.:%-]{1,128}?)\]?"
BOUND = re.compile(r"failed to bind to \S{1,128}:(\d{1,5})\b|\bport: (\d{1,5}),")
LOOPBACK = r"127\.\d{1,3}\.\d{1,3}\.\d{1,3}|::1"


def _port_taken(match: re.Match[str], before: str) -> Advice:
    found = BOUND.search(match.string) or BOUND.search(before)
    port = (found[1] or found[2]) if found else ""
    cause = f"another program uses the port{' ' * bool(port)}{port} of the rendezvous, often a rank of an earlier start"
    socket = f"`sudo ss -ltnp 'sport = :{port}'`" if port else "`sudo ss -ltnp`"
    step = (
        f"Find it with {socket} on the node of rank 0 and stop it (`sparkops stop` for a service), then deploy again."
    )
    return Advice(cause, step)


CAUSES: tuple[Cause, ...] = (
    # Ports
    Cause(
        r"server socket has failed to listen on any local network address|"
        r"server socket has failed to bind to [^\n]{0,128}(?:Address already in use|EADDRINUSE)|"
        r"server could not be initialized on any address for port=(\d{1,5})",
        source="torch/csrc/distributed/c10d/socket.cpp",
        beside=r"[Aa]ddress already in use|EADDRINUSE",
        explain=_port_taken,
    ),
    Cause(
        r"server socket has failed to (?:listen on any local network address|bind to)",
        "the rendezvous cannot listen on this node: its address is not one of the node, or the port needs more rights",
        "Leave master-addr, master-port and dist-init-addr out of serve.args; `fabric` in the inventory gives it.",
        source="torch/csrc/distributed/c10d/socket.cpp",
    ),
    Cause(
        r"ZMQError: Cannot assign requested address(?: \(addr='(?:tcp://)?([^']{1,128})'\))?",
        "the address {} on which the engine is to listen does not belong to this node",
        "Remove VLLM_HOST_IP (SGLANG_HOST_IP, HOST_IP) from serve.env and from `env` of the node; `fabric` gives it.",
        source="pyzmq",
    ),
    Cause(
        r"[Aa]ddress already in use(?!\. Retrying)",
        "another program uses the port",
        "Find it with `sudo ss -ltnp` on the node and stop it.",
        source="strerror(EADDRINUSE)",
    ),
    # The way to the rendezvous
    Cause(
        r"(?:client socket has (?:timed out|failed)|TCP client failed)[^\n]{0,128}(?:\(|host )"
        rf"(?:{LOOPBACK}|localhost)[,:]",
        "this rank looks for rank 0 at a loopback address, its own: the address of the rendezvous is wrong",
        "Leave master-addr (dist-init-addr) out of serve.args, and set `fabric` of the nodes in the inventory.",
        source="torch/csrc/distributed/c10d/socket.cpp",
        beside=r"(?:node_rank|node-rank|rank)[ =]{1,3}[1-9]",
        unless=r"retrying \(|will retry|WARN",
    ),
    Cause(
        r"(?:Error: |- timed out \(try[^\n]{0,128}|\[c10d\] )(?:The )?client socket has (?:timed out after \S{1,16} "
        r"while trying|failed) to connect to (?:any network address of )?\(([^,\s]{1,128}), (\d{1,5})\)",
        "the name {0} of rank 0 cannot be resolved on this node",
        "Give the nodes addresses in `fabric` of the inventory, or add {0} to /etc/hosts of the node, and deploy "
        "again.",
        source="torch/csrc/distributed/c10d/socket.cpp",
        unless=r"retrying \(",
        beside=r"network addresses of \([^\n]{1,128}\) cannot be retrieved \(gai error",
        told_beside=True,
    ),
    Cause(
        r"client socket has timed out after \S{1,16} while trying to connect to \(([^,\s]{1,128}), (\d{1,5})\)",
        "the rendezvous of rank 0 at {0}:{1} cannot be reached: rank 0 did not start, a firewall drops the packets, "
        "or the address is on another network",
        f"See whether rank 0 runs (`sparkops logs SERVICE --rank 0`). {OPEN}",
        source="torch/csrc/distributed/c10d/socket.cpp",
        unless=r"retrying \(",
    ),
    Cause(
        r"TCP client failed to connect/validate to host (\S{1,128}):(\d{1,5}) - timed out [^\n]{0,96}"
        r"(?:failed to recv|Ping failed|Connection reset|recvValue)",
        "what listens at {0}:{1} is not the rendezvous of this start: another program has that port on the node of "
        "rank 0, or rank 0 has ended",
        "Read the log of rank 0 (`sparkops logs SERVICE --rank 0`); on its node see `sudo ss -ltnp 'sport = :{1}'`.",
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
    ),
    Cause(
        r"TCP client failed to connect/validate to host (\S{1,128}):(\d{1,5}) - timed out",
        "the rendezvous of rank 0 at {0}:{1} cannot be reached: rank 0 did not start, a firewall drops the packets, "
        "or the address is on another network",
        f"See whether rank 0 runs (`sparkops logs SERVICE --rank 0`). {OPEN}",
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
    ),
    Cause(
        r"Error: (?:The )?client socket has failed to connect to any network address of \(([^,\s]{1,128}), (\d{1,5})\)"
        r"[^\n]{0,512}(?:No route to host|Network is unreachable|errno: 11[03]|errno: 101)",
        "no route leads to the rendezvous of rank 0 at {0}:{1}: it is on another network, its link is down, or a "
        "firewall rejects it",
        f"{FABRIC} {OPEN}",
        source="torch/csrc/distributed/c10d/socket.cpp",
    ),
    Cause(
        r"Error: (?:The )?client socket has failed to connect to any network address of \(([^,\s]{1,128}), (\d{1,5})\)",
        "the rendezvous of rank 0 at {0}:{1} cannot be reached: rank 0 did not start or has ended, or the address is "
        "on another network",
        f"See whether rank 0 runs (`sparkops logs SERVICE --rank 0`). {FABRIC}",
        source="torch/csrc/distributed/c10d/socket.cpp",
    ),
    Cause(
        r"Ping failed, invalid value returned from server",
        "what listens at the address of the rendezvous is another program",
        "Find it on the node of rank 0 with `sudo ss -ltnp` and stop it, then deploy again.",
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
        unless=r"retrying",
    ),
    Cause(
        r"use_libuv was requested but PyTorch was built? without libuv",
        "torch was built without libuv, which the rendezvous uses by default",
        "Set USE_LIBUV=0 in serve.env, and name USE_LIBUV in serve.allow.",
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
    ),
    # The interface and the address of Gloo
    Cause(
        r"Unable to find address for: (\^\S{0,128}|[^\s,]{1,64},\S{0,128}|=\S{0,128})",
        "GLOO_SOCKET_IFNAME is {}, in the syntax of NCCL, but Gloo takes the plain name of one interface",
        INTERFACE,
        source="gloo/transport/tcp/device.cc, aws-samples/aws-do-eks#51",
    ),
    Cause(
        r"ifa != nullptr\. Unable to find address for: (\S{1,128})",
        "GLOO_SOCKET_IFNAME names the interface {}, which this node does not have, or which has no address",
        INTERFACE,
        source="gloo/transport/tcp/device.cc",
    ),
    Cause(
        r"Unable to find address for:? (\S{1,128})|Unable to resolve hostname to a \(local\) address",
        "the name of the node {} does not resolve to an address of its own, so Gloo has none to give to the other "
        "ranks",
        NAME,
        source="gloo/transport/tcp/device.cc",
    ),
    Cause(
        r"Unable to find interface for: (\S{1,128})",
        "no interface of this node has the address {}, which its name resolves to",
        NAME,
        source="gloo/transport/tcp/device.cc",
    ),
    Cause(
        r"(?:makeDeviceForHostname|makeDeviceForInterface)\(\): unsupported gloo device|"
        r"gloo[^\n]{0,128}(?:getaddrinfo|gethostname)[^\n]{0,128}",
        "Gloo finds no address of this node: its name does not resolve, or GLOO_SOCKET_IFNAME is wrong",
        NAME,
        source="torch/csrc/distributed/c10d/GlooDeviceFactory.cpp",
    ),
    # The connections that Gloo makes
    Cause(
        rf"SO_ERROR: [^,\n]{{1,64}}, remote=\[?((?:{LOOPBACK}))\]?|Connect timeout \[((?:{LOOPBACK}))\]|"
        rf"connectFullMesh failed with [^\n]{{0,256}}remote=\[?((?:{LOOPBACK}))",
        "the other rank gave {0}{1}{2} as its address, a loopback address, because the name of its node resolves to it",
        NAME,
        source="gloo/transport/tcp/helpers.cc, sgl-project/sglang#3226",
        unless=r"willRetry=1|will ?retry",
    ),
    Cause(
        rf"connectFullMesh failed with [^\n]{{0,256}}SO_ERROR: Connection refused, remote={ADDRESS}:(\d{{1,5}})\b",
        "nothing listens for Gloo at {0}:{1}: that rank has ended, or the address is not of its node",
        f"{OTHER} Else: {INTERFACE}",
        source="gloo/transport/tcp/helpers.cc",
        unless=r"willRetry=1",
    ),
    Cause(
        r"connectFullMesh failed with [^\n]{0,256}SO_ERROR: (?:No route to host|Network is unreachable), "
        rf"remote={ADDRESS}:(\d{{1,5}})\b",
        "no route leads to the address that Gloo uses of the other rank, {0}: it is on another network, or a firewall "
        "rejects the port {1}",
        f"{OPEN} {INTERFACE}",
        source="gloo/transport/tcp/helpers.cc",
        unless=r"willRetry=1",
    ),
    Cause(
        r"connectFullMesh failed with [^\n]{0,256}(?:SO_ERROR: |timed out connecting)[^\n]{0,64}"
        rf"remote={ADDRESS}:(\d{{1,5}})\b",
        "the port {1} that Gloo opened on the other node ({0}) does not answer: a firewall drops the packets, or that "
        "address is on a network that does not reach this node",
        f"{OPEN} Else: {INTERFACE}",
        source="gloo/transport/tcp/helpers.cc, torch ProcessGroupGloo.cpp",
        unless=r"willRetry=1",
    ),
    Cause(
        rf"Connect timeout {ADDRESS}:(\d{{1,5}})|Connect timeout \[",
        "the other rank {0} did not connect with Gloo in time: a firewall drops the packets, or it has ended",
        f"{OTHER} {OPEN}",
        source="gloo/transport/tcp/pair.h",
        of_others=True,
    ),
    Cause(
        r"Gloo connect(?:Full)?Mesh failed with",
        "another rank could not connect to this one with Gloo, or has ended",
        f"{OTHER} {OPEN}",
        source="torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",
        of_others=True,
    ),
    Cause(
        r"gloo/transport/tcp/\S{1,64} (?:Connection closed by peer|Read error|writev|Socket closed|"
        r"Socket unexpectedly closed) ?([^\n:]{0,64})",
        "another rank has ended: its connection with Gloo was closed",
        OTHER,
        source="gloo/transport/tcp/pair.cc",
        of_others=True,
    ),
    Cause(
        r"Timed out waiting (\d{1,12})ms for (?:recv|send) operation to complete|"
        r"Application timeout caused pair closure|"
        r"gloo/transport/tcp/\S{1,64} (?:Read|Write) timeout",
        "another rank does not answer: it has ended, still loads, or hangs",
        OTHER,
        source="gloo/transport/tcp/unbound_buffer.cc",
        of_others=True,
    ),
    Cause(
        r"op\.preamble\.length <= op\.nbytes|Received data size doesn't match expected size",
        "the ranks exchange data of different sizes: their images, models or arguments differ",
        f"{SAME_IMAGE} Compare the model on the nodes with `sparkops models list`.",
        source="gloo/transport/tcp/pair.cc",
    ),
    Cause(
        r"[Rr]ank (\d{1,9}) failed to pass monitoredBarrier|Ranks ([\d, ]{1,64}) failed to pass monitoredBarrier",
        "rank {0}{1} did not come as far as this one in time: it has ended, or still loads",
        OTHER,
        source="torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",
        of_others=True,
    ),
    Cause(
        r"reached monitoredBarrier, but received errors while waiting for send/recv from rank (\d{1,9})",
        "rank {} has ended while this one waited for it",
        OTHER,
        source="torch/csrc/distributed/c10d/ProcessGroupGloo.cpp",
        of_others=True,
    ),
    # Reports about other ranks
    Cause(
        r"Timed out after (\d{1,9}) seconds waiting for clients\. (\d{1,9})/(\d{1,9}) clients joined",
        "only {1} of {2} ranks joined within {0} s: another rank did not start, ended, or cannot reach this node",
        f"{OTHER} If it waits as well, open the ports between the nodes and run `sparkops doctor`.",
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
        of_others=True,
    ),
    Cause(
        r"Timed out initializing process group in store based barrier on rank[^\n]{0,256}"
        r"world_size=(\d{1,9}), (?:num_workers_joined|worker_count)=(\d{1,9})",
        "only {1} of {0} ranks joined: another rank did not start, ended, or cannot reach this node",
        OTHER,
        source="torch/distributed/distributed_c10d.py",
        of_others=True,
    ),
    Cause(
        r"wait timeout after (\d{1,12})ms|DistStoreError: (?:Socket Timeout|wait timeout)|"
        r"Timed out (?:waiting|initializing)[^\n]{0,64}store based barrier|Socket Timeout$",
        "another rank did not come as far as this one in time: it has ended, hangs, or still loads",
        OTHER,
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
        of_others=True,
    ),
    Cause(
        r"(?:sendBytes|recvBytes|recvValue|recvVector) failed on SocketImpl|"
        r"DistNetworkError: failed to recv, got 0 bytes|"
        r"DistNetworkError: (?:Connection reset by peer|Broken pipe|Connection was likely closed)|"
        r"failed to recv, got 0 bytes|Connection was likely closed\. Did the remote server shutdown or crash",
        "rank 0, which holds the rendezvous, has ended",
        "Read the log of rank 0: `sparkops logs SERVICE --rank 0`.",
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
        unless=r"retrying \(",
        of_others=True,
    ),
    Cause(
        r"Failed to (?:broadcast barrier_id|signal barrier (?:arrival|departure))|"
        r"Barrier (?:departure )?timed out after [\d.]{1,16} seconds",
        "another rank did not come as far as this one in time: it has ended, hangs, or still loads",
        OTHER,
        source="vllm/distributed/utils.py",
        of_others=True,
    ),
    # What a start waits for
    Cause(
        r"Init torch distributed begin",
        "rank 0 waits for a rank that has not joined: no other container has reached it, or a second one was started "
        "with "
        "node-rank 0 as well",
        "Leave node-rank, nnodes and dist-init-addr out of serve.args; `sparkops deploy` gives each node its own rank "
        "and "
        f"the address of the first. {OPEN}",
        source="sglang/srt/model_executor/model_runner.py, sgl-project/sglang#7478",
        beside=r"\bnnodes=(?!1\b)\d{1,4}, node_rank=0\b",
        until=r"Init torch distributed ends",
        of_others=True,
        quiet=True,
    ),
    Cause(
        r"Init torch distributed begin",
        "this rank waits for rank 0, which does not answer at the address of the rendezvous",
        f"Read the log of rank 0: `sparkops logs SERVICE --rank 0`. {OPEN}",
        source="sglang/srt/model_executor/model_runner.py",
        beside=r"\bnnodes=(?!1\b)\d{1,4}, node_rank=[1-9]",
        until=r"Init torch distributed ends",
        of_others=True,
        quiet=True,
    ),
    Cause(
        r"^AttributeError: Can't get attribute '(\w{1,128})' on <module '((?:vllm|sglang)[\w.]{0,128})'",
        "the nodes run different releases of the engine: a message from another node names {0}, which {1} of "
        "this node's release does not have",
        SAME_IMAGE,
        source="CPython: Lib/pickle.py",
    ),
    Cause(
        r"world_size=(?!1 )(\d{1,9}) rank=0 local_rank=\d{1,9} distributed_init_method=tcp://(\S{1,128})",
        "rank 0 waits at {1} for the other of {0} ranks: one did not start, has the same node-rank, or cannot reach it",
        f"Leave node-rank, nnodes and master-addr out of serve.args. {OTHER} {OPEN}",
        source="vllm/distributed/parallel_state.py",
        until=r"\brank \d{1,6} in world size|Starting to load model|Loading model from scratch"
        r"|Loading weights took|vLLM is using nccl",
        of_others=True,
        quiet=True,
    ),
    Cause(
        r"world_size=(?!1 )\d{1,9} rank=[1-9]\d{0,8} local_rank=\d{1,9} distributed_init_method=tcp://(\S{1,128})",
        "this rank waits for rank 0 at {}, which does not answer there",
        f"Read the log of rank 0: `sparkops logs SERVICE --rank 0`. {OPEN}",
        source="vllm/distributed/parallel_state.py",
        until=r"\brank \d{1,6} in world size|Starting to load model|Loading model from scratch"
        r"|Loading weights took|vLLM is using nccl",
        of_others=True,
        quiet=True,
    ),
    Cause(
        r"TCP client failed to connect/validate to host (\S{1,128}):(\d{1,5}) - retrying|"
        r"No socket on \(([^,\s]{1,128}), (\d{1,5})\) is listening yet",
        "this rank waits for rank 0 at {0}{2}:{1}{3}, which does not answer there",
        f"Read the log of rank 0: `sparkops logs SERVICE --rank 0`. {OPEN}",
        source="torch/csrc/distributed/c10d/TCPStore.cpp",
        of_others=True,
        quiet=True,
    ),
)
