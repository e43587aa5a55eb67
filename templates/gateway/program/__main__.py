#!/usr/bin/python3 -ES
"""The program of the gateway's container: it starts HAProxy, writes its files and speaks to it. One verb a call.

Files are written before HAProxy is told, so after a crash the files win, and every verb may be repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable

import disk
import haproxy
import room
from disk import ACTIVE, DOWN, LOADED, RELEASES, SERVERS, SLOTS, STATE, Pointed, Refused
from loading import TOKEN, attempt, configure, replace, start, token

PREVIEW_S = 5.0
ADDRESS = re.compile(r"\[?([A-Za-z0-9._:%-]+?)\]?:(\d+)")


def forget(service: str) -> None:
    """Remove a service that nobody has the traffic of."""
    with disk.alone():
        if service in disk.services():
            if active(service) != {DOWN}:
                raise Refused(f"{service} has traffic, or its requests wait: switch it to down first")
            replace({f"services/{service}.cfg": ""})
            disk.put_hold(service, None)
            for slot in SLOTS:
                disk.remember(f"be_{service}_{slot}", None)


def slot_backend(service: str, slot: str) -> str:
    """The backend of a slot."""
    if service not in (services := disk.services()) or slot not in SLOTS:
        raise Refused(f"there is no slot {slot} of a service {service}; services: {' '.join(services) or 'none'}")
    return f"be_{service}_{slot}"


def active(service: str) -> set[str | None]:
    """Who has the traffic: one backend, unless file and HAProxy disagree."""
    return {disk.rows(disk.read(ACTIVE)).get(service), haproxy.rows(ACTIVE).get(service)}


def point(service: str, slot: str, release: str, *addresses: str) -> None:
    """Let a slot that has no traffic mean these servers."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", release) or not 1 <= len(addresses) <= SERVERS:
        raise Refused(f"expected a release and 1 to {SERVERS} addresses")
    with disk.alone():
        backend = slot_backend(service, slot)
        target: Pointed = {"release": release, "servers": [numeric(address) for address in addresses]}
        if backend in active(service) and disk.pointed(backend) != target:
            raise Refused(f"{service} {slot} has the traffic: it cannot be pointed elsewhere")
        disk.remember(backend, target)
        haproxy.set_servers(backend, target["servers"])
        haproxy.set_row(RELEASES, backend, release)
    print(f"{service} {slot}: {release} at {' '.join(target['servers'])}")


def numeric(address: str) -> str:
    """ADDRESS:PORT without a name: HAProxy must need no resolver when it starts."""
    parts = ADDRESS.fullmatch(address)
    if not parts:
        raise Refused(f"expected ADDRESS:PORT, got {address!r}")
    try:
        host = str(socket.getaddrinfo(parts[1], int(parts[2]), type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, OverflowError) as error:
        raise Refused(f"{address}: {error}") from None
    return f"[{host}]:{parts[2]}" if ":" in host else f"{host}:{parts[2]}"


def switch(service: str, slot: str, release: str = "") -> None:
    """Give the traffic of a service to the slot that holds `release`, or to nobody (`down`). No request waits then."""
    with disk.alone():
        target = DOWN if slot == "down" and service in disk.services() else slot_backend(service, slot)
        if target != DOWN and disk.pointed(target)["release"] != release:
            raise Refused(f"{service} {slot} holds {disk.pointed(target)['release']} and not {release}")
        if target != DOWN and haproxy.ready(target) != disk.pointed(target)["servers"]:
            raise Refused(f"the servers of {service} {slot} are not as they were pointed: point it again")
        before = give(service, target)
        disk.put_hold(service, None)
        room.ask()
    print(f"{service}: {before} -> {target}")


def give(service: str, target: str) -> str | None:
    """Send the requests of a service to a backend, and return the one before."""
    before = haproxy.rows(ACTIVE)
    disk.put_rows(ACTIVE, {**before, **disk.rows(disk.read(ACTIVE)), service: target})
    haproxy.set_row(ACTIVE, service, target)
    return before.get(service)


def hold(service: str, mark: str, left_s: str, longest_s: str, most: str) -> None:
    """Let the requests of a service wait for a start that is predicted to end in `left_s` seconds.

    One waits up to `longest_s`; further ones than `most`, and those that would wait longer, get 503 at once.
    """
    if not re.fullmatch(r"[0-9.+]+", mark):
        raise Refused(f"expected the key of a start, got {mark!r}")
    with disk.alone():
        slot_backend(service, SLOTS[0])
        until = time.time() + float(left_s)
        disk.put_hold(service, {"mark": mark, "until": until, "longest_s": float(longest_s), "most": int(most)})
        room.ask()  # it listens for the service before HAProxy sends a request there
        before = give(service, disk.waiting(service))
    print(f"{service}: {before} -> {disk.waiting(service)}")


def cut(service: str, slot: str) -> None:
    """End what is under way in a slot, in old workers too, and print how many requests that were."""
    backend = slot_backend(service, slot)
    print(haproxy.sessions(backend))
    haproxy.end_sessions(backend)


def preview(service: str, slot: str, path: str) -> None:
    """Ask a slot without traffic for a path, the way a client's request goes, and print the release that answered."""
    slot_backend(service, slot)
    own_port = disk.port(disk.service_file(service))
    port, path = (own_port, path) if own_port else (disk.port(disk.ONE), f"/{service}{path}")
    headers = ("Host: gateway", f"x-sparkops-preview: {disk.read(TOKEN)}", f"x-sparkops-slot: {slot}")
    request = "\r\n".join((f"GET {path} HTTP/1.0", *headers, "", ""))
    try:
        with socket.create_connection(("127.0.0.1", port), PREVIEW_S) as plain, encrypted(plain) as connection:
            connection.sendall(request.encode())
            lines = connection.makefile("rb").read().split(b"\r\n\r\n")[0].decode(errors="replace").split("\r\n")
    except OSError as error:
        raise Refused(f"{service} {slot}: {error}") from None
    replied = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if lines[0].split()[1:2] != ["200"]:
        raise Refused(f"{service} {slot}: a request through the gateway got {lines[0] or 'no answer'}")
    print(replied.get("x-sparkops-release", "-"))


def encrypted(plain: socket.socket) -> socket.socket:
    """The same connection as clients have it. It goes to ourselves, so whose certificate it is does not matter."""
    if not (STATE / "tls.pem").exists():
        return plain
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


def show() -> None:
    """Everything at once, as JSON: what the files say, and what HAProxy says."""
    files = [file for file in disk.configuration() if file.exists()]
    shown = {
        "files": {str(file.relative_to(STATE)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
        "loaded": disk.digest() == disk.read(LOADED),
        "keys": disk.read(disk.KEYS).split(),
        "certificate": disk.fingerprint(),
        "ports": {service: disk.port(disk.service_file(service)) for service in disk.services()},
        "port": disk.port(disk.ONE),
        "aliases": {service: disk.aliases(service) for service in disk.services()},
        "slots": {backend: disk.pointed(backend) for backend in disk.backends()},
        "map": disk.read(ACTIVE),
        "holds": disk.holds(),
        "room": room.ask(),
    }
    try:
        print(json.dumps({**shown, "haproxy": running(), "problem": ""}))
    except Refused as problem:
        print(json.dumps({**shown, "haproxy": None, "problem": str(problem)}))


def show_each() -> None:
    """Show at every line on stdin, until it ends: the guard asks often, and starts no process for each question."""
    for _ in sys.stdin:
        show()
        sys.stdout.flush()


def running() -> dict[str, object]:
    return {
        "map": haproxy.ask(f"show map {ACTIVE}"),
        "releases": haproxy.ask(f"show map {RELEASES}"),
        "processes": haproxy.ask("show proc", haproxy.MASTER),
        "statistics": haproxy.each_worker("show stat"),
    }


VERBS: dict[str, Callable[..., None]] = {
    "start": start,
    "try": attempt,
    "configure": configure,
    "forget": forget,
    "point": point,
    "switch": switch,
    "hold": hold,
    "room": room.serve,
    "cut": cut,
    "preview": preview,
    "show": show,
    "show-each": show_each,
    "token": token,
}


def main() -> None:
    os.umask(0o077)
    verb, *words = sys.argv[1:] or [""]
    if verb not in VERBS:
        sys.exit(f"expected one of: {' '.join(VERBS)}")
    try:
        VERBS[verb](*words)
    except Refused as problem:
        sys.exit(f"gateway: {problem}")


if __name__ == "__main__":
    main()
