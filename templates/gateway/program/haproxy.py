"""Commands to the running HAProxy, with a check of their effect."""

from __future__ import annotations

import csv
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from disk import CONFIG, NEXT, PATIENCE_S, RUN, SERVERS, Refused, read
from disk import rows as parse_rows

ADMIN, MASTER = RUN / "admin.sock", RUN / "master.sock"
PROBES = RUN / "probe.sock"
ROOM = RUN / "room.sock"  # of the waiting room, which has asyncio: only its own process imports it
REPLY_S = 10.0
ROOM_S = 5.0
END_S = 5.0
TRIES_S = 10.0  # for three tries to connect, of up to 3 s each: `retries` and `timeout connect` of haproxy.cfg
CONNECTING = re.compile(r" scb=\[[0-6],")  # the state of a session towards its server, up to SC_ST_CER of HAProxy
IDLE = ("MAINT", "DRAIN")  # one that fails its checks belongs to its slot, and comes back


def replace_this() -> NoReturn:
    """Replace this process with HAProxy's master."""
    os.execvp("haproxy", ["haproxy", "-W", "-db", "-S", f"{MASTER},mode,600", "-f", str(CONFIG)])


def check(config: Path = NEXT) -> None:
    """Raise Refused with HAProxy's errors if it rejects a configuration."""
    import subprocess  # only a start and a change of the configuration need it

    checked = subprocess.run(["haproxy", "-c", "-W", "-f", str(config)], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise Refused(f"HAProxy rejects the configuration:\n{checked.stderr.strip()[-2000:]}")


def query(command: str, at: Path = ADMIN) -> str:
    """Return HAProxy's reply to a command. The master replies only after this side is closed."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(REPLY_S)
        try:
            asking.connect(str(at))
            asking.sendall(f"{command}\n".encode())
            asking.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: asking.recv(65536), b"")).decode(errors="replace")
        except OSError as error:
            raise Refused(f"HAProxy does not answer: {error}") from None


def waiting() -> dict[str, dict[str, float]] | None:
    """Return the figures of the waiting room, which reads its files first; None if it does not reply."""
    with socket.socket(socket.AF_UNIX) as control, suppress(OSError, ValueError):
        control.settimeout(ROOM_S)
        control.connect(str(ROOM))
        control.sendall(b"\n")
        figures: dict[str, dict[str, float]] = json.loads(b"".join(iter(lambda: control.recv(65536), b"")))
        return figures
    return None


def answers() -> bool:
    with suppress(Refused):
        return "Pid:" in query("show info")
    return False


def wait() -> None:
    """Wait until HAProxy answers."""
    end = time.monotonic() + PATIENCE_S
    while not answers():
        if time.monotonic() > end:
            raise Refused(f"HAProxy has not started within {PATIENCE_S:g} s: docker logs sparkops-gateway")
        time.sleep(0.05)


def workers() -> list[str]:
    """Return the current worker's process ID, then those of old workers, which only finish their requests."""
    processes = [line.split() for line in query("show proc", MASTER).splitlines()]
    workers = [words[0] for words in processes if words[1:2] == ["worker"]]
    if not workers:
        raise Refused("HAProxy has no worker: it is starting one; retry")
    return workers


def each_worker(command: str, in_old: str = "") -> dict[str, str]:
    """Return each worker's reply to a command, without old workers that have ended. `in_old`: their own command.

    The current one is told last: what it shows as done is done in all.
    """
    current, *old = workers()
    known = dict[str, str]()
    for pid, told in (*((pid, in_old or command) for pid in old), (current, command)):
        try:
            known[pid] = query(f"@!{pid} {told}", MASTER)
        except Refused:
            if pid in workers():
                raise
    return known


def statistics(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.lstrip("# ").splitlines()))


def replies(command: str) -> dict[str, str]:
    """Return the reply of each worker that replies: one that hangs hides no other one's."""
    known = dict[str, str]()
    for pid in workers():
        with suppress(Refused):
            known[pid] = query(f"@!{pid} {command}", MASTER)
    return known


def places(backend: str) -> list[dict[str, str]]:
    """Return the statistics of each place of a slot, in order."""
    return statistics(query(f"show stat {backend} 4 -1"))


def ready(backend: str) -> list[str]:
    """Return the addresses of a slot's servers that take requests, by place; empty where a place takes none."""
    return _trimmed([server["addr"] if takes(server) else "" for server in places(backend)])


def takes(server: dict[str, str]) -> bool:
    """Return whether a server gets requests, or would if its checks passed.

    One that is withdrawn has no weight: its status is that of its checks, such as DOWN once its engine has stopped.
    """
    return server["status"].split()[0] not in IDLE and server["weight"] != "0"


def _trimmed(addresses: list[str]) -> list[str]:
    """Return addresses by place without the free places after the last one."""
    while addresses and not addresses[-1]:
        addresses.pop()
    return addresses


def rows(file: Path) -> dict[str, str]:
    """Return a map of the running HAProxy."""
    return parse_rows(query(f"show map {file}"))


def set_row(file: Path, key: str, value: str, in_old: str = "") -> None:
    """Set a row in every worker: an old one may still get a request on an open connection. `in_old`: its own value."""
    each_worker(f"set map {file} {key} {value}", f"set map {file} {key} {in_old or value}")
    if (now := rows(file).get(key)) != value:
        raise Refused(f"{file.name}: HAProxy has {now} for {key}, expected {value}")


def set_servers(backend: str, servers: list[str], *, serves: bool = False) -> None:
    """Set the servers of a slot by place. `serves`: it has the traffic, so requests in those that leave go on."""
    query(";".join(_server_commands(backend, servers, places(backend), serves=serves)))
    if ready(backend) != servers:
        raise Refused(f"{backend}: HAProxy has {ready(backend)}, expected {servers}")


def _server_commands(backend: str, servers: list[str], now: list[dict[str, str]], *, serves: bool) -> Iterator[str]:
    serving = {known["addr"] for known in now if serves and takes(known)}
    for number, known in enumerate(now, 1):
        name = f"set server {backend}/s{number}"
        wanted = servers[number - 1] if number <= len(servers) else ""
        if not wanted:
            yield f"{name} {'weight 0%' if serves and int(known['scur']) else 'state maint'}"
        elif not serves or known["addr"] != wanted or not takes(known):
            address, _, port = wanted.rpartition(":")
            yield f"{name} addr {address.strip('[]')} port {port}"
            if number > 1:  # beside others it gets requests once its checks pass
                yield f"{name} health {'down' if serves and wanted not in serving else 'up'}"
            yield f"{name} weight 100%"
            yield f"{name} state ready"


def arranged(backend: str, addresses: list[str]) -> list[str]:
    """Return addresses by place: the first for a lone one; of several those that serve stay, the others get free ones."""
    if len(addresses) == 1:
        return addresses
    now, fixed = places(backend), [""] * (1 + SERVERS)
    for place, known in enumerate(now):
        if place and known["addr"] in addresses and takes(known):
            fixed[place] = known["addr"]
    free = [place for place, known in enumerate(now) if place and not fixed[place] and not int(known["scur"])]
    coming = [address for address in addresses if address not in fixed]
    if len(free) < len(coming):
        raise Refused(f"{backend}: no place for {' '.join(coming)} before requests have ended")
    for place, address in zip(free, coming, strict=False):
        fixed[place] = address
    return _trimmed(fixed)


def sessions(backend: str, spared: frozenset[str] | None = None) -> int:
    """Return the number of open requests of a slot, with those of old workers. `spared`: not those of these servers."""
    if spared is None:
        shown = each_worker(f"show stat {backend} 2 -1").values()
        return sum(int(row["scur"]) for text in shown for row in statistics(text))
    shown = each_worker(f"show stat {backend} 4 -1").values()
    return sum(int(row["scur"]) for text in shown for row in statistics(text) if row["addr"] not in spared)


def end_sessions(backend: str, spared: frozenset[str] | None = None) -> tuple[int, int]:
    """End the open requests of a slot. Returns their number before, and of those that END_S has not ended.

    `spared`: addresses of the servers whose requests go on.

    One that no engine has taken yet ends with HAProxy's 503 when its tries are over. If it were ended here its client
    would get no reply, so these come first.

    By server HAProxy ends only those that it has connected, and in an old worker, whose proxies are disabled, none: the
    others are ended one by one. A session's number may be another one's later, so most are ended by server.
    """
    found = sessions(backend, spared)
    end = time.monotonic() + TRIES_S
    while any(CONNECTING.search(line) for _, line in listed(backend, spared)) and time.monotonic() < end:
        time.sleep(0.05)
    for number, known in enumerate(places(backend), 1):
        if spared is None or known["addr"] not in spared:
            query(f"shutdown sessions server {backend}/s{number}")
    end = time.monotonic() + END_S
    while (left := sessions(backend, spared)) and time.monotonic() < end:
        for pid, line in listed(backend, spared):
            with suppress(Refused):
                query(f"@!{pid} shutdown session {line.partition(':')[0]}", MASTER)
        time.sleep(0.05)
    return found, left


def listed(backend: str, spared: frozenset[str] | None = None) -> Iterator[tuple[str, str]]:
    """Yield each open request of a slot as HAProxy's line, with its worker; not those of `spared` servers."""
    servers = replies(f"show stat {backend} 4 -1") if spared is not None else {}
    for pid, shown in replies("show sess").items():
        left = {row["svname"] for row in statistics(servers.get(pid, "")) if spared and row["addr"] not in spared}
        for line in shown.splitlines():
            if f" be={backend} " in line and (spared is None or any(f" srv={name} " in line for name in left)):
                yield pid, line


def is_full() -> bool:
    """Return whether HAProxy has as many connections as it may have."""
    with suppress(Refused, KeyError):
        info = dict(line.split(": ", 1) for line in query("show info").splitlines() if ": " in line)
        return int(info["CurrConns"]) >= int(info["Maxconn"])
    return False


def free(port: int) -> bool:
    """Return whether a port is free. HAProxy cannot test this itself: the old worker pauses while a new one tries."""
    with socket.socket() as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind(("", port))
        except OSError:
            return False
        return True


def reload() -> None:
    """Start a worker from NEXT. The old one finishes its requests and takes no more."""
    before, old = read(CONFIG), workers()[:1]
    NEXT.replace(CONFIG)
    query("reload", MASTER)
    try:
        _wait_for_worker(old)
    except Refused:
        CONFIG.write_text(before)
        with suppress(Refused):
            query("reload", MASTER)
        raise


def _wait_for_worker(old: list[str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(Refused):
            processes = query("show proc", MASTER)
            if processes and "[failed: 0]" not in processes:
                break
            if workers()[:1] != old and answers():
                return
        time.sleep(0.05)
    raise Refused("HAProxy does not start with the new configuration: docker logs sparkops-gateway")
