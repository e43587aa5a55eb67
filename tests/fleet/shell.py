"""The one place that starts programs, and the one place that talks to the person who waits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

USAGE = re.compile(r"(See|Run) 'docker .*--help'")  # what Docker's client prints after the reason
SEARCH_PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


class FleetError(Exception):
    """One sentence: what is wrong, and what to do about it."""


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


@contextmanager
def step(text: str) -> Iterator[None]:
    """Say what was done and how long it took, once it is done."""
    start = time.monotonic()
    yield
    say(f"{text} ({seconds_since(start)} s)")


def seconds_since(start: float) -> int:
    return round(time.monotonic() - start)


def run(
    *argv: str,
    stdin: bytes = b"",
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Standard output of a program that must succeed."""
    try:
        completed = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            timeout=timeout,
            env=searchable(env),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FleetError(f"`{brief(argv)}` did not end within {timeout:.0f} s") from error
    except OSError as error:
        raise FleetError(f"`{brief(argv)}` cannot start: {error.strerror}") from error
    if completed.returncode:
        raise FleetError(f"`{brief(argv)}` failed: {last_line(completed.stderr or completed.stdout)}")
    return completed.stdout.decode(errors="replace").strip()


def succeeds(*argv: str, timeout: float | None = None) -> bool:
    try:
        run(*argv, timeout=timeout)
    except FleetError:
        return False
    return True


def pipe(source: tuple[str, ...], target: tuple[str, ...]) -> str:
    """What `target` prints when it reads what `source` writes; both must succeed."""
    with (
        subprocess.Popen(source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=searchable()) as sender,
        subprocess.Popen(
            target,
            stdin=sender.stdout,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=searchable(),
        ) as receiver,
    ):
        if sender.stdout:
            sender.stdout.close()  # so that the sender notices when the receiver dies
        out, problem = receiver.communicate()
        refused = sender.stderr.read() if sender.stderr else b""
    for process, argv, text in ((receiver, target, problem), (sender, source, refused)):
        if process.returncode:
            raise FleetError(f"`{brief(argv)}` failed: {last_line(text)}")
    return out.decode().strip()


def detach(argv: Iterable[str], log: Path) -> None:
    """Start a daemon that outlives this process and its terminal."""
    with log.open("ab") as sink:
        subprocess.run(
            ("setsid", "--fork", *argv),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd="/",
            env=searchable(),
            check=True,
        )


def docker(*argv: str, stdin: bytes = b"", timeout: float | None = None) -> str:
    return run(client(), *argv, stdin=stdin, timeout=timeout)


@lru_cache
def client() -> str:
    """The first Docker client on PATH that its engine understands."""
    for folder in SEARCH_PATH.split(":"):
        executable = Path(folder or ".") / "docker"
        if os.access(executable, os.X_OK) and succeeds(
            str(executable), "version", "--format", "{{.Server.Version}}", timeout=60
        ):
            return str(executable)
    raise FleetError("no Docker Engine answers; start one, or run this as root")


def searchable(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Daemons and their tools live in sbin, which an ordinary user's PATH leaves out."""
    return {**os.environ, **(env or {}), "PATH": SEARCH_PATH}


def brief(argv: tuple[str, ...]) -> str:
    words = " ".join((Path(argv[0]).name, *argv[1:])).split("\n", 1)[0]
    return words if len(words) < 100 else f"{words[:97]}..."


def last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode(errors="replace").splitlines()]
    reasons = [line for line in lines if line and not USAGE.match(line)]
    return reasons[-1] if reasons else "it gave no reason"
