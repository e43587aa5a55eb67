"""Partial directories: NAME.partial is renamed to NAME after a check."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys

NOTE = ".sparkops-partial"


def claim(directory, identity):
    """Create a partial directory or resume it. Returns a handle with an exclusive lock.

    `identity` names the content. A directory with another identity is emptied: resuming it would mix two checkpoints,
    which no header reveals.
    """
    os.makedirs(directory, exist_ok=True)
    handle = hold(directory)
    if noted(directory) != identity:
        empty(directory)
        with open(os.path.join(directory, NOTE), "w", encoding="utf-8") as file:
            file.write(identity)
    return handle


def hold(directory):
    """Return a handle with an exclusive lock. Exits if another program has it."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another run is writing to {directory}: retry when it has ended")
    return handle


def noted(directory):
    """Return the identity of a partial directory, if any."""
    try:
        with open(os.path.join(directory, NOTE), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def empty(directory):
    """Remove all entries."""
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def keep(old, new):
    """Link `old` as `new`; copy it where links are impossible."""
    if os.path.lexists(new):
        return
    os.makedirs(os.path.dirname(new), exist_ok=True)
    if os.path.islink(old):
        os.symlink(os.path.realpath(old), new)
        return
    try:
        os.link(old, new)
    except OSError:  # another file system, or one without links
        shutil.copy2(old, new)


def publish(directory, final):
    """Rename a complete directory to `final`. A former one is removed; an engine that reads it keeps its open files."""
    replaced = f"{final}.replaced"
    handle = hold(directory)
    if os.path.lexists(final):
        discard(replaced)
        os.rename(final, replaced)
    note = os.path.join(directory, NOTE)
    if os.path.exists(note):
        os.unlink(note)
    os.rename(directory, final)
    os.close(handle)
    above = os.open(os.path.dirname(final), os.O_RDONLY)
    os.fsync(above)
    os.close(above)
    discard(replaced)


def discard(directory):
    """Remove a directory, or a link without its target."""
    if os.path.islink(directory):
        os.unlink(directory)
    elif os.path.exists(directory):
        shutil.rmtree(directory)
