"""The environment of a rank: settings of NCCL, Gloo, Ray and UCX for the network of its node. Pure.

Every variable is always set, because an image may contain those of another host. Sources: spark-vllm-docker, sparkrun
(launch-cluster.sh, comm_env.py), NCCL's user guide for the grammar of its lists and for the choice of a GID.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Interface

from sparkops.engines import ENGINES
from sparkops.node.network.finding import Finding, Kind, listed
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.fleet.network.links import End

ENVIRONMENT = Kind("ENVIRONMENT", "NCCL and Gloo select the interface by name, and fail without it.")
EXACT_INTERFACE = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "MN_IF_NAME", "OMPI_MCA_btl_tcp_if_include")
OF_ENGINES = tuple(dict.fromkeys(name for engine in ENGINES.values() for name in engine.own_address))
OWN_ADDRESS = (*OF_ENGINES, "RAY_NODE_IP_ADDRESS", "RAY_OVERRIDE_NODE_IP_ADDRESS")
PER_NODE = (*OWN_ADDRESS, *EXACT_INTERFACE, "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_NET_DEVICES")
"""The variables that differ between nodes. Ray must not carry them from the driver to its workers."""
ANY_GID = "-1"  # NCCL selects the row itself
EVERYWHERE = {
    "NCCL_IGNORE_CPU_AFFINITY": "1",
    # INIT and NET print once which network is used: NET/IB or NET/Socket.
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET",
    # CPU and GPU share the memory: Ray would treat full memory as a leak and kill the worker.
    "RAY_memory_monitor_refresh_ms": "0",
}


def roce(ends: Sequence[End]) -> dict[str, str]:
    """Return the environment of a rank with the ports `ends`. The first also serves TCP, such as the first handshake.

    With NCCL_NET=IB, NCCL fails where it would silently use TCP, when no device has a name of NCCL_IB_HCA.
    """
    devices = [f"{end.device.name}:{end.device.port}" for end in ends if end.device]
    rows = {end.gid_index for end in ends}  # NCCL takes one row for all devices, or finds the row of each
    search = {"NCCL_IB_GID_INDEX": ANY_GID, "NCCL_IB_ROCE_VERSION_NUM": "2", "NCCL_IB_ADDR_FAMILY": "AF_INET"}
    return {
        **_sockets(ends[0]),
        "NCCL_NET": "IB",
        "NCCL_IB_DISABLE": "0",
        "NCCL_IB_HCA": f"={','.join(devices)}",  # without = it is a list of prefixes
        **({"NCCL_IB_GID_INDEX": str(rows.pop())} if len(rows) == 1 else search),
        "UCX_NET_DEVICES": ",".join(devices),
        **EVERYWHERE,
    }


def ring(ends: Sequence[End], meeting: End, *, size: int, halves: bool) -> dict[str, str]:
    """Return the environment of a rank whose ports `ends` lead to different nodes: `size` nodes cabled in a ring.

    The ranks meet, and all TCP runs, on the network of `meeting`. `halves`: each cable has a subnet for each half of
    its ports. NCCL then selects the port by the subnet of the other end, with both halves apart; with one subnet a
    cable only a merged device has a port on it. A tree would need links between nodes that are not neighbours.

    Sources: docs/NETWORKING.md and cluster_topology.py of eugr/spark-vllm-docker at 10fa84e and a10c3f7, run there on
    three and four Sparks; one subnet a cable: tonyd2wild/GLM-5.3-Int4-Int8Mix-TP4-4x-DGX-Spark#2.
    """
    by_port = sorted(ends, key=lambda end: (end.device.slot, end.device.pci) if end.device else ("", ""))
    return {
        **roce(by_port),
        **_sockets(meeting),
        "UCX_NET_DEVICES": meeting.interface.name,
        "NCCL_NET_PLUGIN": "none",
        "NCCL_IB_SUBNET_AWARE_ROUTING": "1",
        "NCCL_IB_MERGE_NICS": "0" if halves else "1",
        **({"NCCL_ALGO": "Ring"} if size > 3 else {}),  # any three of a ring are neighbours
    }


def tcp(end: End) -> dict[str, str]:
    """Return the environment of a rank without RoCE."""
    network = {"NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "UCX_NET_DEVICES": end.interface.name}
    return {**_sockets(end), **network, **EVERYWHERE}


def _sockets(end: End) -> dict[str, str]:
    address, interface = str(end.address.ip), end.interface.name
    return {
        **dict.fromkeys(OWN_ADDRESS, address),
        "NCCL_SOCKET_IFNAME": f"={interface}",
        **dict.fromkeys(EXACT_INTERFACE, interface),
    }


def check(envs: Mapping[str, Mapping[str, str]], facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """Yield names in the environments, by node, that a node lacks, or has on another network than the other nodes.

    Without this check a wrong name ends a start only after the ranks have not found each other for 10 minutes.
    """
    for name in (*OWN_ADDRESS, "NCCL_SOCKET_IFNAME", *EXACT_INTERFACE):
        yield from _one_network(name, {node: env[name] for node, env in envs.items()}, facts)
    for node, env in envs.items():
        if env["NCCL_IB_DISABLE"] == "0":
            yield from _devices(node, env, facts[node])


def _one_network(name: str, values: Mapping[str, str], facts: Mapping[str, NodeFabric]) -> Iterator[Finding]:
    """Yield values of a variable that a node lacks, or that are in no network of all nodes."""
    chosen = {node: _addresses(name, value, facts[node]) for node, value in values.items()}
    missing = [node for node, addresses in chosen.items() if not addresses]
    for node in missing:
        up = ", ".join(f"{interface.name} {address.ip}" for interface, address in facts[node].addresses if interface.up)
        yield _wrong(node, f"{name}={values[node]} names no interface that is up with an IPv4 address; these are: {up}")
    networks = [{address.network for address in addresses} for addresses in chosen.values()]
    if not missing and not set.intersection(*networks):
        chosen_values = ", ".join(f"{node} {values[node]} ({listed(chosen[node])})" for node in values)
        yield _wrong(list(values)[-1], f"{name} names no common network of the nodes: {chosen_values}")


def _addresses(name: str, value: str, facts: NodeFabric) -> list[IPv4Interface]:
    networks = [(interface, address) for interface, address in facts.addresses if interface.up]
    if name in OWN_ADDRESS:
        return [address for _, address in networks if str(address.ip) == value]
    prefixes = name == "NCCL_SOCKET_IFNAME"
    return [address for interface, address in networks if _selected(value if prefixes else f"={value}", interface.name)]


def _devices(node: str, env: Mapping[str, str], facts: NodeFabric) -> Iterator[Finding]:
    up = [device for device in facts.devices if device.active]
    chosen = [device for device in up if _selected(env["NCCL_IB_HCA"], device.name)]
    if not chosen:
        active = listed(device.name for device in up)
        yield _wrong(node, f"NCCL_IB_HCA={env['NCCL_IB_HCA']} names no device that is up; these are: {active}")
    gid_index = env["NCCL_IB_GID_INDEX"]
    for device in chosen:
        rows = [str(gid.index) for gid in device.gids]
        if gid_index not in (*rows, ANY_GID):
            problem = f"NCCL_IB_GID_INDEX={gid_index} is not a row for RoCE v2 over IPv4 of {device.name}"
            yield _wrong(node, f"{problem}; its rows are: {listed(rows)}")


def _selected(value: str, name: str) -> bool:
    """Match as NCCL reads a list: of prefixes; after = of whole names; after ^ of names to avoid."""
    pattern = value.removeprefix("^")
    names = [item.partition(":")[0] for item in pattern.removeprefix("=").split(",")]
    selected = any(name == item if pattern.startswith("=") else name.startswith(item) for item in names)
    return selected != value.startswith("^")


def _wrong(node: str, problem: str) -> Finding:
    step = f"Correct `env` of {node} in the inventory; absent variables are derived from the node."
    return ENVIRONMENT.at(node, problem, step)
