"""What a call costs before its work begins: measured beside `import typer`, in turns."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab.measuring import BIN, ENVIRONMENT, measure, run

HELP_LIMIT, VERB_LIMIT, STATUS_LIMIT, RECIPES_LIMIT = 1.5, 2.0, 3.0, 8.0
"""Times that `--help`, `VERB --help`, `status` before its first byte to a node and `recipes` may take as long as
`import typer`."""
PATIENCE_S = 60.0
INVENTORY = "nodes:\n  n1: {{address: 127.0.0.1, port: {port}, user: ops}}\n"


def promises() -> dict[str, tuple[float, float]]:
    """Print what the calls take. Return the measured ratio and its limit by name."""
    with tempfile.TemporaryDirectory() as directory, socket.create_server(("127.0.0.1", 0)) as listener:
        inventory = Path(directory) / "inventory.yaml"
        inventory.write_text(INVENTORY.format(port=listener.getsockname()[1]))
        rows = measure(
            {
                "python -c pass": lambda: run([sys.executable, "-c", "pass"]),
                "import typer": lambda: run([sys.executable, "-c", "import typer"]),
                "sparkops --help": lambda: run([str(BIN / "sparkops"), "--help"]),
                "sparkops deploy --help": lambda: run([str(BIN / "sparkops"), "deploy", "--help"]),
                "sparkops recipes": lambda: run([str(BIN / "sparkops"), "recipes"]),
                "sparkops status, first byte to a node": lambda: first_byte(listener, inventory),
            }
        )
    for name, seconds in rows.items():
        print(f"{seconds * 1000:8.0f} ms  {name}")
    typer = rows["import typer"]
    return {
        "sparkops --help / import typer": (rows["sparkops --help"] / typer, HELP_LIMIT),
        "sparkops deploy --help / import typer": (rows["sparkops deploy --help"] / typer, VERB_LIMIT),
        "sparkops recipes / import typer": (rows["sparkops recipes"] / typer, RECIPES_LIMIT),
        "sparkops status, first byte / import typer": (
            rows["sparkops status, first byte to a node"] / typer,
            STATUS_LIMIT,
        ),
    }


def first_byte(listener: socket.socket, inventory: Path) -> float:
    """Return the seconds from the start of `sparkops status` to the first byte of its SSH version at the listener.

    Raises TimeoutError after PATIENCE_S, and RuntimeError if the connection ends without a byte.
    """
    listener.settimeout(PATIENCE_S)
    began = time.perf_counter()
    argv = [str(BIN / "sparkops"), "--inventory", str(inventory), "status"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT) as process:
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(PATIENCE_S)
                byte = connection.recv(1)
                took_s = time.perf_counter() - began
        finally:
            process.kill()
    if not byte:
        raise RuntimeError("sparkops status: the connection ended: measured 0 bytes, expected an SSH version")
    return took_s


if __name__ == "__main__":
    print(*promises().items(), sep="\n")
