"""Keep runs of benchmarks as files, and return them. Standard library only: this runs in the guard's container.

The second line of stdin is the request: `save` with service, name and text, or `read`. Names begin with the time of a
run, so the oldest files go first where there are too many.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys

NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
FILE = re.compile(r"[0-9]{8}T[0-9]{6}Z-[a-z0-9][a-z0-9.-]{0,99}")
RUNS = 20  # of one service
MAX_RUN = 2**16
QUOTA = 2**20  # bytes, of all services together: one command prints them


def save(root, service, name, text):
    """Write a run, in place of an earlier state of it, for its owner only. Raises ValueError."""
    if not NAME.fullmatch(service) or not FILE.fullmatch(name):
        raise ValueError("expected the names of a service and of a run")
    if len(text.encode()) > MAX_RUN:
        raise ValueError(f"a run of {len(text.encode())} bytes, expected up to {MAX_RUN}")
    directory = os.path.join(root, service)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with open(os.path.join(root, ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        unfinished = os.path.join(directory, ".new")
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, os.path.join(directory, f"{name}.json"))
        for path in surplus(root, service):
            os.unlink(path)


def files(root):
    """Return (name, service) of every run, oldest first."""
    services = sorted(name for name in os.listdir(root) if NAME.fullmatch(name)) if os.path.isdir(root) else []
    found = [(name[:-5], service) for service in services for name in os.listdir(os.path.join(root, service))]
    return sorted((name, service) for name, service in found if FILE.fullmatch(name))


def surplus(root, service):
    """Return the files that must go: the oldest of the service, then the oldest of all."""
    every = [(os.path.join(root, owner, f"{name}.json"), owner) for name, owner in files(root)]
    old = [path for path, owner in every if owner == service][:-RUNS]
    others = [path for path, _ in every if path not in old]
    sizes = {path: os.path.getsize(path) for path in others}
    total = sum(sizes.values())
    while total > QUOTA and len(others) > 1:
        oldest = others.pop(0)
        total -= sizes[oldest]
        old.append(oldest)
    return old


def read(root):
    """Return the text of every run by service and name."""
    runs = {}
    for name, service in files(root):
        with open(os.path.join(root, service, f"{name}.json"), encoding="utf-8", errors="replace") as file:
            runs.setdefault(service, {})[name] = file.read(MAX_RUN + 1)
    return runs


def main():
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.readline())
    try:
        if request["verb"] == "save":
            save(request["root"], request["service"], request["name"], request["text"])
        print(json.dumps(read(request["root"]) if request["verb"] == "read" else {}))
    except (OSError, ValueError) as error:
        sys.exit(f"benchmarks: {error}")


main()
