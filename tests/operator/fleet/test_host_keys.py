"""Pinned host keys, with real keys and real files."""

from __future__ import annotations

from pathlib import Path

import paramiko
import pytest

from sparkops.errors import ConfigError
from sparkops.operator.fleet.host_keys import Pins, fingerprint_of, rename


def line(key: paramiko.PKey, *names: str) -> str:
    return f"{','.join(names)} {key.get_name()} {key.get_base64()}\n"


@pytest.fixture(scope="module")
def keys() -> tuple[paramiko.PKey, paramiko.PKey]:
    return paramiko.ECDSAKey.generate(), paramiko.ECDSAKey.generate()


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """~/.ssh/known_hosts of a user who has none yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path / ".ssh/known_hosts"


@pytest.fixture
def pins(tmp_path: Path, user_file: Path) -> Pins:
    assert not user_file.exists()
    return Pins("n1", "10.0.0.1", 22, tmp_path / "fleet/known_hosts")


def test_what_nobody_pinned_is_unknown(pins: Pins, keys: tuple[paramiko.PKey, ...]) -> None:
    assert (pins.known(), pins.has(keys[0])) == (False, False)


def test_only_the_very_key_that_is_pinned_is_accepted(pins: Pins, keys: tuple[paramiko.PKey, ...]) -> None:
    pins.write(keys[0])

    assert (pins.known(), pins.has(keys[0]), pins.has(keys[1])) == (True, True, False)


@pytest.mark.parametrize(
    ("address", "port", "name"),
    [("10.0.0.1", 22, "10.0.0.1"), ("10.0.0.1", 2222, "[10.0.0.1]:2222"), ("spark.lan", 22, "other,spark.lan")],
)
def test_a_key_that_the_user_accepted_before_is_accepted(
    tmp_path: Path, user_file: Path, keys: tuple[paramiko.PKey, ...], address: str, port: int, name: str
) -> None:
    user_file.write_text(line(keys[0], name))

    assert Pins("n1", address, port, tmp_path / "none").has(keys[0])


@pytest.mark.parametrize("port", [22, 2222])
def test_a_hashed_name_in_the_user_s_file_is_found(
    tmp_path: Path, user_file: Path, keys: tuple[paramiko.PKey, ...], port: int
) -> None:
    name = "10.0.0.1" if port == 22 else "[10.0.0.1]:2222"
    user_file.write_text(line(keys[0], paramiko.HostKeys.hash_host(name)))

    assert Pins("n1", "10.0.0.1", port, tmp_path / "none").has(keys[0])
    assert not Pins("n2", "10.0.0.2", port, tmp_path / "none").known()


def test_a_key_for_another_port_is_unknown(tmp_path: Path, user_file: Path, keys: tuple[paramiko.PKey, ...]) -> None:
    user_file.write_text(line(keys[0], "10.0.0.1"))

    assert Pins("n1", "10.0.0.1", 2222, tmp_path / "none").known() is False


def test_the_pinned_key_goes_before_the_user_s(pins: Pins, user_file: Path, keys: tuple[paramiko.PKey, ...]) -> None:
    user_file.write_text(line(keys[1], "10.0.0.1"))
    pins.write(keys[0])

    assert (pins.has(keys[0]), pins.has(keys[1])) == (True, False)


def test_a_node_may_have_keys_of_several_types(pins: Pins, keys: tuple[paramiko.PKey, ...]) -> None:
    other = paramiko.ECDSAKey.generate(bits=384)
    pins.file.parent.mkdir()
    pins.file.write_text(line(keys[0], "n1") + line(other, "n1"))

    assert (pins.has(keys[0]), pins.has(other), pins.has(keys[1])) == (True, True, False)


def test_writing_replaces_the_node_s_keys_and_keeps_all_else(pins: Pins, keys: tuple[paramiko.PKey, ...]) -> None:
    pins.file.parent.mkdir()
    shared = line(keys[0], "n1", "n2", "n3")
    pins.file.write_text("# ours are these\n" + line(keys[0], "n1") + line(keys[0], "n10") + shared)

    pins.write(keys[1])

    kept = line(keys[0], "n10") + line(keys[0], "n2", "n3")
    assert pins.file.read_text() == "# ours are these\n" + kept + line(keys[1], "n1")


def test_the_file_is_replaced_as_a_whole(pins: Pins, keys: tuple[paramiko.PKey, ...]) -> None:
    """Who reads it meanwhile goes on with the old file: it is never cut short, and no other file is left."""
    pins.write(keys[0])
    before = pins.file.read_text()
    with pins.file.open() as reader:
        pins.write(keys[1])

        assert reader.read() == before
    assert [file.name for file in pins.file.parent.iterdir()] == ["known_hosts"]


def test_a_line_that_is_no_key_is_named(pins: Pins, keys: tuple[paramiko.PKey, ...]) -> None:
    pins.file.parent.mkdir()
    pins.file.write_text("# ours are these\n" + line(keys[0], "n2") + "n1 ssh-ed25519 AAAAx\n")

    with pytest.raises(ConfigError) as caught:
        pins.known()

    assert str(caught.value) == f"{pins.file}:3: expected a host key as in OpenSSH's known_hosts"


@pytest.mark.parametrize("names", ["10.0.0.1", "*", "another.lan", "10.0.0.1,n1"])
def test_a_revoked_key_is_refused_although_a_line_accepts_it(
    user_file: Path, pins: Pins, keys: tuple[paramiko.PKey, ...], names: str
) -> None:
    pins.write(keys[0])
    user_file.write_text(line(keys[0], "10.0.0.1") + "@revoked " + line(keys[0], names))

    assert (pins.known(), pins.has(keys[0]), pins.is_revoked(keys[0])) == (False, False, True)
    assert str(pins.refusal(keys[0])) == (
        f"n1: host key refused: {keys[0].get_name()} {fingerprint_of(keys[0])} is marked @revoked"
    )


def test_a_revoked_key_hides_no_good_one(pins: Pins, keys: tuple[paramiko.PKey, ...]) -> None:
    pins.file.parent.mkdir()
    pins.file.write_text("@revoked\t" + line(keys[1], "n1") + line(keys[0], "n1") + line(keys[1], "n1"))

    assert (pins.has(keys[0]), pins.has(keys[1])) == (True, False)


def test_a_revocation_outlives_a_new_pin(pins: Pins, keys: tuple[paramiko.PKey, ...]) -> None:
    pins.file.parent.mkdir()
    pins.file.write_text("@revoked " + line(keys[0], "n1"))

    pins.write(keys[1])

    assert pins.file.read_text() == "@revoked " + line(keys[0], "n1") + line(keys[1], "n1")


def test_a_revoked_line_that_holds_no_key_is_named(pins: Pins) -> None:
    pins.file.parent.mkdir()
    pins.file.write_text("@cert-authority * ssh-ed25519 AAAA\n@revoked n1 ssh-ed25519 AAAAx\n")

    with pytest.raises(ConfigError) as caught:
        pins.known()

    assert str(caught.value) == f"{pins.file}:2: expected a host key as in OpenSSH's known_hosts"


def test_a_fingerprint_is_what_ssh_keygen_prints() -> None:
    key = paramiko.Ed25519Key(data=bytes.fromhex("0000000b7373682d6564323535313900000020") + bytes(range(32)))

    assert fingerprint_of(key) == "SHA256:ZkAslGjFiUHdGf/WUL8rQvkib4PTvQatUV0OUQSncCA"


def test_the_pins_of_nodes_that_are_renamed_stay(tmp_path: Path, keys: tuple[paramiko.PKey, ...]) -> None:
    """Two nodes that the fleet calls by the names of each other."""
    file = tmp_path / "known_hosts"
    for name, key in zip(("n1", "n2"), keys, strict=True):
        Pins(name, f"10.0.0.{name[1]}", 22, file).write(key)

    rename(file, {"n1": "n2", "n2": "n1"})
    rename(tmp_path / "none", {"n1": "n2"})

    assert [Pins(name, "10.0.0.9", 22, file).has(key) for name, key in zip(("n2", "n1"), keys, strict=True)] == [
        True
    ] * 2
    assert not (tmp_path / "none").exists()
