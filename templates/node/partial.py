"""A directory that is not whole yet: NAME.partial. It gets its name only after it was looked at."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys

NOTE = ".sparkops-partial"


def claim(directory, identity):
    """Make the directory or go on with it, alone. Returns a handle that holds it for as long as it is open.

    `identity` says what is being put there. A directory that was begun with something else is emptied: to go on with
    it would mix two checkpoints, and no header would tell.
    """
    os.makedirs(directory, exist_ok=True)
    handle = hold(directory)
    if noted(directory) != identity:
        empty(directory)
        with open(os.path.join(directory, NOTE), "w", encoding="utf-8") as file:
            file.write(identity)
    return handle


def hold(directory):
    """An open handle with which nobody else may write there."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another run is writing to {directory} at this moment")
    return handle


def noted(directory):
    """The identity of what was begun there, if any."""
    try:
        with open(os.path.join(directory, NOTE), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def empty(directory):
    """Remove all that is in it."""
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def keep(old, new):
    """Let a file of `old` be in the directory of `new` as well, without its bytes being written again."""
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
    """Give a whole directory its name. What had the name goes; an engine that reads it keeps its open files."""
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
    """Remove it, if it is there; a link goes, and not what it leads to."""
    if os.path.islink(directory):
        os.unlink(directory)
    elif os.path.exists(directory):
        shutil.rmtree(directory)
