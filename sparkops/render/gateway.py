"""The gateway's image and configuration. All of it is static text: a swap changes one value of one map."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sparkops.config.gateway import Secrets
from sparkops.config.inventory import Gateway
from sparkops.release import Slot
from sparkops.render.context import Content, Context, digest
from sparkops.render.sandbox import fill

NAME = "gateway"
"""What the image and its builds are called, where a recipe's name stands otherwise."""
DISK_GIB = 1.0
"""Free space in GiB that a node needs before the image is built."""
IMAGE = "debian:bookworm-slim@sha256:7c7b2c966bc9ee8cedfeef67e0e279108992c77681fa595db4a9d65c06ccc587"
"""The image for all architectures."""
MIB = 2**20
Files = Mapping[str, str | None]
"""The text of each file that the gateway is given, by name. None removes the file."""


@dataclass(frozen=True)
class Service:
    """A name that clients call, and its port on the gateway (`serve.port` of its recipes)."""

    name: str
    port: int


def backend(service: str, slot: Slot) -> str:
    """HAProxy's name of one slot of one service."""
    return f"be_{service}_{slot}"


def files(services: Iterable[Service], gateway: Gateway, secrets: Secrets, templates: Mapping[str, str]) -> Files:
    """All that the gateway is given: its configuration, the keys as hashes, and the certificate."""
    given = {"keys": hashed(secrets.api_keys) or None, "tls.pem": secrets.certificate or None}
    return {**config(services, gateway, templates), **given}


def config(services: Iterable[Service], gateway: Gateway, templates: Mapping[str, str]) -> dict[str, str]:
    """The configuration: a file for what all services share, and one for each service, in order."""
    shared = fill("gateway/haproxy.cfg.j2", templates, metrics_port=str(gateway.metrics_port))
    ordered = sorted(services, key=lambda service: service.name)
    own = {f"services/{service.name}.cfg": _service(service, gateway, templates) for service in ordered}
    return {"gateway.cfg": shared, **own}


def _service(service: Service, gateway: Gateway, templates: Mapping[str, str]) -> str:
    return fill(
        "gateway/service.cfg.j2",
        templates,
        service=service.name,
        port=str(service.port),
        ipv6=":" in (gateway.address or ""),
        guarded=bool(gateway.api_keys),
        encrypted=gateway.tls_certificate is not None,
        connections=str(gateway.client_connections),
        requests=str(gateway.client_requests),
        body=str(gateway.max_body_mib * MIB),
        body_mib=str(gateway.max_body_mib),
    )


def hashed(api_keys: Iterable[str]) -> str:
    """The SHA-256 of each key, one a line, as HAProxy writes it: the keys themselves stay with the operator."""
    return "".join(f"{each}\n" for each in sorted(hashlib.sha256(key.encode()).hexdigest().upper() for key in api_keys))


def dockerfile(templates: Mapping[str, str], image: str = IMAGE) -> str:
    """The Dockerfile of the gateway's image."""
    return fill("gateway/Dockerfile.j2", templates, image=image)


def gateway_context(templates: Mapping[str, str], program: Mapping[str, bytes], image: str = IMAGE) -> Context:
    """Everything that the build of the gateway's image sees. `image` is the base."""
    sent: dict[str, Content] = {"Dockerfile": dockerfile(templates, image).encode(), "program/": b""}
    sent |= {f"program/{name}": content for name, content in program.items()}
    ordered = tuple(sorted(sent.items()))
    return Context(ordered, {}, digest(ordered))
