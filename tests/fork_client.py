"""A process that stands for one of the fork server: `python -IS tests/fork_client.py SOCKET ARGUMENT...`.

It passes on its arguments, environment, directory, standard streams and signals, and ends as that process does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def main() -> int:
    """Return the exit code, negative: the signal that ended the process."""
    address, *arguments = sys.argv[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(address)
        message = {"arguments": arguments, "environment": dict(os.environ), "directory": os.getcwd()}  # noqa: PTH109 - imports least
        socket.send_fds(server, [json.dumps(message).encode()], [0, 1, 2])
        for number in PASSED_ON:
            signal.signal(number, lambda number, _: server.send(str(int(number)).encode()))
        return int(server.recv(16) or 1)


if __name__ == "__main__":
    code = main()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
