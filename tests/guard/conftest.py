"""Fleets without hardware, for the guard too."""

from __future__ import annotations

from tests.fleet_unit.conftest import make

__all__ = ["make"]
