"""By hand: python -m tests.operator.demo.traffic URL MODEL [--seconds 10] [--rate 200] [--streams 20]."""

from __future__ import annotations

import argparse
import time

from sparkops.operator.demo.traffic.generator import Traffic


def main() -> None:
    """Make the load, then print its report."""
    parser = argparse.ArgumentParser(prog="python -m tests.operator.demo.traffic")
    parser.add_argument("base_url")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--fresh", type=float, default=0.5)
    load = Traffic(**vars(parser.parse_args()))
    with load:
        while load.running:
            time.sleep(0.1)
    print(load.report())


if __name__ == "__main__":
    main()
