"""The inventory: the nodes, how to reach them and what they offer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sparkops.config import source
from sparkops.config.addresses import gateway_url
from sparkops.config.fabric import FabricRules, Ports
from sparkops.config.fields import (
    AbsolutePath,
    EnvName,
    Host,
    ImageRef,
    LocalPath,
    Name,
    Port,
    Section,
    Url,
    User,
    Value,
)
from sparkops.config.source import Source
from sparkops.errors import ConfigError, UsageError

Gpu = Literal["none", "runtime", "cdi", "devices"]
LOOPBACK = "127.0.0.1"
DEVICE_KEYS = ("gpu_devices", "gpu_mounts")
"""Keys of a node that need `gpu: devices`."""


class NodeSettings(Section):
    """What a node may say, and what `defaults` may say for all nodes."""

    user: User | None = None
    """SSH user; the name of the local user if absent. It must be allowed to use Docker."""
    port: Port | None = None
    """SSH port; 22 if absent."""
    ssh_key: LocalPath | None = None
    """Private key file, relative to the inventory; no other key is offered. If absent: agent, usual files."""
    jump: Name | None = None
    """Another node of this inventory through which this one is reached."""
    model_dir: AbsolutePath | None = None
    """Directory on the node that holds the models; /srv/models if absent."""
    gpu: Gpu | None = None
    """How the accelerator reaches a container: `runtime` (--gpus=all, as on DGX OS), cdi, devices, none."""
    gpu_devices: list[AbsolutePath] | None = None
    """With `gpu: devices`, which needs them: device nodes given to the container, such as /dev/nvidia0."""
    gpu_mounts: list[AbsolutePath] | None = None
    """With `gpu: devices`: driver files or directories mounted read-only at the same path."""
    fabric: Ports | None = None
    """Ports that ranks of one replica use: `auto` (the same if absent) reads them on the node, a list names them."""
    env: dict[EnvName, Value] | None = None
    """Environment of every engine here, in place of the recipe's and of what ranks get: NCCL_IB_GID_INDEX: "-1"."""


class NodeConfig(NodeSettings):
    """One node."""

    address: Host = "127.0.0.1"
    """Host name or IP address; needed unless `transport: local`."""
    transport: Literal["ssh", "local"] = "ssh"
    """`local` is this machine's own Docker, without SSH."""

    @model_validator(mode="after")
    def _addressed(self) -> NodeConfig:
        if self.transport == "ssh" and "address" not in self.model_fields_set:
            raise ValueError("an `address`, or `transport: local`")
        return self


class Build(Section):
    """Where the packages of an image come from when the usual places cannot be reached."""

    package_index: Url | None = None
    """Replaces the default Python package index. Reaches the build as a secret in the node's memory: no disk keeps it.
    With http:// it is trusted without encryption."""
    torch_index: Url | None = None
    """Replaces the PyTorch index. Reaches the build as `package_index` does."""
    wheels: LocalPath | None = None
    """Directory of wheels, relative to the inventory. All of it is sent to each build, so keep it small."""
    ca_certificates: list[LocalPath] = []
    """PEM files ending in .crt, relative to the inventory, added to what the image trusts."""
    parent_images: dict[ImageRef, ImageRef] = {}
    """Images in place of the Debian that gateway, guard and hub are built on, which is pinned by digest: by its name,
    as in debian:trixie-slim: mirror.lan/debian:trixie-slim. What nodes have under that name is used as it is."""

    def parent(self, pinned: str) -> str:
        """Return the image to build on in place of `pinned`, NAME@sha256:DIGEST."""
        return self.parent_images.get(pinned.partition("@")[0], pinned)


class Gateway(Section):
    """HAProxy before the services: clients call it, and a deploy switches it from one release to the next."""

    node: Name
    """Node that it runs on."""
    address: Host | None = None
    """Host name or IP address that clients use; the node's own address if absent."""
    api_keys: list[LocalPath] = []
    """Files that hold one key each, relative to the inventory, with mode 0600. With any, requests need a key."""
    tls_certificate: LocalPath | None = None
    """PEM file with certificate chain and private key, relative to the inventory. With it, services speak https."""
    port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """Port of one address for all services: by `model` of a JSON body up to 32 MiB, or by the path /SERVICE/v1/...
    A service whose `serve.port` is the same has no other port."""
    memory_mib: Annotated[int, Field(ge=1536, le=16384)] = 1536
    """Memory limit of its container in MiB. More takes larger bodies or more connections: docs/security.md."""
    metrics_port: Annotated[int, Field(ge=1024, le=65535)] = 8405
    """Port of the metrics for Prometheus, on 127.0.0.1 of the gateway's node."""
    max_body_mib: Annotated[int, Field(ge=1, le=1024)] = 32
    """Largest request body with a Content-Length, in MiB; larger ones get 413. Without one the limit is 96 KiB."""
    client_connections: Annotated[int, Field(ge=1, le=1000)] = 256
    """Connections of one client address to one service; further ones are closed. Raise it for a proxy (1000 in all)."""
    client_requests: Annotated[int, Field(ge=10, le=1000000)] = 10000
    """Requests that one client address may send to one service within 10 s; further ones get 429."""

    def url(self, port: int) -> str:
        """Return the base URL for OpenAI clients of the service on `port`."""
        return gateway_url(self.address or "", port, encrypted=bool(self.tls_certificate))  # load has filled it in


class Inventory(Section):
    """The fleet: its nodes, and how to reach them."""

    nodes: Annotated[dict[Name, NodeConfig], Field(min_length=1)]
    """The nodes by name. A name is what `--node` takes and status shows. Stop its services before you rename a node."""
    defaults: NodeSettings = NodeSettings()
    """Values for every node that does not set its own."""
    build: Build = Build()
    gateway: Gateway | None = None
    """Without it clients call the nodes themselves, and a release is replaced in place only."""
    fabric: FabricRules = FabricRules()
    known_hosts: LocalPath = "known_hosts"
    """File of pinned host keys by node name, relative to the inventory; `sparkops trust` writes it."""


class Fleet(Section):
    """An inventory with its defaults applied and its paths resolved."""

    file: Path
    """Where the inventory was read."""
    nodes: dict[str, NodeConfig]
    """The nodes by name."""
    build: Build
    gateway: Gateway | None = None
    """The gateway with its address, if there is one."""
    known_hosts: Path
    """File of pinned host keys."""
    fabric: FabricRules = FabricRules()
    """What the network between nodes must be."""

    def node(self, name: str) -> NodeConfig:
        """Return the node of that name. Raises UsageError for an unknown name."""
        if name not in self.nodes:
            step = f"Name one of: {', '.join(self.nodes)}"
            raise UsageError(f"{self.file}: unknown node '{name}'", next_step=step)
        return self.nodes[name]

    def engine_address(self, name: str) -> str:
        """Return the address at which the gateway reaches engines of a node: loopback on the gateway's own node.

        Raises UsageError for an unknown node.
        """
        node = self.node(name)
        return LOOPBACK if self.gateway and self.gateway.node == name else node.address

    def resolve(self, path: str) -> Path:
        """Return a path of the inventory, relative to the inventory's directory."""
        return (self.file.parent / Path(path).expanduser()).absolute()


def load(file: Path) -> Fleet:
    """Read and check an inventory. Raises ConfigError."""
    read = source.read(file)
    inventory = source.validate(read, Inventory)
    nodes = {name: _with_defaults(name, node, inventory.defaults) for name, node in inventory.nodes.items()}
    for name, node in nodes.items():
        _check_jumps(read, name, nodes)
        _check_devices(read, name, node)
    return Fleet(
        file=file,
        nodes=nodes,
        build=inventory.build,
        gateway=_gateway(read, inventory.gateway, nodes),
        known_hosts=(file.parent / Path(inventory.known_hosts).expanduser()).absolute(),
        fabric=inventory.fabric,
    )


def _gateway(read: Source, gateway: Gateway | None, nodes: Mapping[str, NodeConfig]) -> Gateway | None:
    if gateway is None:
        return None
    if gateway.node not in nodes:
        raise read.fail(("gateway", "node"), f"unknown node '{gateway.node}', expected one of: {', '.join(nodes)}")
    return gateway.model_copy(update={"address": gateway.address or nodes[gateway.node].address})


def _with_defaults(name: str, node: NodeConfig, defaults: NodeSettings) -> NodeConfig:
    """Return a node with the defaults for its missing keys. Another `gpu` and a jump to itself cancel defaults."""
    stated = node.model_dump(exclude_none=True, exclude_unset=True)
    inherited = defaults.model_dump(exclude_none=True)
    if stated.get("gpu", "devices") != "devices":
        inherited = {key: value for key, value in inherited.items() if key not in DEVICE_KEYS}
    if inherited.get("jump") == name:
        del inherited["jump"]
    return NodeConfig(**{**inherited, **stated})


def _check_devices(read: Source, name: str, node: NodeConfig) -> None:
    """Refuse `gpu: devices` without devices, and devices that no container would get."""

    def fail(key: str, problem: str) -> ConfigError:
        own = ("nodes", name, key) in read.lines or ("defaults", key) not in read.lines
        return read.fail(("nodes", name, key) if own else ("defaults", key), problem)

    if node.gpu == "devices" and not node.gpu_devices:
        why = "without them no accelerator reaches a container"
        raise fail("gpu", f"expected gpu_devices for node {name}, such as [/dev/nvidia0]: {why}")
    for key in DEVICE_KEYS:
        if node.gpu != "devices" and getattr(node, key):
            got = f"`gpu: {node.gpu}`" if node.gpu else "no `gpu`"
            raise fail(key, f"expected `gpu: devices` for node {name}, got {got}")


def _check_jumps(read: Source, name: str, nodes: Mapping[str, NodeConfig]) -> None:
    path = [name]
    while jump := nodes[path[-1]].jump:
        where = ("nodes", path[-1], "jump")
        if jump not in nodes:
            raise read.fail(where, f"unknown node '{jump}', expected one of: {', '.join(nodes)}")
        if jump in path:
            raise read.fail(where, f"no way leads there: {' -> '.join([*path, jump])}")
        path.append(jump)
