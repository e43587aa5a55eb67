"""What `docker load` gets of a tar: one image without a name, or nothing that it could load.

The program runs as on a node; `cat` stands where `docker load` would.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from typing import Any

import pytest

from sparkops.operator.build.images import delivery

A, B, C = (digit * 64 for digit in "abc")
PLAIN: dict[str, Any] = {"Config": f"{A}.json", "RepoTags": None, "Layers": [f"{B}.tar"]}
DESCRIPTOR: dict[str, Any] = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": f"sha256:{A}"}
END = bytes(2 * tarfile.BLOCKSIZE)


def file(name: str, content: bytes = b"x", **settings: Any) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for key, value in settings.items():
        setattr(member, key, value)
    return member, content


def metadata(name: str, content: object) -> tuple[tarfile.TarInfo, bytes]:
    return file(name, json.dumps(content).encode())


def packed(*members: tuple[tarfile.TarInfo, bytes], layout: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=layout) as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def load(tar: bytes, *consumer: str) -> subprocess.CompletedProcess[bytes]:
    argv = delivery.load_image().argv[:-3]
    return subprocess.run(
        [sys.executable, *argv[1:], *(consumer or ("cat",))], input=tar, capture_output=True, timeout=60, check=False
    )


def contents(tar: bytes) -> dict[str, bytes | str]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as opened:
        return {
            member.name: (content.read() if (content := opened.extractfile(member)) else "")
            for member in opened
            if not member.issym()
        }


def test_an_image_of_docker_s_own_store_goes_through_as_it_is() -> None:
    layer = bytes(range(256)) * 9000
    ran = load(packed(file(f"{A}.json", b"{}"), file(f"{B}.tar", layer), metadata("manifest.json", [PLAIN])))

    assert (ran.returncode, ran.stderr) == (0, b"")
    assert contents(ran.stdout) == {
        f"{A}.json": b"{}",
        f"{B}.tar": layer,
        "manifest.json": json.dumps([PLAIN]).encode(),
    }


def test_an_image_of_an_old_engine_keeps_its_links() -> None:
    link = file(f"{C}/layer.tar", b"", type=tarfile.SYMTYPE, linkname=f"../{B}/layer.tar")
    directory = file(f"{B}/", b"", type=tarfile.DIRTYPE)
    ran = load(packed(directory, file(f"{B}/layer.tar"), link, metadata("manifest.json", [PLAIN])))

    assert (ran.returncode, ran.stderr) == (0, b"")
    with tarfile.open(fileobj=io.BytesIO(ran.stdout)) as tar:
        assert tar.getmember(f"{C}/layer.tar").linkname == f"../{B}/layer.tar"
        assert tar.getmember(B).isdir()


def test_an_image_of_containerd_s_store_keeps_only_what_was_checked() -> None:
    index = {"manifests": [{**DESCRIPTOR, "annotations": {"x": "y"}}], "Manifests": [{"annotations": {"z": "z"}}]}
    manifest = {**PLAIN, "repotags": ["sparkops/guard:1"], "LayerSources": {}}
    ran = load(
        packed(
            file("blobs", b"", type=tarfile.DIRTYPE),
            file(f"blobs/sha256/{A}", b"{}", pax_headers={"comment": "x" * 600}),
            metadata("index.json", index),
            metadata("manifest.json", [manifest]),
            metadata("oci-layout", {"imageLayoutVersion": "1.0.0"}),
        )
    )

    assert (ran.returncode, ran.stderr) == (0, b"")
    got = contents(ran.stdout)
    assert json.loads(got["manifest.json"]) == [PLAIN]
    assert json.loads(got["index.json"])["manifests"] == [DESCRIPTOR]
    assert b"sparkops" not in ran.stdout
    assert b"comment" not in ran.stdout


GUARD = "sparkops/guard:0123456789ab"
OK = metadata("manifest.json", [PLAIN])


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([metadata("manifest.json", [{**PLAIN, "RepoTags": [GUARD]}])], f"expected an image without tags, got {GUARD}"),
        ([metadata("manifest.json", [PLAIN, PLAIN])], "expected one image, got 2"),
        ([metadata("manifest.json", [])], "expected one image, got 0"),
        ([file(f"{A}.json")], "manifest.json is missing"),
        ([OK, OK], "unexpected member 'manifest.json'"),
        ([OK, metadata("repositories", {"sparkops/guard": {"1": A}})], "unexpected member 'repositories'"),
        ([file("./manifest.json"), OK], "unexpected member './manifest.json'"),
        ([file("a/../manifest.json"), OK], "unexpected member 'a/../manifest.json'"),
        ([file("manifest.json", b"", type=tarfile.SYMTYPE, linkname=f"{A}.json")], "unexpected member 'manifest.json'"),
        (
            [file(f"{A}/layer.tar", b"", type=tarfile.SYMTYPE, linkname="/etc/shadow")],
            f"unexpected member '{A}/layer.tar'",
        ),
        ([file(f"{A}.json", b"", type=tarfile.LNKTYPE, linkname="x")], f"unexpected member '{A}.json'"),
        (
            [
                metadata(
                    "index.json", {"manifests": [{**DESCRIPTOR, "annotations": {"io.containerd.image.name": GUARD}}]}
                )
            ],
            f"expected an image without tags, got {GUARD}",
        ),
        ([metadata("index.json", {"manifests": [DESCRIPTOR, DESCRIPTOR]}), OK], "expected one image, got 2"),
        ([file("manifest.json", b"no JSON")], "manifest.json cannot be read: JSONDecodeError"),
        ([metadata("manifest.json", [{"Config": "x"}])], "manifest.json cannot be read: KeyError"),
        ([file("manifest.json", b"[" + b" " * 4 * 2**20)], "expected at most 4194304 bytes of manifest.json"),
    ],
)
def test_anything_else_is_refused_before_docker_sees_its_end(
    members: list[tuple[tarfile.TarInfo, bytes]], reason: str
) -> None:
    ran = load(packed(*members, layout=tarfile.GNU_FORMAT))

    assert ran.returncode == 1
    assert ran.stderr.decode().strip().startswith(f"the image was refused: {reason}")
    assert not ran.stdout.endswith(END)


def test_a_tar_that_is_cut_off_is_refused() -> None:
    complete = packed(file(f"{A}.json", b"y" * 5000), OK)
    ran = load(complete[:3000])

    assert ran.returncode == 1
    assert b"the image was refused: " in ran.stderr
    assert not ran.stdout.endswith(END)


@pytest.mark.parametrize(("code", "expected"), [(0, 1), (7, 7)])
def test_a_docker_that_ends_early_has_loaded_nothing(code: int, expected: int) -> None:
    ran = load(packed(file(f"{B}.tar", bytes(2**22)), OK), "sh", "-c", f"echo no space >&2; exit {code}")

    assert ran.returncode == expected
    assert b"no space" in ran.stderr


def test_docker_s_own_failure_is_passed_on() -> None:
    ran = load(packed(OK), "sh", "-c", "cat >/dev/null; echo no space >&2; exit 5")

    assert (ran.returncode, ran.stderr) == (5, b"no space\n")
