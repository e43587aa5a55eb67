"""The inventory: the nodes, how to reach them and what they offer."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field

from sparkops.config import source
from sparkops.config.addresses import gateway_url
from sparkops.config.fabric import FabricRules
from sparkops.config.fields import (
    Host,
    ImageRef,
    LocalPath,
    Location,
    Name,
    PinnedImage,
    Section,
    Url,
    WebOrigin,
    matching,
)
from sparkops.config.node import LOOPBACK, NodeConfig, NodeSettings
from sparkops.config.source import Source
from sparkops.errors import ConfigError, UsageError
from sparkops.names import did_you_mean

IpAddress = IPv4Address | IPv6Address
PRIVATE = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "fc00::/7", "::1/128"))
)
"""Networks within which http is allowed: RFC 1918, RFC 4193, and the node itself."""
DEVICE_KEYS = ("gpu_devices", "gpu_mounts")
"""Keys of a node that need `gpu: devices`."""

Day = Annotated[str, matching(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", "a day, such as 2026-12-24")]


class Build(Section):
    """Sources of packages and parent images, for networks without access to the default ones."""

    package_index: Url | None = None
    """Python package index that replaces the default one. Passed to the build as a secret in memory, never on
    disk. An http:// index is trusted without encryption."""
    torch_index: Url | None = None
    """Index that replaces PyTorch's; passed to the build like `package_index`."""
    wheels: LocalPath | None = None
    """Directory of wheels, relative to the inventory. Every build receives all of it, so keep it small."""
    ca_certificates: list[LocalPath] = []
    """PEM files ending in .crt, relative to the inventory, added to the trusted certificates of the image."""
    parent_images: dict[ImageRef, ImageRef] = {}
    """Replacements for the Debian image of gateway, guard and hub, by its name, such as
    debian:trixie-slim: mirror.lan/debian:trixie-slim. The default is pinned by digest; a replacement is not."""
    agent_images: dict[Literal["guard", "gateway"], PinnedImage] = {}
    """Finished images of `guard` and `gateway` by digest, which nodes pull in place of a build; one of another version
    of sparkops is not used. To make them, tag and push `sparkops/guard` and `sparkops/gateway` of a node."""
    agent_packages: Day | None = None
    """Day that is part of the inputs of gateway, guard and hub: a later one makes nodes install the Debian packages in
    them anew, with security updates (`sparkops doctor --updates` lists those). Default: a day of this version."""

    def parent(self, pinned: str) -> str:
        """Return the image to build on in place of `pinned`, NAME@sha256:DIGEST."""
        return self.parent_images.get(pinned.partition("@")[0], pinned)

    def finished(self, agent: str) -> str:
        """Return the finished image of an agent by its digest; empty where nodes build it."""
        return next((image for name, image in self.agent_images.items() if name == agent), "")


class Gateway(Section):
    """HAProxy in front of the services: clients call it, and a deploy switches it to the new release."""

    node: Name
    """Node of the gateway."""
    address: Host | None = None
    """Host name or IP address for clients; the address of the node if absent."""
    api_keys: list[LocalPath] = []
    """Files with one API key each, relative to the inventory, mode 0600. If set, requests need a key."""
    tls_certificate: LocalPath | None = None
    """PEM file with certificate chain and private key, relative to the inventory. If set, services use https."""
    port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """One port for all services, selected by `model` in a JSON body up to 32 MiB or by path /SERVICE/v1/... A service
    with the same `serve.port` has no other port."""
    memory_mib: Annotated[int, Field(ge=1536, le=16384)] = 1536
    """Memory limit of the container in MiB; more allows larger bodies or more connections: docs/security.md."""
    metrics_port: Annotated[int, Field(ge=1024, le=65535)] = 8405
    """Port of the Prometheus metrics, on 127.0.0.1 of the gateway's node."""
    max_body_mib: Annotated[int, Field(ge=1, le=1024)] = 32
    """Maximum request body in MiB; larger ones get 413. Without a Content-Length the limit is 96 KiB."""
    client_connections: Annotated[int, Field(ge=1, le=1000)] = 256
    """Maximum connections of one client address to one port; more are closed. Raise it for a proxy. Connections whose
    request waits for a release do not count."""
    client_requests: Annotated[int, Field(ge=10, le=1000000)] = 10000
    """Maximum requests of one client address to one port in 10 s; more get 429."""
    browser_origins: list[WebOrigin] = []
    """Sites whose pages may call services from a browser, as the browser sends them in Origin, such as
    https://chat.lan:3000. Requests of other pages get 403."""

    def url(self, port: int) -> str:
        """Return the base URL for OpenAI clients: of all services if there is one, else of the service on `port`."""
        encrypted = bool(self.tls_certificate)
        return gateway_url(self.address or "", self.port or port, encrypted=encrypted)  # load has filled it in


class Monitoring(Section):
    """Figures of the fleet for Prometheus, on ports of their own: docs/monitoring.md. A deploy with
    --apply-gateway applies changes."""

    key: LocalPath
    """File with the key that Prometheus sends, relative to the inventory, mode 0600: 16 to 512 letters, digits and
    . _ ~ + / = -. It gives access to figures only; nothing is served without it."""
    port: Annotated[int, Field(ge=1024, le=65535)] = 10845
    """Port of the guards, on every address of their nodes. The gateway serves its own figures on
    `gateway.metrics_port`, which listens on every address then."""


class Webhook(Section):
    """Receivers of events that an operator must know, such as a revert or a lost node: docs/monitoring.md. A deploy
    applies changes."""

    urls: Annotated[list[Url], Field(min_length=1, max_length=4)]
    """URLs that guards send JSON to, by POST. https is verified; http only to a private IP address, such as
    http://192.168.1.5:8080/sparkops, unless `allow_http` is true. Redirects are not followed. A secret in the path or
    the query tells the receiver who has sent it."""
    allow_http: bool = False
    """Allow http to names and public addresses: others may read and change what is sent, and read the URL."""


class Inventory(Section):
    """The nodes of a fleet, its gateway, monitoring, network and build settings."""

    nodes: Annotated[dict[Name, NodeConfig], Field(min_length=1)]
    """Nodes by name, as used by `--node` and `status`. Stop the services of a node before you rename it."""
    defaults: NodeSettings = NodeSettings()
    """Defaults for all nodes."""
    build: Build = Build()
    gateway: Gateway | None = None
    """Needed to deploy: clients call the gateway, and a swap switches it from one release to the next."""
    monitoring: Monitoring | None = None
    """Figures for Prometheus; without it, no node serves any to other machines."""
    webhook: Webhook | None = None
    """Receivers of events; without it, no guard sends any."""
    fabric: FabricRules = FabricRules()
    known_hosts: LocalPath = "known_hosts"
    """File of pinned SSH host keys, relative to the inventory; written by `sparkops node trust`."""


class Fleet(Section):
    """An inventory with its defaults applied and its paths resolved."""

    file: Path
    """Where the inventory was read."""
    nodes: dict[str, NodeConfig]
    """The nodes by name."""
    build: Build
    gateway: Gateway | None = None
    """The gateway with its address, if there is one."""
    monitoring: Monitoring | None = None
    webhook: Webhook | None = None
    known_hosts: Path
    """File of pinned host keys."""
    fabric: FabricRules = FabricRules()
    """Network requirements for replicas on several nodes."""

    def node(self, name: str) -> NodeConfig:
        if name not in self.nodes:
            problem = f"{self.file}: unknown node '{name}', expected one of: {', '.join(self.nodes)}"
            raise UsageError(problem, next_step=did_you_mean(name, self.nodes).strip())
        return self.nodes[name]

    def require_gateway(self) -> Gateway:
        """Return the gateway. Raises UsageError for an inventory without one."""
        if self.gateway is None:
            names = ", ".join(self.nodes)
            step = f"sparkops init --gateway NODE, with one of: {names}"
            raise UsageError(f"{self.file}: gateway: not found, expected the node of the gateway", next_step=step)
        return self.gateway

    def moved(self, node: str) -> Fleet:
        """Return the fleet with its gateway on another node.

        Its address for clients is that node's, unless the inventory names one of its own. Raises UsageError.
        """
        gateway, address = self.require_gateway(), self.node(node).address
        if gateway.address != self.node(gateway.node).address:
            address = gateway.address or address
        return self.model_copy(update={"gateway": gateway.model_copy(update={"node": node, "address": address})})

    def engine_address(self, name: str) -> str:
        """Return the address at which the gateway reaches engines of a node: loopback on the gateway's own node.

        Raises UsageError for an unknown node.
        """
        node = self.node(name)
        return LOOPBACK if self.gateway and self.gateway.node == name else node.address

    def resolve(self, path: str) -> Path:
        return (self.file.parent / Path(path).expanduser()).absolute()

    def fail(self, where: Location, problem: str) -> ConfigError:
        """Return the error for the value at `where`."""
        return source.read(self.file).fail(where, problem)


def load(file: Path) -> Fleet:
    """Read and check an inventory. Raises ConfigError."""
    read = source.read(file)
    inventory = source.validate(read, Inventory, "All keys: sparkops recipe schema inventory --markdown")
    nodes = {name: _with_defaults(name, node, inventory.defaults) for name, node in inventory.nodes.items()}
    for name, node in nodes.items():
        _check_jumps(read, name, nodes)
        _check_devices(read, name, node)
        _check_model_dir(read, name, node)
    _check_addresses(read, nodes)
    _check_monitoring(read, inventory)
    _check_webhook(read, inventory.webhook)
    return Fleet(
        file=file,
        nodes=nodes,
        build=inventory.build,
        gateway=_gateway(read, inventory.gateway, nodes),
        monitoring=inventory.monitoring,
        webhook=inventory.webhook,
        known_hosts=(file.parent / Path(inventory.known_hosts).expanduser()).absolute(),
        fabric=inventory.fabric,
    )


def _gateway(read: Source, gateway: Gateway | None, nodes: Mapping[str, NodeConfig]) -> Gateway | None:
    if gateway is None:
        return None
    if gateway.node not in nodes:
        raise read.fail(("gateway", "node"), f"unknown node '{gateway.node}', expected one of: {', '.join(nodes)}")
    return gateway.model_copy(update={"address": gateway.address or nodes[gateway.node].address})


def _check_monitoring(read: Source, inventory: Inventory) -> None:
    """Refuse a port of the guards that the gateway takes on its node."""
    if inventory.monitoring and inventory.gateway:
        for key in ("port", "metrics_port"):
            if inventory.monitoring.port == getattr(inventory.gateway, key):
                problem = f"{inventory.monitoring.port} is gateway.{key}, expected another port"
                raise read.fail(("monitoring", "port"), problem)


def _check_webhook(read: Source, webhook: Webhook | None) -> None:
    """Refuse a URL that is none for events. A problem never has the URL: it may be a secret."""
    for number, text in enumerate(webhook.urls if webhook else ()):
        parts = urlsplit(text)
        problem = ""
        if parts.scheme not in ("https", "http") or not text.isascii():
            problem = "expected ASCII text that begins with https:// or http://"
        elif parts.username is not None or parts.fragment:
            problem = "has a user or a fragment, expected none: a secret belongs in the path or the query"
        elif (address := _address(parts.hostname or "")) and not _receives(address):
            problem = f"{address} is a link-local, multicast or reserved address, expected that of a receiver"
        elif parts.scheme == "http" and not (webhook and webhook.allow_http) and not (address and _is_private(address)):
            problem = "http to a name or a public address, expected https, a private IP address, or `allow_http: true`"
        if problem:
            raise read.fail(("webhook", "urls", number), problem)


def _address(host: str) -> IpAddress | None:
    """Return the address that a host of a URL is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _receives(address: IpAddress) -> bool:
    """Return whether a receiver may have this address. Clouds serve credentials of machines on link-local ones."""
    plain = _plain(address)
    return not (plain.is_link_local or plain.is_multicast or plain.is_unspecified)


def _is_private(address: IpAddress) -> bool:
    return any(_plain(address) in network for network in PRIVATE)


def _plain(address: IpAddress) -> IpAddress:
    """Return the address of IPv4 that one of IPv6 stands for; else the address."""
    return getattr(address, "ipv4_mapped", None) or address


def _with_defaults(name: str, node: NodeConfig, defaults: NodeSettings) -> NodeConfig:
    """Return a node with the defaults for its missing keys. Another `gpu` and a jump to itself cancel defaults."""
    stated = node.model_dump(exclude_none=True, exclude_unset=True)
    inherited = defaults.model_dump(exclude_none=True)
    if stated.get("gpu", "devices") != "devices":
        inherited = {key: value for key, value in inherited.items() if key not in DEVICE_KEYS}
    if inherited.get("jump") == name:
        del inherited["jump"]
    return NodeConfig(**{**inherited, **stated})


def _check_model_dir(read: Source, name: str, node: NodeConfig) -> None:
    """Refuse the root of the file system: engines and downloads get the whole directory."""
    if node.model_dir is not None and not node.model_dir.strip("/."):
        own: Location = ("nodes", name, "model_dir")
        where = own if own in read.lines else ("defaults", "model_dir")
        problem = "expected a directory for models only, such as /srv/models"
        raise read.fail(where, f"{problem}, got {node.model_dir!r}: containers see all of it")


def _check_addresses(read: Source, nodes: Mapping[str, NodeConfig]) -> None:
    """Refuse two nodes that are one machine: its memory and ports would count twice."""
    names: dict[tuple[str, ...], str] = {}
    for name, node in nodes.items():
        local = node.transport == "local"
        machine = (node.transport,) if local else (node.address.lower(), str(node.port), node.jump or "")
        if (other := names.setdefault(machine, name)) != name:
            what = "`transport: local`" if local else f"address {node.address}"
            key = "transport" if local else "address"
            raise read.fail(("nodes", name, key), f"{what} is that of node {other}, expected another machine")


def _check_devices(read: Source, name: str, node: NodeConfig) -> None:
    """Refuse `gpu: devices` without devices, and devices that no container would get."""

    def fail(key: str, problem: str) -> ConfigError:
        own = ("nodes", name, key) in read.lines or ("defaults", key) not in read.lines
        return read.fail(("nodes", name, key) if own else ("defaults", key), problem)

    if node.gpu == "devices" and not node.gpu_devices:
        why = "without them containers get no GPU"
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
            raise read.fail(where, f"circular: {' -> '.join([*path, jump])}")
        path.append(jump)
