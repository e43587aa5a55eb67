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
IDLE = ("MAINT", "DRAIN", "DOWN")


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


def ready(backend: str) -> list[str]:
    """Return the addresses of a slot's servers that take requests."""
    servers = statistics(query(f"show stat {backend} 4 -1"))
    return [server["addr"] for server in servers if server["status"] not in IDLE]


def rows(file: Path) -> dict[str, str]:
    """Return a map of the running HAProxy."""
    return parse_rows(query(f"show map {file}"))


def set_row(file: Path, key: str, value: str, in_old: str = "") -> None:
    """Set a row in every worker: an old one may still get a request on an open connection. `in_old`: its own value."""
    each_worker(f"set map {file} {key} {value}", f"set map {file} {key} {in_old or value}")
    if (now := rows(file).get(key)) != value:
        raise Refused(f"{file.name}: HAProxy has {now} for {key}, expected {value}")


def set_servers(backend: str, servers: list[str]) -> None:
    query(";".join(_server_commands(backend, servers)))
    if ready(backend) != servers:
        raise Refused(f"{backend}: HAProxy has {ready(backend)}, expected {servers}")


def _server_commands(backend: str, servers: list[str]) -> Iterator[str]:
    for number in range(1, SERVERS + 1):
        name = f"set server {backend}/s{number}"
        if number > len(servers):
            yield f"{name} state maint"
            continue
        address, _, port = servers[number - 1].rpartition(":")
        yield f"{name} addr {address.strip('[]')} port {port}"
        yield f"{name} state ready"


def sessions(backend: str) -> int:
    """Return the number of open requests of a slot, with those of old workers."""
    shown = each_worker(f"show stat {backend} 2 -1").values()
    return sum(int(row["scur"]) for text in shown for row in statistics(text))


def end_sessions(backend: str) -> tuple[int, int]:
    """End the open requests of a slot. Returns their number before, and of those that END_S has not ended.

    One that no engine has taken yet ends with HAProxy's 503 when its tries are over. If it were ended here its client
    would get no reply, so these come first.

    By server HAProxy ends only those that it has connected, and in an old worker, whose proxies are disabled, none: the
    others are ended one by one. A session's number may be another one's later, so most are ended by server.
    """
    found = sessions(backend)
    end = time.monotonic() + TRIES_S
    while any(CONNECTING.search(line) for _, line in listed(backend)) and time.monotonic() < end:
        time.sleep(0.05)
    for number in range(1, SERVERS + 1):
        query(f"shutdown sessions server {backend}/s{number}")
    end = time.monotonic() + END_S
    while (left := sessions(backend)) and time.monotonic() < end:
        for pid, line in listed(backend):
            with suppress(Refused):
                query(f"@!{pid} shutdown session {line.partition(':')[0]}", MASTER)
        time.sleep(0.05)
    return found, left


def listed(backend: str) -> Iterator[tuple[str, str]]:
    """Yield each open request of a slot as HAProxy's line, with its worker."""
    for pid, shown in replies("show sess").items():
        yield from ((pid, line) for line in shown.splitlines() if f" be={backend} " in line)


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
