"""HAProxy as it runs: what it is asked, and what it must have done."""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from disk import CONFIG, NEXT, PATIENCE_S, RUN, SERVERS, Refused, read
from disk import rows as parse_rows

ADMIN, MASTER = RUN / "admin.sock", RUN / "master.sock"
REPLY_S = 10.0
IDLE = ("MAINT", "DRAIN", "DOWN")


def replace_this() -> NoReturn:
    """Become HAProxy's master."""
    os.execvp("haproxy", ["haproxy", "-W", "-db", "-S", f"{MASTER},mode,600", "-f", str(CONFIG)])


def check(config: Path = NEXT) -> None:
    """Raise Refused with what HAProxy has against a configuration."""
    checked = subprocess.run(["haproxy", "-c", "-W", "-f", str(config)], capture_output=True, text=True, check=False)
    if checked.returncode:
        raise Refused(f"HAProxy refuses the configuration:\n{checked.stderr.strip()[-2000:]}")


def ask(command: str, at: Path = ADMIN) -> str:
    """What HAProxy says. Its master answers only once our side is closed."""
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(REPLY_S)
        try:
            asking.connect(str(at))
            asking.sendall(f"{command}\n".encode())
            asking.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: asking.recv(65536), b"")).decode(errors="replace")
        except OSError as error:
            raise Refused(f"HAProxy does not answer: {error}") from None


def answers() -> bool:
    with suppress(Refused):
        return "Pid:" in ask("show info")
    return False


def wait() -> None:
    """Wait until HAProxy answers."""
    end = time.monotonic() + PATIENCE_S
    while not answers():
        if time.monotonic() > end:
            raise Refused("HAProxy does not start: see the log of the container")
        time.sleep(0.05)


def workers() -> list[str]:
    """The process that takes connections, then those that only finish what they have."""
    processes = [line.split() for line in ask("show proc", MASTER).splitlines()]
    workers = [words[0] for words in processes if words[1:2] == ["worker"]]
    if not workers:
        raise Refused("HAProxy has no worker: it is just starting one")
    return workers


def each_worker(command: str) -> dict[str, str]:
    """What every worker says; an old one that ends meanwhile has nothing to say."""
    current, *old = workers()
    replies = {current: ask(f"@!{current} {command}", MASTER)}
    for pid in old:
        with suppress(Refused):
            replies[pid] = ask(f"@!{pid} {command}", MASTER)
    return replies


def statistics(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.lstrip("# ").splitlines()))


def ready(backend: str) -> list[str]:
    """Addresses of the servers of a slot that take requests."""
    servers = statistics(ask(f"show stat {backend} 4 -1"))
    return [server["addr"] for server in servers if server["status"] not in IDLE]


def rows(file: Path) -> dict[str, str]:
    """A map as it runs."""
    return parse_rows(ask(f"show map {file}"))


def set_row(file: Path, key: str, value: str) -> None:
    """One command for each worker: an old one may still get a request on a connection that it has."""
    each_worker(f"set map {file} {key} {value}")
    if (now := rows(file).get(key)) != value:
        raise Refused(f"{file.name}: HAProxy has {now} for {key} and should have {value}")


def set_servers(backend: str, servers: list[str]) -> None:
    ask(";".join(_server_commands(backend, servers)))
    if ready(backend) != servers:
        raise Refused(f"{backend}: HAProxy has {ready(backend)} and should have {servers}")


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
    """Requests under way in a slot, in old workers too."""
    replies = each_worker(f"show stat {backend} 2 -1")
    return sum(int(row["scur"]) for text in replies.values() for row in statistics(text))


def end_sessions(backend: str) -> None:
    """An old worker, whose proxies are disabled, can only end sessions one by one. It gets no new ones."""
    for number in range(1, SERVERS + 1):
        ask(f"shutdown sessions server {backend}/s{number}")
    for pid in workers()[1:]:
        with suppress(Refused):
            for line in ask(f"@!{pid} show sess", MASTER).splitlines():
                if f" be={backend} " in line:
                    ask(f"@!{pid} shutdown session {line.partition(':')[0]}", MASTER)


def free(port: int) -> bool:
    """Whether nobody listens on a port. HAProxy must not find out: while it tries, the old worker pauses."""
    with socket.socket() as trying:
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind(("", port))
        except OSError:
            return False
        return True


def reload() -> None:
    """Start a worker from NEXT. The old one finishes its requests, and takes no more."""
    before, old = read(CONFIG), workers()[:1]
    NEXT.replace(CONFIG)
    ask("reload", MASTER)
    try:
        _wait_for_worker(old)
    except Refused:
        CONFIG.write_text(before)
        with suppress(Refused):
            ask("reload", MASTER)
        raise


def _wait_for_worker(old: list[str]) -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(Refused):
            processes = ask("show proc", MASTER)
            if processes and "[failed: 0]" not in processes:
                break
            if workers()[:1] != old and answers():
                return
        time.sleep(0.05)
    raise Refused("HAProxy does not start with the new configuration: see the log of the container")
