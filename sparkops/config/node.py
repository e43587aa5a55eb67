"""A node of the inventory: how it is reached and what it offers."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from sparkops.config.fabric import Ports
from sparkops.config.fields import AbsolutePath, EnvName, Host, LocalPath, Name, Port, Section, User, Value

Gpu = Literal["none", "runtime", "cdi", "devices"]
LOOPBACK = "127.0.0.1"


class NodeSettings(Section):
    """Settings of a node, or of all nodes in `defaults`."""

    user: User | None = None
    """SSH user, in the group `docker`; the local user if absent."""
    port: Port | None = None
    """SSH port; 22 if absent."""
    ssh_key: LocalPath | None = None
    """Private key file, relative to the inventory; the only key that is tried. If absent: SSH agent, default files."""
    jump: Name | None = None
    """Another node of this inventory, used as a jump host."""
    model_dir: AbsolutePath | None = None
    """Directory of the models on the node; /srv/models if absent."""
    gpu: Gpu | None = None
    """Access of containers to the GPU: `runtime` (--gpus=all, as on DGX OS), `cdi`, `devices` or `none`."""
    gpu_devices: list[AbsolutePath] | None = None
    """Required with `gpu: devices`: device nodes for the container, such as /dev/nvidia0."""
    gpu_mounts: list[AbsolutePath] | None = None
    """With `gpu: devices`: driver files or directories mounted read-only at the same path."""
    fabric: Ports | None = None
    """Network ports for ranks of a replica: `auto` (the default) detects them on the node, a list names them."""
    env: dict[EnvName, Value] | None = None
    """Environment of every engine here; overrides the recipe and values for ranks, such as NCCL_IB_GID_INDEX: "-1"."""


class NodeConfig(NodeSettings):
    """One node."""

    address: Host = "127.0.0.1"
    """Host name or IP address; needed unless `transport: local`."""
    transport: Literal["ssh", "local"] = "ssh"
    """`ssh`, or `local` for the Docker of this machine, without SSH."""

    @model_validator(mode="after")
    def _addressed(self) -> NodeConfig:
        if self.transport == "ssh" and "address" not in self.model_fields_set:
            raise ValueError("an `address`, or `transport: local`")
        return self
