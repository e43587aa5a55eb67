"""The gateway's image and configuration. Both are static: a swap changes one value of one map."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkops import names
from sparkops.config.inventory import Gateway
from sparkops.gateway.capacity import (
    BESIDE_BODY,
    KIB,
    LARGE_MIB,
    LARGEST_MIB,
    METRICS,
    METRICS_PER_CLIENT,
    MIB,
    PROBES,
    WAITING,
    buffer_bytes,
    connections,
    frontend_connections,
)
from sparkops.operator.build.gateway.files import Secrets
from sparkops.operator.build.render.context import Content, Context, pack
from sparkops.operator.build.render.debian import upgraded
from sparkops.operator.build.render.dockerfile import dockerfile
from sparkops.operator.build.render.sandbox import fill

NAME = names.GATEWAY
DISK_GIB = 1.0
"""Free space in GiB that a node needs before the image is built."""
IMAGE = "debian:bookworm-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587"
"""The image for all architectures."""
Files = Mapping[str, str | None]
"""Text of the gateway's files by name. None removes a file."""


@dataclass(frozen=True)
class Service:
    """A name that clients call, its port on the gateway and its further names (`serve.port`, `serve.aliases`).

    `sticky`: of several replicas, a conversation stays with one (`serve.sticky`). A service with the port of the one
    address (`gateway.port`) has no port of its own.
    """

    name: str
    port: int
    aliases: tuple[str, ...] = ()
    sticky: bool = False


def files(services: Iterable[Service], gateway: Gateway, secrets: Secrets, templates: Mapping[str, str]) -> Files:
    """Return all files of the gateway: configuration, hashes of the keys, certificate."""
    optional = {"one.cfg": None, "keys": hashed(secrets.api_keys) or None, "tls.pem": secrets.certificate or None}
    monitoring = hashed([secrets.monitoring]).strip() if secrets.monitoring else ""
    return {**optional, **config(services, gateway, templates, monitoring)}


def config(
    services: Iterable[Service], gateway: Gateway, templates: Mapping[str, str], monitoring: str = ""
) -> dict[str, str]:
    """Return the configuration: a shared file, one for the one address, and one for each service, in order.

    `monitoring`: SHA-256 of the key with which other machines read the metrics, in HAProxy's notation; empty: none may.
    """
    shared = fill(
        "gateway/haproxy.cfg.j2",
        templates,
        metrics_port=str(gateway.metrics_port),
        frontend_connections=str(frontend_connections(gateway.memory_mib)),
        metrics_connections=str(METRICS),
        metrics_per_client=str(METRICS_PER_CLIENT),
        monitoring=monitoring,
        ipv6=":" in (gateway.address or ""),
        probe_connections=str(PROBES),
        connections=str(connections(gateway.memory_mib)),
        buffer=str(buffer_bytes(gateway.memory_mib)),
        large_mib=str(LARGE_MIB),
        waiting=str(WAITING),
    )
    ordered = sorted(services, key=lambda service: service.name)
    own = {
        f"services/{service.name}.cfg": _frontend(
            "service",
            gateway,
            templates,
            service.port,
            service=service.name,
            aliases=service.aliases,
            sticky=service.sticky,
        )
        for service in ordered
    }
    one = {"one.cfg": _frontend("one", gateway, templates, gateway.port)} if gateway.port else {}
    return {"gateway.cfg": shared, **one, **own}


def _frontend(kind: str, gateway: Gateway, templates: Mapping[str, str], port: int, **names: object) -> str:
    inspected = buffer_bytes(gateway.memory_mib) - BESIDE_BODY
    return fill(
        f"gateway/{kind}.cfg.j2",
        templates,
        **names,
        one=kind == "one",
        own_port=port != gateway.port,
        port=str(port),
        ipv6=":" in (gateway.address or ""),
        guarded=bool(gateway.api_keys),
        encrypted=gateway.tls_certificate is not None,
        frontend_connections=str(frontend_connections(gateway.memory_mib)),
        one_connections=str(frontend_connections(gateway.memory_mib) + WAITING),
        connections=str(gateway.client_connections),
        requests=str(gateway.client_requests),
        opened=str(2 * gateway.client_requests),
        origins=gateway.browser_origins,
        body=str(gateway.max_body_mib * MIB),
        body_mib=str(gateway.max_body_mib),
        inspected=str(inspected),
        inspected_kib=str(inspected // KIB),
        largest=str(LARGEST_MIB * MIB),
        largest_mib=str(LARGEST_MIB),
    )


def hashed(api_keys: Iterable[str]) -> str:
    """Return the SHA-256 of each key, one per line, in HAProxy's notation. The operator keeps the keys."""
    return "".join(sorted(f"{hashlib.sha256(key.encode()).hexdigest().upper()}\n" for key in api_keys))


def gateway_dockerfile(templates: Mapping[str, str], image: str = IMAGE, day: str | None = None) -> str:
    """Return the Dockerfile of the gateway's image, with Debian's packages of a day; that of sparkops if None."""
    return upgraded(dockerfile("gateway/Dockerfile.j2", templates, image=image), day)


def gateway_context(
    templates: Mapping[str, str], program: Mapping[str, bytes], image: str = IMAGE, day: str | None = None
) -> Context:
    """Return the build context of the gateway's image. `image` is the base, `day` that of its packages."""
    sent: dict[str, Content] = {"Dockerfile": gateway_dockerfile(templates, image, day).encode(), "program/": b""}
    sent |= {f"program/{name}": content for name, content in program.items()}
    return pack(sent)
