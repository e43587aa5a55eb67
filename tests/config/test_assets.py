"""What a build takes from files of this machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from sparkops.config import assets, inventory, recipe_file, shipped
from sparkops.config.assets import BuildInputs, WheelFile
from sparkops.errors import ConfigError

PEM = b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(build: str) -> BuildInputs:
    Path("inventory.yaml").write_text(f"nodes: {{a: {{address: h}}}}\nbuild:\n  {build}\n")
    return assets.load_inputs(inventory.load(Path("inventory.yaml")))


def test_an_inventory_adds_nothing_by_itself() -> None:
    assert load("package_index: null") == BuildInputs()


def test_wheels_are_known_by_hash_and_size(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    for name in ("b.whl", "a.whl", "notes.txt"):
        (tmp_path / "wheels" / name).write_bytes(name.encode())

    wheels = load("wheels: wheels").wheels

    assert wheels == tuple(
        WheelFile(name, tmp_path / "wheels" / name, hashlib.sha256(name.encode()).hexdigest(), 5)
        for name in ("a.whl", "b.whl")
    )


def test_wheels_that_no_build_mounts_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels/a.whl").symlink_to("not-there")
    Path("inventory.yaml").write_text("nodes: {a: {address: h}}\nbuild:\n  wheels: wheels\n")
    fleet = inventory.load(Path("inventory.yaml"))

    with pytest.raises(FileNotFoundError):
        assets.load_inputs(fleet)
    assert assets.load_inputs(fleet, wheels=False).wheels == ()


def test_certificates_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.crt", "a.crt"):
        (tmp_path / name).write_bytes(PEM + name.encode())

    certificates = load("ca_certificates: [b.crt, a.crt]").ca_certificates

    assert certificates == (("a.crt", PEM + b"a.crt"), ("b.crt", PEM + b"b.crt"))


@pytest.mark.parametrize(
    ("build", "error"),
    [
        ("wheels: nowhere", "build.wheels: {here}/nowhere is not a directory"),
        ("wheels: empty", "build.wheels: {here}/empty has no .whl file"),
        (
            "ca_certificates: [ca.pem]",
            "build.ca_certificates[0]: expected a unique file name that ends in .crt, got 'ca.pem'",
        ),
        (
            "ca_certificates: [ca.crt, sub/ca.crt]",
            "build.ca_certificates[1]: expected a unique file name that ends in .crt, got 'ca.crt'",
        ),
        (
            "ca_certificates: [no.crt]",
            "build.ca_certificates[0]: {here}/no.crt cannot be read: No such file or directory",
        ),
        ("ca_certificates: [der.crt]", "build.ca_certificates[0]: {here}/der.crt has no PEM certificate"),
    ],
)
def test_a_file_that_cannot_be_used_is_a_mistake_of_the_inventory(tmp_path: Path, build: str, error: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "ca.crt").write_bytes(PEM)
    (tmp_path / "der.crt").write_bytes(b"\x30\x82")

    with pytest.raises(ConfigError) as caught:
        load(build)

    assert str(caught.value) == "inventory.yaml:3: " + error.format(here=tmp_path)


@pytest.mark.parametrize("file", shipped.recipes().values(), ids=lambda file: file.stem)
def test_a_shipped_recipe_names_a_template_and_mods_that_are_shipped(file: Path) -> None:
    image = recipe_file.load(file).image

    assert f"{image.template}.Dockerfile.j2" in assets.load_templates()
    assert {f"{mod}.py" for mod in image.mods} - set(assets.load_mods()) == set()


def test_the_gate_is_a_python_program() -> None:
    compile(assets.load_gate(), "gate.py", "exec")
