"""The model directory of a node: list contents, hash files, publish complete directories. Runs on the node.

The second line of stdin is the request, as JSON; the last line of stdout is the reply.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
import time

import checkpoint
import partial

CHUNK = 4 * 1024 * 1024
TELL_EVERY_S = 1.0
DEEPEST = 3


def look(root, paths):
    """Return the directories `paths` under root, or all with a model."""
    exists = os.path.isdir(root)
    if paths is None:
        paths = list(models(root)) if exists else []
    checkpoints = [{"path": path, **examined(root, path)} for path in paths if inside(root, path)]
    return {"root": root_facts(root, exists), "models": checkpoints}


def inside(root, path):
    """Return whether a directory of that name exists."""
    return os.path.isdir(os.path.join(root, path))


def root_facts(root, exists):
    """Return whether the directory exists and is writable, its free bytes, and the user."""
    usage = shutil.disk_usage(root) if exists else None
    return {
        "there": exists,
        "writable": exists and os.access(root, os.W_OK | os.X_OK),
        "free": usage.free if usage else 0,
        "user": [os.getuid(), os.getgid()],
    }


def examined(root, path):
    """Return the content of one directory, its place, the identity of a partial one, and its parts closed to others.

    `id`: inode and time of the last change, which no copy has in common; only nodes that share the directory do.
    """
    directory = os.path.join(root, path)
    contents = checkpoint.examine(directory)
    status = os.stat(directory)
    facts = {
        "place": os.path.realpath(directory),
        "id": [status.st_ino, status.st_ctime_ns],
        "identity": partial.noted(directory),
    }
    return {**contents, **facts, "closed": closed(root, path, contents["files"])}


def closed(root, path, files):
    """Return the mode of each file and directory from `root` down that only its owner or group can read."""
    places = {os.path.join(path, name) for name in files}
    for place in list(places):
        while place:
            place = os.path.dirname(place)
            places.add(place)
    modes = {place or ".": os.stat(os.path.join(root, place)).st_mode for place in sorted(places)}
    return {place: stat.S_IMODE(mode) for place, mode in modes.items() if not readable(mode)}


def readable(mode):
    """Return whether every user may read a file, or list and enter a directory, of this mode."""
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    return mode & needed == needed


def models(root):
    """Yield the path under root of every directory with a model or a part of one."""
    for place, directories, names in os.walk(root, followlinks=True):
        path = os.path.relpath(place, root)
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        if path != "." and is_model(path, names):
            directories.clear()
            yield path
        elif path.count(os.sep) + 1 >= DEEPEST:
            directories.clear()


def is_model(path, names):
    """Return whether a directory with this name and these files is a model or a part of one."""
    unfinished = path.endswith((".partial", ".replaced"))
    return unfinished or any(name == "config.json" or name.endswith((checkpoint.SHARD, ".gguf")) for name in names)


def hashes(directory, names):
    """Return the sha256 of files by name. Reports the bytes read so far."""
    digests, read, reported_at = {}, 0, time.monotonic()
    for name in names:
        digest = hashlib.sha256()
        with open(os.path.join(directory, name), "rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                read += len(chunk)
                if time.monotonic() - reported_at > TELL_EVERY_S:
                    reported_at = time.monotonic()
                    print(json.dumps({"bytes": read}), flush=True)
        digests[name] = digest.hexdigest()
    return digests


def main():
    """Execute the request."""
    request = json.loads(sys.stdin.buffer.readline())
    root, path = request["root"], request.get("path")
    try:
        if request["verb"] == "look":
            answer = look(root, request["paths"])
        elif request["verb"] == "hash":
            answer = hashes(os.path.join(root, path), request["names"])
        else:
            answer = partial.publish(os.path.join(root, f"{path}.partial"), os.path.join(root, path))
    except OSError as error:
        sys.exit(f"{error.filename or root}: {error.strerror}")
    print(json.dumps(answer))


main()
