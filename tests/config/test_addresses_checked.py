"""Which inventories are known to be right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkops.config import addresses
from sparkops.errors import ConfigError
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.status_output import places

NODES = "nodes:\n  n1: {address: 10.0.0.1}\n"
PROGRAM = """import sys
from pathlib import Path
from sparkops.operator.cli.options import Settings
from sparkops.operator.cli.status_output import places
print(places(Settings(Path(sys.argv[1]), False))[0], "sparkops.config.inventory" in sys.modules)"""


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "inventory.yaml").write_text(NODES)
    return tmp_path / "inventory.yaml"


def printed(inventory: Path) -> str:
    argv = [sys.executable, "-c", PROGRAM, str(inventory)]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_the_second_status_of_an_inventory_checks_it_no_more(inventory: Path) -> None:
    assert printed(inventory) == "['n1'] True"
    assert printed(inventory) == "['n1'] False"


def test_a_changed_inventory_is_checked_again(inventory: Path) -> None:
    places(Settings(inventory, verbose=False))
    inventory.write_text(NODES.replace("address:", "color: red, address:"))

    for _ in range(2):
        with pytest.raises(ConfigError, match="color"):
            places(Settings(inventory, verbose=False))


def test_the_last_inventories_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(addresses.MAX_DIGESTS + 1):
        addresses.note_checked(str(number).encode())

    assert (addresses.is_checked(b"0"), addresses.is_checked(b"1"), addresses.is_checked(b"64")) == (
        False,
        True,
        True,
    )


def test_a_home_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))

    addresses.note_checked(b"text")

    assert not addresses.is_checked(b"text")
