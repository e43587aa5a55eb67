"""Transfer bytes from one node to others: the program of both ends. Standard library only: this runs on nodes.

The sending end sends files or the output of a program. The receiving end writes them into a directory or feeds them to
a program. They connect in one of two ways. Directly: the receiving end listens on an address of its node, and the
sending end connects to it; several may receive the same content, which is read once. Or through the client: the sending
end writes to its stdout, and the receiving end reads its stdin.

Both ends have a key for this transfer only, which they receive over SSH; it is in no argument, environment or file.
Each end proves that it has the key before any content is sent, so a stranger who finds the port can neither send nor
receive content. Every piece of at most 4 MiB has an HMAC-SHA256 over its number and its bytes: changed, lost, repeated
or reordered bytes end the transfer before they are written. A program at the receiving end gets the end of its input
only when all content has arrived. The content is not encrypted: it can be read from the fabric's traffic.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

import partial
from handshake import connect_all, listen, report
from pieces import CHUNK, DATA, END, ERROR, FILE, Broken, Failed, Wire, key_for

FAILED, BROKEN, INTERRUPTED = 1, 3, 130
"""Exit codes: an error of this end; the connection to the other end lost; interrupted. handshake.py has one more."""
TELL_EVERY_S = 0.5
STARTED = []
"""The programs that this end has started."""


# --- sending


def send(request, token):
    """Send the requested content. An error of this end is sent to the other ends as well."""
    if request["to"] is None:
        wire = Wire(sys.stdout.buffer, key_for(token, b"pieces"))
    else:
        watch_stdin()
        others = [(bytes.fromhex(other), places) for other, places in request["also"]]
        wire = connect_all([(token, request["to"]), *others])
    try:
        (send_files if "files" in request else send_output)(request, wire)
        wire.put(END)
        wire.close()
    except (Failed, OSError) as error:
        wire.put(ERROR, words(error).encode()[:1000])
        wire.close()
        raise Failed(words(error)) from None


def send_files(request, wire):
    for name, size, offset in request["files"]:
        wire.put(FILE, json.dumps(name).encode())
        with open(os.path.join(request["directory"], name), "rb") as file:
            file.seek(offset)
            remaining = size - offset
            while remaining:
                piece = file.read(min(CHUNK, remaining))
                if not piece:
                    raise Failed(f"{name} changed while it was sent")
                wire.put(DATA, piece)
                remaining -= len(piece)


def send_output(request, wire):
    """Send the output of a program. It is complete only if the program exits with 0."""
    with tempfile.TemporaryFile() as log:
        program = start(request["argv"], log, stdout=subprocess.PIPE)
        try:
            while piece := program.stdout.read(CHUNK):
                wire.put(DATA, piece)
        except Broken:
            kill(program)
            raise
        ended_well(program, request["called"], log)


def start(argv, log, **pipes):
    try:
        program = subprocess.Popen(argv, stderr=log, start_new_session=True, **pipes)
    except OSError as error:
        raise Failed(f"{argv[0]} cannot be started: {error.strerror}") from None
    STARTED.append(program)
    return program


def kill(program):
    """Kill a program and its children, before it takes the end of its input for the end of the content."""
    try:
        os.killpg(program.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # it has ended


def ended_well(program, called, log):
    if code := program.wait():
        log.seek(0)
        last = log.read().decode(errors="replace").strip().splitlines()[-3:]
        raise Failed(f"{called} ended with code {code}: {' '.join(last)}")


# --- receiving


def receive(request, token):
    """Receive the content, and report the bytes so far."""
    if request["listen"] is None:
        file, key = sys.stdin.buffer, key_for(token, b"pieces")
    else:
        watch_stdin()
        file, key = listen(request["listen"], token)
    took = (receive_files if "files" in request else receive_input)(request, Wire(file, key))
    report(bytes=took)


def receive_files(request, wire):
    """Write files into a partial directory. Verified pieces are kept for the next try."""
    directory = request["directory"]
    handle = partial.claim(directory, request["identity"])
    for name in request["keep"]:
        partial.keep(os.path.join(request["beside"], name), os.path.join(directory, name))
    coming = Coming(wire)
    for name, size, offset, changed_ns in request["files"]:
        if coming.announced() != name:
            raise Broken(f"the sending end did not send the requested file: {name}")
        path = os.path.join(directory, name)
        with opened(path, offset) as file:
            for piece in coming.pieces(size - offset):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.utime(path, ns=(changed_ns, changed_ns))
    coming.end()
    os.close(handle)
    return coming.bytes


def opened(path, offset):
    """Open a file to resume at `offset`. A linked file is never written to."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not offset:
        if os.path.lexists(path):
            os.unlink(path)
        return open(path, "xb")
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size < offset:
        raise Failed(f"{path} has changed since it was listed: retry")
    try:
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b")
    except OSError as error:  # a symbolic link, planted since lstat
        raise Failed(f"{path} has changed since it was listed: {error.strerror}") from None
    file.truncate(offset)
    file.seek(offset)
    return file


def receive_input(request, wire):
    """Feed a program. It gets the end of its input only if all content has arrived."""
    coming = Coming(wire)
    with tempfile.TemporaryFile() as log:
        program = start(request["argv"], log, stdin=subprocess.PIPE, stdout=log, bufsize=0)
        try:
            for piece in coming.pieces(None):
                give(program, piece, request["called"], log)
        except (Broken, Failed):
            kill(program)
            raise
        program.stdin.close()
        ended_well(program, request["called"], log)
    return coming.bytes


def give(program, piece, called, log):
    """Feed one piece. A program that exits with 0 before the end of its input needs no more."""
    try:
        program.stdin.write(piece)
    except BrokenPipeError:
        ended_well(program, called, log)


class Coming:
    """The received pieces, counted."""

    def __init__(self, wire):
        self.wire, self.bytes, self.reported_at = wire, 0, time.monotonic()

    def next(self):
        kind, body = self.wire.get()
        if kind == ERROR:
            raise Failed(f"the sending end failed: {body.decode(errors='replace')}")
        return kind, body

    def announced(self):
        kind, body = self.next()
        return json.loads(body) if kind == FILE else None

    def pieces(self, remaining):
        """Yield `remaining` bytes in pieces, or all up to the end for None."""
        while remaining is None or remaining > 0:
            kind, body = self.next()
            if kind == END and remaining is None:
                report(bytes=self.bytes, all=True)
                return
            if kind != DATA or (remaining is not None and len(body) > remaining):
                raise Broken("the sending end did not send the requested bytes")
            yield body
            remaining = None if remaining is None else remaining - len(body)
            self.bytes += len(body)
            if time.monotonic() - self.reported_at > TELL_EVERY_S:
                self.reported_at = time.monotonic()
                report(bytes=self.bytes)

    def end(self):
        if self.next()[0] != END:
            raise Broken("the sending end sent more than the requested files")


# --- both


def words(error):
    """Return the message of an error."""
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    return str(error)


def watch_stdin():
    """Exit at the end of stdin, which the caller keeps open, so that nothing keeps running or listening."""

    def wait():
        while os.read(0, 4096):
            pass
        leave(BROKEN)

    threading.Thread(target=wait, daemon=True).start()


def leave(code):
    """Exit at once, and kill every program."""
    for program in STARTED:
        kill(program)
    os._exit(code)


def main():
    """Execute the request in the second line of stdin. The last line of stderr is the error."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    request = json.loads(sys.stdin.buffer.readline())
    token = bytes.fromhex(request["token"])
    try:
        (send if request["role"] == "send" else receive)(request, token)
    except Failed as error:
        print(error, file=sys.stderr)
        sys.exit(FAILED)
    except OSError as error:
        print(words(error), file=sys.stderr)
        sys.exit(FAILED)
    except Broken as error:
        print(error, file=sys.stderr)
        sys.exit(BROKEN)
    except KeyboardInterrupt:
        leave(INTERRUPTED)


main()
