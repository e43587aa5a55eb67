"""Read the gateway's files: templates, program, API keys and certificate."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from sparkops.config import shipped
from sparkops.config.fields import Location
from sparkops.config.files import OTHERS, read
from sparkops.config.inventory import Fleet

KEY = re.compile(r"[A-Za-z0-9._~+/=-]{16,512}")  # valid in `Authorization: Bearer`, and too long to guess
CERTIFICATE, PRIVATE_KEY = "-----BEGIN CERTIFICATE-----", "PRIVATE KEY-----"


@dataclass(frozen=True)
class Secrets:
    """Secrets of the gateway: clients' keys, the certificate with its private key, the key of its figures.

    Without certificate or key of the figures, that is empty."""

    api_keys: tuple[str, ...] = field(default=(), repr=False)
    certificate: str = field(default="", repr=False)
    monitoring: str = field(default="", repr=False)


def load_templates() -> dict[str, str]:
    """Return the gateway's templates by name in templates/, such as gateway/haproxy.cfg.j2."""
    directory = shipped.directory("templates") / "gateway"
    return {f"gateway/{file.name}": file.read_text() for file in sorted(directory.glob("*.j2"))}


def load_program() -> dict[str, bytes]:
    """Return the files of the program that runs beside HAProxy."""
    directory = shipped.directory("templates") / "gateway" / "program"
    return {file.name: file.read_bytes() for file in sorted(directory.glob("*.py"))}


def load_secrets(fleet: Fleet) -> Secrets:
    """Read the secrets that the inventory names for the gateway. Raises ConfigError, which never has a key."""
    if fleet.gateway is None:
        return Secrets()
    named = fleet.gateway.api_keys
    keys = tuple(_key(fleet, ("gateway", "api_keys", number), file) for number, file in enumerate(named))
    certificate = fleet.gateway.tls_certificate
    return Secrets(keys, _certificate(fleet, certificate) if certificate else "", load_monitoring_key(fleet))


def load_monitoring_key(fleet: Fleet) -> str:
    """Read the key of the figures for Prometheus; empty without `monitoring`. Raises ConfigError."""
    return _key(fleet, ("monitoring", "key"), fleet.monitoring.key) if fleet.monitoring else ""


def _key(fleet: Fleet, where: Location, named: str) -> str:
    key = _secret(fleet, where, named).strip()
    if not KEY.fullmatch(key):
        problem = f"{named} has no valid key: expected one line of 16 to 512 letters, digits and . _ ~ + / = -"
        raise fleet.fail(where, problem)
    return key


def _certificate(fleet: Fleet, named: str) -> str:
    where = ("gateway", "tls_certificate")
    text = _secret(fleet, where, named)
    if CERTIFICATE not in text or PRIVATE_KEY not in text:
        raise fleet.fail(where, f"{named}: expected a PEM certificate and its private key")
    return text


def _secret(fleet: Fleet, where: Location, named: str) -> str:
    file: Path = fleet.resolve(named)
    try:
        mode, text = file.stat().st_mode, read(file).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "expected text in UTF-8"
        raise fleet.fail(where, f"{file} cannot be read: {reason}") from None
    if mode & OTHERS:
        raise fleet.fail(where, f"{file} is readable by other users: chmod 600 {file}")
    return text
