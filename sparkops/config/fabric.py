"""The network between the nodes of one replica: settings of an inventory."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from sparkops.config.fields import Section, matching

OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

# Neither may hold ^ = , or a colon: NCCL reads these in its lists of names.
Interface = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", "a network interface, such as enp1s0f0np0")]
RdmaDevice = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "an RDMA device, such as rocep1s0f0")]
Address = Annotated[str, matching(rf"({OCTET}\.){{3}}{OCTET}", "an IPv4 address")]


class Port(Section):
    """One network port of a node, used by ranks. Absent values are detected on the node."""

    device: RdmaDevice | None = None
    """RDMA device, such as rocep1s0f0; if absent, the port uses plain TCP."""
    interface: Interface | None = None
    """Network interface, such as enp1s0f0np0; the device's own if absent."""
    address: Address | None = None
    """IPv4 address of the interface, if it has several."""
    gid_index: Annotated[int, Field(ge=0, le=255)] | None = None
    """Row of the device's GID table for RoCE v2 with that address."""

    @model_validator(mode="after")
    def _something(self) -> Port:
        if self.device is None and self.interface is None:
            raise ValueError("a `device`, or an `interface` for plain TCP")
        return self


def _kind(value: Any) -> str | None:
    return "ports" if isinstance(value, list) else "auto" if value == "auto" else None


Ports = Annotated[
    Annotated[Literal["auto"], Tag("auto")] | Annotated[list[Port], Field(min_length=1), Tag("ports")],
    Discriminator(_kind, custom_error_type="ports", custom_error_message="expected `auto` or a list of ports"),
]


class FabricRules(Section):
    """Network requirements for replicas on several nodes."""

    allow_tcp: bool = False
    """Use plain TCP between nodes without RoCE; slower, because every token crosses this network."""
    mtu: Annotated[int, Field(ge=1280, le=9216)] = 9000
    """Minimum MTU in bytes of both ends of a RoCE link; interfaces default to 1500."""
