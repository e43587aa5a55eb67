"""Input and output: SSH, this machine, HTTP and Docker's API through a node's connection."""

import sys

# paramiko imports invoke for `Match exec` of ssh_config, which nothing here reads, and does without it where it is
# not installed. Its import takes as long as all of paramiko.
sys.modules.setdefault("invoke", None)  # type: ignore[arg-type]
