"""`sparkops lint` of a hundred Dockerfiles, measured beside `import typer`, in turns."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.measuring import BIN, measure, run

ROOT = Path(__file__).parents[1]
MANY = 100
LIMIT = 30.0
"""Times that a hundred different Dockerfiles may take as long as `import typer`."""


def promises() -> dict[str, tuple[float, float]]:
    """Print what the calls take. Return the measured ratio and its limit by name."""
    name = f"sparkops lint, {MANY} Dockerfiles"
    longest = max((file.read_text() for file in (ROOT / "Dockerfiles").iterdir()), key=len)
    with tempfile.TemporaryDirectory() as directory:
        for number in range(MANY):
            (Path(directory) / f"{number}.Dockerfile").write_text(f"{longest}# {number}\n")
        rows = measure(
            {
                "import typer": lambda: run([sys.executable, "-c", "import typer"]),
                name: lambda: run([str(BIN / "sparkops"), "lint", directory]),
            }
        )
    print(f"{rows[name] * 1000:8.0f} ms  {name}")
    return {f"{name} / import typer": (rows[name] / rows["import typer"], LIMIT)}
