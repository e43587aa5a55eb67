"""`docker ps` on several nodes at once with paramiko alone: what `sparkops status` is measured beside.

`python -m tests.lab.plain_paramiko KEY ADDRESS...`
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import paramiko


def listed(address: str) -> bytes:
    """Return what `docker ps` prints on a node."""
    with paramiko.SSHClient() as client:
        client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
        key = paramiko.PKey.from_path(sys.argv[1])
        client.connect(address, username="ops", pkey=key, allow_agent=False, look_for_keys=False)
        return client.exec_command("docker ps")[1].read()


if __name__ == "__main__":
    with ThreadPoolExecutor(16) as pool:
        for text in pool.map(listed, sys.argv[2:]):
            sys.stdout.write(text.decode())
