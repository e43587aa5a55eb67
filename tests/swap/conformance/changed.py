"""A trace in the simulator with one module of the machine from another file.

`python -m tests.swap.conformance.changed MODULE FILE TRACE` prints what was observed as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.swap.simulation.changed import replace


def main(module: str, file: str, name: str) -> None:
    """Play a trace by its name."""
    replace(module, file)
    from tests.swap.conformance import play, traces  # noqa: PLC0415 - they import the machine, which is replaced first

    trace = next(trace for trace in (*traces.TRACES, *traces.MORE) if trace.name == name)
    json.dump(asdict(play.Play.of(trace).run().observed), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
