"""The inventory: which nodes there are, how to reach them and what they offer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sparkops.config import source
from sparkops.config.fields import AbsolutePath, Host, Line, Name, Port, Section, Url, User
from sparkops.errors import UsageError

Gpu = Literal["none", "runtime", "cdi", "devices"]


class NodeSettings(Section):
    """What a node may say, and what `defaults` may say for all nodes."""

    user: User | None = None
    """SSH user; the name of the local user if absent. It must be allowed to use Docker."""
    port: Port | None = None
    """SSH port; 22 if absent."""
    ssh_key: Line | None = None
    """Private key file, relative to the inventory; no other key is offered. If absent: agent, usual files."""
    jump: Name | None = None
    """Another node of this inventory through which this one is reached."""
    model_dir: AbsolutePath | None = None
    """Directory on the node that holds the models; /srv/models if absent."""
    gpu: Gpu | None = None
    """How the accelerator reaches a container: `runtime` (--gpus=all, as on DGX OS), cdi, devices, none."""
    gpu_devices: list[AbsolutePath] | None = None
    """With `gpu: devices`: device nodes given to the container, such as /dev/nvidia0."""
    gpu_mounts: list[AbsolutePath] | None = None
    """With `gpu: devices`: driver files or directories mounted read-only at the same path."""


class NodeConfig(NodeSettings):
    """One node."""

    address: Host = "127.0.0.1"
    """Host name or IP address; needed unless `transport: local`."""
    transport: Literal["ssh", "local"] = "ssh"
    """`local` is this machine's own Docker, without SSH."""
    labels: dict[str, Line] = {}
    """Free labels, shown by status."""

    @model_validator(mode="after")
    def _consistent(self) -> NodeConfig:
        if self.transport == "ssh" and "address" not in self.model_fields_set:
            raise ValueError("an `address`, or `transport: local`")
        if self.gpu != "devices" and (self.gpu_devices or self.gpu_mounts):
            raise ValueError("`gpu: devices` beside gpu_devices or gpu_mounts")
        return self


class Build(Section):
    """Where the packages of an image come from when the usual places cannot be reached."""

    package_index: Url | None = None
    """Replaces the default Python package index. Reaches the build as a mounted file, never as a layer."""
    torch_index: Url | None = None
    """Replaces the PyTorch index."""
    wheels: Line | None = None
    """Directory of wheels, relative to the inventory. All of it is sent to each build, so keep it small."""
    ca_certificates: list[Line] = []
    """PEM files ending in .crt, relative to the inventory, added to what the image trusts."""


class Inventory(Section):
    """The fleet. `file` is where it was read."""

    nodes: Annotated[dict[Name, NodeConfig], Field(min_length=1)]
    defaults: NodeSettings = NodeSettings()
    """Values for every node that does not say otherwise."""
    build: Build = Build()
    known_hosts: Line = "known_hosts"
    """File of pinned host keys by node name, relative to the inventory; `sparkops trust` writes it."""


class Fleet(Section):
    """An inventory with its defaults applied and its paths resolved."""

    file: Path
    nodes: dict[str, NodeConfig]
    build: Build
    known_hosts: Path

    def node(self, name: str) -> NodeConfig:
        """The node of that name. Raises UsageError with the names there are."""
        if name not in self.nodes:
            known = ", ".join(self.nodes)
            raise UsageError(f"{self.file}: there is no node '{name}'", next_step=f"Name one of: {known}")
        return self.nodes[name]

    def resolve(self, path: str) -> Path:
        """A path of the inventory, seen from the inventory's directory."""
        return (self.file.parent / Path(path).expanduser()).absolute()


def load(file: Path) -> Fleet:
    """Read and check an inventory. Raises ConfigError."""
    read = source.read(file)
    inventory = source.validate(read, Inventory)
    defaults = inventory.defaults.model_dump(exclude_none=True)
    nodes = {}
    for name, node in inventory.nodes.items():
        nodes[name] = NodeConfig(**{**defaults, **node.model_dump(exclude_none=True, exclude_unset=True)})
        if node.jump and node.jump not in inventory.nodes:
            raise read.fail(("nodes", name, "jump"), f"there is no node '{node.jump}'")
    known_hosts = (file.parent / inventory.known_hosts).absolute()
    return Fleet(file=file, nodes=nodes, build=inventory.build, known_hosts=known_hosts)
