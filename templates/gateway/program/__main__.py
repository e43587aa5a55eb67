#!/usr/bin/python3 -ES
"""The program of the gateway's container: starts HAProxy, writes its files and sends it commands. One verb per call.

Files are written before HAProxy changes, so after a crash the files win, and every verb can be repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable

import disk
import haproxy
from disk import ACTIVE, DOWN, LOADED, RELEASES, SERVERS, SLOTS, STATE, STOPPED, Pointed, Refused
from loading import attempt, configure, replace, start

FORMAT = 2
"""Of what `show` prints: that of journals and requests to guards."""
PREVIEW_S = 5.0
RELEASE = re.compile(r"[A-Za-z0-9._-]+")
ADDRESS = re.compile(r"\[?([A-Za-z0-9._:%-]+?)\]?:(\d+)")


def forget(service: str) -> None:
    """Remove a service without an active backend."""
    with disk.alone():
        if service in disk.services():
            if not active(service) <= {DOWN, STOPPED}:
                raise Refused(f"{service} is active, or its requests wait: switch it to down first")
            replace({f"services/{service}.cfg": ""})
            for slot in SLOTS:
                disk.remember(f"be_{service}_{slot}", None)


def slot_backend(service: str, slot: str) -> str:
    """Return the backend of a slot."""
    if service not in (services := disk.services()) or slot not in SLOTS:
        known = f"services: {' '.join(services) or 'none'}; slots: {' '.join(SLOTS)}"
        raise Refused(f"unknown slot {slot} of service {service}; {known}")
    return f"be_{service}_{slot}"


def active(service: str) -> set[str | None]:
    """Return the active backend of file and HAProxy: one, unless they differ."""
    return {disk.active().get(service), haproxy.rows(ACTIVE).get(service)}


def point(service: str, slot: str, release: str, *addresses: str) -> None:
    """Set release and servers of a slot, each as ADDRESS:PORT, with =RELEASE where its own is another one.

    Of the active slot some servers must stay: those that leave finish their requests.
    """
    words = [address.partition("=") for address in addresses]
    named = {numeric(address): own or release for address, _, own in words}
    if not all(map(RELEASE.fullmatch, (release, *named.values()))) or not 1 <= len(named) <= SERVERS:
        raise Refused(f"expected a release and 1 to {SERVERS} addresses, got {release!r} and {len(addresses)}")
    with disk.alone():
        backend = slot_backend(service, slot)
        before, serves = disk.pointed(backend), backend in active(service)
        if serves and not {*before["servers"]} & {*named}:
            raise Refused(f"{service} {slot} is active: some of its servers must stay")
        servers = haproxy.arranged(backend, [*named])
        target: Pointed = {
            "release": release,
            "servers": servers,
            "releases": [own if (own := named.get(server, "")) != release else "" for server in servers],
        }
        disk.remember(backend, target)
        had = haproxy.rows(RELEASES)
        for key, name in disk.named(backend).items():
            if name != "-" and had.get(key) != name:  # what leaves still answers the requests that it has
                haproxy.set_row(RELEASES, key, name)
        haproxy.set_servers(backend, servers, serves=serves)
        if serves and before["servers"] != servers:  # old workers do not have these servers
            haproxy.waiting()
            give(service, backend)
    print(f"{service} {slot}: {release} at {' '.join(named)}")


def numeric(address: str) -> str:
    """Return ADDRESS:PORT with the host resolved, so that HAProxy starts without a resolver."""
    parts = ADDRESS.fullmatch(address)
    if not parts:
        raise Refused(f"expected ADDRESS:PORT, got {address!r}")
    try:
        host = str(socket.getaddrinfo(parts[1], int(parts[2]), type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, OverflowError) as error:
        raise Refused(f"{address}: {error}") from None
    return f"[{host}]:{parts[2]}" if ":" in host else f"{host}:{parts[2]}"


def switch(service: str, slot: str, release: str = "") -> None:
    """Send the traffic of a service to the slot with `release`, or refuse it (`down`). Ends a hold.

    `down stopped`: an operator has stopped the service, so that clients need not try again.
    """
    with disk.alone():
        refuses = STOPPED if release == "stopped" else DOWN
        target = refuses if slot == "down" and service in disk.services() else slot_backend(service, slot)
        serves = target not in (DOWN, STOPPED)
        if serves and disk.pointed(target)["release"] != release:
            raise Refused(f"{service} {slot} has release {disk.pointed(target)['release']}, expected {release}")
        if serves and haproxy.ready(target) != disk.pointed(target)["servers"]:
            servers = f"{haproxy.ready(target)}, expected {disk.pointed(target)['servers']}"
            raise Refused(f"{service} {slot} has servers {servers}: point it again")
        before = give(service, target)
        disk.put_hold(service, None)
        haproxy.waiting()
    print(f"{service}: {before} -> {target}")


def give(service: str, target: str) -> str | None:
    """Send the requests of a service to a backend, and return the previous one.

    Old workers send theirs through the waiting room to the current worker: they do not have the servers of a slot that
    was pointed since the reload.
    """
    before = haproxy.rows(ACTIVE)
    disk.activate({**before, **disk.active(), service: target})
    haproxy.set_row(ACTIVE, service, target, target if target in (DOWN, STOPPED) else disk.waiting(service))
    return before.get(service)


def hold(service: str, mark: str, left_s: str, longest_s: str, most: str) -> None:
    """Hold the requests of a service during a start that is predicted to end in `left_s` seconds.

    A request waits up to `longest_s`. Requests beyond `most`, or with a longer predicted wait, get 503 at once.
    """
    if not re.fullmatch(r"[0-9.+]+", mark):
        raise Refused(f"expected the key of a start, got {mark!r}")
    with disk.alone():
        slot_backend(service, SLOTS[0])
        predicted = {"until": time.time() + float(left_s), "left_s": float(left_s)}
        disk.put_hold(service, {"mark": mark, **predicted, "longest_s": float(longest_s), "most": int(most)})
        haproxy.waiting()  # the room must listen for the service before HAProxy sends a request
        before = give(service, disk.waiting(service))
    print(f"{service}: {before} -> {disk.waiting(service)}")


def cut(service: str, slot: str, which: str = "") -> None:
    """End the open requests of a slot, also in old workers, and print how many have ended.

    `left`: only those in servers that the slot has lost.
    """
    backend = slot_backend(service, slot)
    spared = frozenset(disk.pointed(backend)["servers"]) if which == "left" else None
    found, left = haproxy.end_sessions(backend, spared)
    if left:
        print(f"gateway: {left} of {found} requests of {service} {slot} are still open", file=sys.stderr)
    print(max(found - left, 0))


def preview(service: str, slot: str, path: str) -> None:
    """Send a request to a slot, also to one that is not active, and print the release that answered."""
    import probe  # it imports http.client, with its parsers of mail

    slot_backend(service, slot)
    reply = probe.send(
        {"service": service, "slot": slot, "path": path, "body": "", "answer_s": PREVIEW_S, "most": probe.PART}
    )
    if reply["failed"]:
        raise Refused(f"{service} {slot}: {reply['failed']}: {reply['why']}")
    if reply["status"] != 200:
        raise Refused(f"{service} {slot}: a request through the gateway got HTTP {reply['status']}, expected 200")
    print(reply["release"])


def show() -> None:
    """Print the state of the files and of HAProxy as JSON."""
    files = [file for file in disk.configuration() if file.exists()]
    shown = {
        "format": FORMAT,
        "files": {str(file.relative_to(STATE)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
        "loaded": disk.digest() == disk.read(LOADED),
        "keys": disk.read(disk.KEYS).split(),
        "certificate": disk.fingerprint(),
        "ports": {service: disk.port(disk.service_file(service)) for service in disk.services()},
        "port": disk.port(disk.ONE),
        "aliases": {service: disk.aliases(service) for service in disk.services()},
        "sticky": disk.sticky(),
        "slots": {backend: disk.pointed(backend) for backend in disk.backends()},
        "map": "".join(f"{service} {backend}\n" for service, backend in disk.active().items()),
        "holds": disk.holds(),
        "room": haproxy.waiting(),
    }
    try:
        print(json.dumps({**shown, "haproxy": running(), "problem": ""}))
    except Refused as problem:
        print(json.dumps({**shown, "haproxy": None, "problem": str(problem)}))


def show_each() -> None:
    """Show once for each line on stdin, so that the guard starts no process for each request."""
    for _ in sys.stdin:
        show()
        sys.stdout.flush()


def running() -> dict[str, object]:
    return {
        "map": haproxy.query(f"show map {ACTIVE}"),
        "releases": haproxy.query(f"show map {RELEASES}"),
        "processes": haproxy.query("show proc", haproxy.MASTER),
        "statistics": haproxy.replies("show stat"),
    }


def serve_room(large_mib: str, places: str, place: str) -> None:
    """Run the waiting room until the container stops; the words are those of `serve` there."""
    import room  # it imports asyncio, which would double the start of every other verb

    room.serve(large_mib, places, place)


def probe_each() -> None:
    """Send a probe for each line on stdin."""
    import probe  # as in `preview`

    probe.serve()


VERBS: dict[str, Callable[..., None]] = {
    "start": start,
    "try": attempt,
    "configure": configure,
    "forget": forget,
    "point": point,
    "switch": switch,
    "hold": hold,
    "room": serve_room,
    "cut": cut,
    "preview": preview,
    "show": show,
    "show-each": show_each,
    "probe-each": probe_each,
}


def main() -> None:
    os.umask(0o077)
    verb, *words = sys.argv[1:] or [""]
    if verb not in VERBS:
        sys.exit(f"gateway: unknown verb {verb!r}, expected one of: {' '.join(VERBS)}")
    try:
        VERBS[verb](*words)
    except Refused as problem:
        sys.exit(f"gateway: {problem}")
    except OSError as error:  # such as a full disk
        sys.exit(f"gateway: {verb} failed: {error.filename or STATE}: {error.strerror or error}")


if __name__ == "__main__":
    main()
