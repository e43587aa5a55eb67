"""Open the connection to a node: check its key, notice half-open connections, explain failures."""

from __future__ import annotations

import getpass
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType

from sparkops.command import quote
from sparkops.config import files
from sparkops.errors import NotReachable, UsageError
from sparkops.node.local import LocalNode
from sparkops.node.node import Node, Route, Routes
from sparkops.node.waiting import Waiting
from sparkops.operator.fleet.host_keys import Pins
from sparkops.operator.fleet.ssh import SocketTransport, SshNode

# paramiko logs a refused port as an error; here the port of a loading engine refuses connections.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

KEEPALIVE_S = 15
# Detect a vanished peer after a minute; TCP itself waits for about 15 minutes.
SOCKET_OPTIONS = (
    ("SO_KEEPALIVE", socket.SOL_SOCKET, 1),
    ("TCP_KEEPIDLE", socket.IPPROTO_TCP, KEEPALIVE_S),
    ("TCP_KEEPINTVL", socket.IPPROTO_TCP, KEEPALIVE_S),
    ("TCP_KEEPCNT", socket.IPPROTO_TCP, 4),
    ("TCP_USER_TIMEOUT", socket.IPPROTO_TCP, 60_000),
    ("TCP_NODELAY", socket.IPPROTO_TCP, 1),
)


MOST_QUOTED = 200
"""Characters of an error that are shown."""
PUBLIC = (b"ssh-", b"ecdsa-", b"sk-", b"---- BEGIN SSH2 PUBLIC KEY", b"-----BEGIN PUBLIC KEY")
"""Starts of a file with a public key."""
PUBLIC_BYTES = 16 * 2**10
"""Limit of such a file; an RSA key of 16384 bits has 2.7 KiB."""


@dataclass(frozen=True)
class Connector:
    """Connects to the nodes of a fleet. `patience_s` bounds the retries, `pause_s` is the wait before the first."""

    fleet: Routes
    patience_s: float = 20.0
    timeout_s: float = 6.0
    pause_s: float = 0.5
    cancel: threading.Event = field(default_factory=threading.Event)

    def node(self, name: str) -> Node:
        """Return a connected node. Raises NotReachable, HostKeyRefused or Interrupted."""
        config = self.fleet.node(name)
        if config.transport == "local":
            return LocalNode(name, self.cancel)
        waiting = Waiting(self.pause_s, self.patience_s, self.cancel, backoff=True)
        try:
            return SshNode(name, waiting.retry(lambda: self._client(name, config), _passing), self.cancel)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise self._explain(name, config, error) from error

    def host_key(self, name: str) -> paramiko.PKey:
        """Return the key that the node presents, without trusting it. Raises NotReachable."""
        config = self.fleet.node(name)
        try:
            transport = paramiko.Transport(self._socket(config))
            try:
                transport.start_client(timeout=self.timeout_s)
                return transport.get_remote_server_key()
            finally:
                transport.close()
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise self._explain(name, config, error) from error

    def pins(self, name: str) -> Pins:
        """Return the keys that are accepted for a node."""
        config = self.fleet.node(name)
        return Pins(name, config.address, config.port or 22, self.fleet.known_hosts)

    def _client(self, name: str, config: Route) -> paramiko.SSHClient:
        client = paramiko.SSHClient()
        pins = self.pins(name)
        pins.load(client)
        key = self._key(name, config)
        try:
            client.connect(
                config.address,
                port=config.port or 22,
                username=config.user or getpass.getuser(),
                pkey=key,
                allow_agent=key is None,
                look_for_keys=key is None,
                sock=self._socket(config),
                timeout=self.timeout_s,
                banner_timeout=self.timeout_s,
                auth_timeout=self.timeout_s * 2,
                transport_factory=SocketTransport,  # type: ignore[arg-type]
            )
        except paramiko.BadHostKeyException as error:
            client.close()
            raise pins.refusal(error.key) from None
        except BaseException:
            client.close()
            raise
        transport = client.get_transport()
        if transport is not None:
            transport.set_keepalive(KEEPALIVE_S)
        return client

    def _key(self, name: str, config: Route) -> paramiko.PKey | None:
        if config.ssh_key is None:
            return None
        try:
            return read_key(self.fleet.resolve(config.ssh_key))
        except UsageError as error:
            step = error.next_step or f"Correct ssh_key of {name} in {self.fleet.file}."
            raise NotReachable(name, str(error), next_step=step) from None

    def _socket(self, config: Route) -> socket.socket | paramiko.Channel:
        target = (config.address, config.port or 22)
        if config.jump:
            transport = self._client(config.jump, self.fleet.node(config.jump)).get_transport()
            if transport is None:
                raise ConnectionError(f"the connection to {config.jump} is closed")
            return transport.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=self.timeout_s)
        try:
            connection = socket.create_connection(target, timeout=self.timeout_s)
        except UnicodeError as error:  # a name with an empty or too long label
            raise socket.gaierror(str(error)) from None
        for option, level, value in SOCKET_OPTIONS:
            if hasattr(socket, option):  # not every system has all of them
                connection.setsockopt(level, getattr(socket, option), value)
        return connection

    def _explain(self, name: str, config: Route, error: Exception) -> NotReachable:
        where = f"{_at(config)}:{config.port or 22}"
        match error:
            case paramiko.AuthenticationException():
                copy = quote("ssh-copy-id", *self._ssh_options(config), _at(config))
                why, step = "the node refused the key", f"Check user and ssh_key of {name}, or: {copy}"
            case TimeoutError():
                why, step = "no answer", "Check that the node is on and its network is up."
            case socket.gaierror():
                why, step = "unknown address", f"Correct the address of {name} in {self.fleet.file}."
            case _:
                test = quote("ssh", *self._ssh_options(config), _at(config))
                # What is no SSH server may send lines of any length, which paramiko quotes.
                reason = (isinstance(error, OSError) and error.strerror) or str(error)
                why, step = reason[:MOST_QUOTED] or type(error).__name__, f"Test it with: {test}"
        return NotReachable(name, f"cannot connect to {where}: {why}", next_step=step)

    def _ssh_options(self, config: Route) -> Iterator[str]:
        """Yield the options with which ssh and ssh-copy-id take the same way; both read HOST:PORT as a host name."""
        if config.port not in (None, 22):
            yield from ("-p", str(config.port))
        if config.ssh_key:
            yield from ("-i", str(self.fleet.resolve(config.ssh_key)))
        if config.jump:
            yield from ("-o", f"ProxyJump={','.join(self._jumps(config.jump))}")

    def _jumps(self, name: str) -> Iterator[str]:
        """Yield the jump hosts on the way to `name` and itself, the first one first."""
        config = self.fleet.node(name)
        if config.jump:
            yield from self._jumps(config.jump)
        user, _, address = _at(config).partition("@")
        yield f"{user}@[{address}]:{config.port or 22}" if ":" in address else f"{user}@{address}:{config.port or 22}"


def _at(config: Route) -> str:
    return f"{config.user or getpass.getuser()}@{config.address}"


def _passing(error: BaseException) -> bool:
    """Return whether a retry may help. An overloaded sshd closes connections before it sends its banner."""
    return isinstance(error, TimeoutError | ConnectionResetError | BrokenPipeError | EOFError) or "banner" in str(error)


def read_key(file: Path) -> paramiko.PKey:
    """Return the private key in a file. Raises UsageError: missing, a public key, with a passphrase, no key."""
    if not file.is_file():
        raise UsageError(f"key file not found: {file}")
    try:
        return paramiko.PKey.from_path(file)
    except TypeError:  # raised for a key with a passphrase, which only an agent can open
        step = "Load it with ssh-add and name no key: those of the agent are tried."
        raise UsageError(f"the key {file} has a passphrase", next_step=step) from None
    except (OSError, ValueError, paramiko.SSHException, UnknownKeyType) as error:
        if _is_public(file):
            step = f"Name the private key, usually {file.with_suffix('')}."
            raise UsageError(f"{file} is a public key", next_step=step) from None
        raise UsageError(f"{file} cannot be read as a private key: {error}") from None


def _is_public(file: Path) -> bool:
    try:
        return files.read(file, PUBLIC_BYTES).startswith(PUBLIC)
    except OSError:
        return False


def configured(address: str) -> dict[str, str]:
    """Return address, user, port and ssh_key of a host as far as ~/.ssh/config has them. Raises UsageError."""
    file = Path("~/.ssh/config").expanduser()
    try:
        settings = paramiko.SSHConfig.from_path(file).lookup(address) if file.is_file() else {}
    except (OSError, ImportError, ValueError, paramiko.SSHException) as error:  # `Match exec` needs another package
        raise UsageError(f"{file}: cannot be read: {error}", next_step="Pass the SSH user with --user.") from None
    key = next(filter(_opens, settings.get("identityfile", ())), None)
    route = {"address": settings.get("hostname"), "user": settings.get("user"), "port": settings.get("port")}
    return {name: value for name, value in {**route, "ssh_key": key}.items() if value}


def _opens(key: str) -> bool:
    """Return whether a key needs no passphrase. Others are left to the agent."""
    try:
        paramiko.PKey.from_path(key)
    except (OSError, TypeError, ValueError, paramiko.SSHException, UnknownKeyType):
        return False
    return True
