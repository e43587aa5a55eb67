"""`monitoring`: what it writes, names and refuses."""

from __future__ import annotations

from pathlib import Path

from sparkops.operator.status.monitoring import files
from tests.operator.cli.conftest import Sparkops
from tests.operator.status.monitoring.conftest import fleet_of


def test_the_verb_writes_the_files_and_names_the_next_step(sparkops: Sparkops, tmp_path: Path) -> None:
    fleet_of(tmp_path)

    ran = sparkops("monitoring", "-o", "out")

    assert ran.code == 0
    assert {file.name for file in (tmp_path / "out").iterdir()} == set(files(fleet_of(tmp_path)))
    assert "prometheus --config.file=out/prometheus.yml" in ran.err


def test_the_verb_names_what_is_missing_in_the_inventory(sparkops: Sparkops, tmp_path: Path) -> None:
    fleet_of(tmp_path, guards=None)

    assert "no `monitoring` in the inventory" in sparkops("monitoring", "-o", "out").err


def test_a_key_that_cannot_be_read_is_refused_before_anything_is_written(sparkops: Sparkops, tmp_path: Path) -> None:
    fleet_of(tmp_path)
    (tmp_path / "monitoring.key").unlink()

    ran = sparkops("monitoring", "-o", "out")

    assert ran.code == 2
    assert "inventory.yaml:5: monitoring.key: " in ran.err
    assert not (tmp_path / "out").exists()
