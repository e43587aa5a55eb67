"""Known causes in Docker's errors, with the next step. Those of an engine's log are in `engines/`."""

from __future__ import annotations

from sparkops.engines.start_log import Advice, Cause, first_cause, known_cause

DOCKER: tuple[Cause, ...] = (
    known_cause(
        r'could not select device driver "cdi"',
        "CDI is disabled in the node's Docker (enabled by default from 28.2 on)",
        'Set {{"features": {{"cdi": true}}}} in /etc/docker/daemon.json on the node, and restart Docker; '
        "or set `gpu: runtime` in the inventory.",
    ),
    known_cause(
        r"could not select device driver",
        "the node's Docker lacks the NVIDIA Container Toolkit, which `gpu: runtime` (--gpus) needs",
        "On the node: sudo apt-get install nvidia-container-toolkit; sudo nvidia-ctk runtime configure "
        "--runtime=docker; sudo systemctl restart docker\nWithout the toolkit: set `gpu: devices` in the inventory.",
    ),
    known_cause(
        r"unresolvable CDI devices (\S{1,256})",
        "the node has no CDI specification of the devices",
        "On the node: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; nvidia-ctk cdi list must then "
        "show {}\nOr set `gpu: runtime` or `gpu: devices` in the inventory.",
    ),
)


def of_docker(output: str) -> Advice | None:
    """Return the known cause in the output of a docker command; None if unknown."""
    return first_cause(DOCKER, output)
