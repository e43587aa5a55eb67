"""`make soak`: one real start of 12 min 30 s, silent for 6 min of it, with the default settings of a swap."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fleet.fleet import Fleet as RealFleet
from tests.real.service import Service, with_gateway

START_S, SILENT_S = 750.0, 360.0


def main() -> int:
    """Deploy a stand-in that starts as slowly as a 122B model does. Returns 1 if the deploy did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", type=float, default=START_S, help="seconds of the whole start")
    parser.add_argument("--silent", type=float, default=SILENT_S, help="seconds of it without a line in the log")
    options = parser.parse_args()
    nodes = RealFleet.up(2)
    with tempfile.TemporaryDirectory(prefix="sparkops-soak-") as home:
        cli = with_gateway(nodes, Path(home))
        service = Service(cli, nodes, name="soak", port=9300, settings={"service": "soak", "serve.port": "9300"})
        knobs = {"START_S": f"{options.start:g}", "SILENT_S": f"{options.silent:g}"}
        try:
            with cli.start(*service.argv("--node", "node-2", **knobs)) as process:
                for line in process.stderr or ():
                    print(line, end="", flush=True)
                print(process.stdout.read() if process.stdout else "")
                return process.wait()
        finally:
            service.sweep()


if __name__ == "__main__":
    sys.exit(main())
