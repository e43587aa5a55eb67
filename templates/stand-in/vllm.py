#!/usr/bin/env python3
"""The command `vllm` of the stand-in: `vllm serve MODEL --port=8000 --served-model-name=NAME`."""

import sys

from stand_in.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
