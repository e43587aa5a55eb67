"""Run scenarios and explorations with one module of the machine replaced; bite.py calls it for every change.

`python -m tests.simulation.changed MODULE FILE` exits with 1 and the broken law where the change is found.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SCENARIOS = ("test_reproductions.py", "test_rules.py", "test_plan.py")


def replace(module: str, file: str) -> None:
    """Import a module of the machine from another file, before anything else imports it."""
    spec = spec_from_file_location(module, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file}: not a Python module")
    sys.modules[module] = loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)


def main(module: str, file: str) -> int:
    """Scenarios first: they take seconds."""
    replace(module, file)
    quiet = ("-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "not at_any_point")
    if code := pytest.main([*quiet, *(str(HERE / name) for name in SCENARIOS)]):
        print(f"a scenario fails ({code})", file=sys.stderr)
        return 1
    from tests.simulation import levels  # imports the machine, so not before it is replaced

    levels.main(levels.LEVELS)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
