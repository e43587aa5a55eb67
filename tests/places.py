"""Where the checkout and the recorded output of real programs are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CAPTURED = ROOT / "tests" / "captured"
