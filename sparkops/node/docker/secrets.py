"""Secrets of a build: passed to BuildKit from memory of the node, so that no disk and no build cache holds them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import replace

from sparkops.command import Command

FIRST = 5
"""File descriptor of the first secret. Shells redirect single digits only, so there is room for five."""


def options(names: Iterable[str]) -> tuple[str, ...]:
    """Return the options of `docker build` for secrets with these names, in the order that `hold` gets them."""
    return tuple(f"--secret=id={name},src=/proc/self/fd/{fd}" for fd, name in enumerate(names, FIRST))


def hold(command: Command, secrets: Mapping[str, bytes]) -> Command:
    """Return `command` run with each secret in an open file of /dev/shm, mode 0600, that has no name any more.

    The name is removed before the content is written, so the kernel frees the file when the program ends, however it
    ends. The secrets precede the command's stdin, a line of Base64 each: a shell reads a line from a pipe byte by byte.
    """
    if not secrets:
        return command
    script = "".join(f"{_receive(fd)} && " for fd in range(FIRST, FIRST + len(secrets)))
    lines = b"".join(base64.b64encode(content) + b"\n" for content in secrets.values())
    return replace(
        command, argv=("sh", "-c", f'{script}exec "$@"', "sparkops", *command.argv), stdin=lines + command.stdin
    )


def _receive(fd: int) -> str:
    return (
        f'file=$(mktemp /dev/shm/sparkops.XXXXXX) && exec {fd}<>"$file" && rm "$file"'
        f' && IFS= read -r line && printf %s "$line" | base64 -d >&{fd}'
    )
