"""The fleet's command line: up and down."""

from __future__ import annotations

import argparse
import os
import sys
import time

from .fleet import Fleet
from .shell import FleetError, say, seconds_since


def main() -> int:
    options = parse()
    try:
        if options.verb == "up":
            up(options.nodes)
        else:
            Fleet(0).down()
            say("the fleet is gone; its images stay, so the next `up` is quick")
    except FleetError as error:
        say(f"fleet: {error}")
        return 1
    except KeyboardInterrupt:
        say("fleet: interrupted; `up` goes on from here, `down` removes what is there")
        return 130
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("up", help="bring nodes up, or complete the fleet that is there")
    start.add_argument("--nodes", type=count, default=2, help="how many (1 to 64, default 2)")
    verbs.add_parser("down", help="remove nodes, volumes, network and .fleet")
    return parser.parse_args()


def count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 64, got {text!r}")
    return int(text)


def up(nodes: int) -> None:
    start = time.monotonic()
    fleet = Fleet.up(nodes)
    for node in fleet.nodes:
        say(f"{node.name}  {node.address}")
    say(f"{nodes} {'node is' if nodes == 1 else 'nodes are'} up after {seconds_since(start)} s")
    say(f"next: sparkops --inventory {os.path.relpath(fleet.inventory)} status")


if __name__ == "__main__":
    sys.exit(main())
