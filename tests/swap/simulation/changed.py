"""Import the machine with one of its modules replaced."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location


def replace(module: str, file: str) -> None:
    """Import a module of the machine from another file, before anything else imports it."""
    spec = spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file}: not a Python module")
    sys.modules[module] = loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
