#!/usr/bin/env python3
"""`vllm`, as far as a deploy can tell: `vllm serve MODEL --port=8000 --served-model-name=NAME`."""

import sys

from stand_in.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
