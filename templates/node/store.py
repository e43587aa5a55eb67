"""The model directory of a node: look at it, hash files, give a whole directory its name. Runs on the node.

The second line of stdin says what to do, as JSON; the last line of stdout is the answer.
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
    """The directories `paths` under root, or all that hold a model."""
    there = os.path.isdir(root)
    if paths is None:
        paths = list(models(root)) if there else []
    found = [{"path": path, **examined(root, path)} for path in paths if inside(root, path)]
    return {"root": told(root, there), "models": found}


def inside(root, path):
    """Whether there is a directory of that name."""
    return os.path.isdir(os.path.join(root, path))


def told(root, there):
    """The directory itself: whether it can be used, by whom, and what it has room for."""
    usage = shutil.disk_usage(root) if there else None
    return {
        "there": there,
        "writable": there and os.access(root, os.W_OK | os.X_OK),
        "free": usage.free if usage else 0,
        "user": [os.getuid(), os.getgid()],
    }


def examined(root, path):
    """Return the content of one directory, what was begun in it, and what other users cannot read of it."""
    directory = os.path.join(root, path)
    found = checkpoint.examine(directory)
    return {**found, "identity": partial.noted(directory), "closed": closed(root, path, found["files"])}


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
    """Every directory that holds a model, or a part of one, by its path under root."""
    for place, directories, names in os.walk(root, followlinks=True):
        path = os.path.relpath(place, root)
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        if path != "." and is_model(path, names):
            directories.clear()
            yield path
        elif path.count(os.sep) + 1 >= DEEPEST:
            directories.clear()


def is_model(path, names):
    """Whether a directory of that name, with files of these names, is one."""
    unfinished = path.endswith((".partial", ".replaced"))
    return unfinished or any(name == "config.json" or name.endswith(checkpoint.SHARD) for name in names)


def hashes(directory, names):
    """The sha256 of files, each by its name. Tells how many bytes it has read."""
    found, read, told_at = {}, 0, time.monotonic()
    for name in names:
        digest = hashlib.sha256()
        with open(os.path.join(directory, name), "rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                read += len(chunk)
                if time.monotonic() - told_at > TELL_EVERY_S:
                    told_at = time.monotonic()
                    print(json.dumps({"bytes": read}), flush=True)
        found[name] = digest.hexdigest()
    return found


def main():
    """Do what is asked."""
    asked = json.loads(sys.stdin.buffer.readline())
    root, path = asked["root"], asked.get("path")
    try:
        if asked["verb"] == "look":
            answer = look(root, asked["paths"])
        elif asked["verb"] == "hash":
            answer = hashes(os.path.join(root, path), asked["names"])
        else:
            answer = partial.publish(os.path.join(root, f"{path}.partial"), os.path.join(root, path))
    except OSError as error:
        sys.exit(f"{error.filename or root}: {error.strerror}")
    print(json.dumps(answer))


main()
