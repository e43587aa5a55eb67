"""Images in a directory: stored from every form of `docker save`, continued after a cut, and checked on the way out."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sparkops.errors import SparkopsError, UsageError
from sparkops.images.layers import DockerImage
from sparkops.images.layout import ImageCutOff, Layout, StoredImage

LOW, HIGH = b"low" * 1000, b"high" * 500
TAG = "sparkops/q:0123456789ab"


def hexed(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


DIFFS = tuple(f"sha256:{hexed(layer)}" for layer in (LOW, HIGH))
IMAGE = DockerImage("sha256:1", (TAG,), DIFFS, "c" * 64, len(LOW + HIGH), {"sparkops.inputs": "i"})
CONFIG = json.dumps(
    {
        "architecture": "arm64",
        "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": DIFFS},
        "config": {"Labels": IMAGE.labels},
    }
).encode()


def tar(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            out.addfile(member, io.BytesIO(content))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            out.addfile(member)
    return buffer.getvalue()


def manifest(config: str, *layers: str) -> dict[str, bytes]:
    return {"manifest.json": json.dumps([{"Config": config, "RepoTags": None, "Layers": layers}]).encode()}


OWN, NAMES = f"{hexed(CONFIG)}.json", [f"{hexed(layer)}.tar" for layer in (LOW, HIGH)]
GRAPH = {OWN: CONFIG, NAMES[0]: LOW, NAMES[1]: HIGH, **manifest(OWN, *NAMES)}
"""As templates/node/graph.py prints it."""
PACKED = [gzip.compress(layer, mtime=0) for layer in (LOW, HIGH)]
PLACES = [f"blobs/sha256/{hexed(content)}" for content in (CONFIG, LOW, HIGH, *PACKED)]
EXTRA = {"oci-layout": b"{}", "index.json": b"{}", f"blobs/sha256/{hexed(b'{}')}": b"{}"}
FORMS: dict[str, Mapping[str, bytes]] = {
    "the reader of Docker's store": GRAPH,
    "Docker 25 and newer": {
        **EXTRA,
        **dict(zip(PLACES[:3], (CONFIG, LOW, HIGH), strict=True)),
        **manifest(*PLACES[:3]),
    },
    "containerd's store, compressed": {
        **EXTRA,
        **dict(zip((PLACES[0], *PLACES[3:]), (CONFIG, *PACKED), strict=True)),
        **manifest(PLACES[0], *PLACES[3:]),
    },
    "Docker before 25": {
        OWN: CONFIG,
        f"{'a' * 64}/VERSION": b"1.0",
        f"{'a' * 64}/layer.tar": LOW,
        f"{'b' * 64}/layer.tar": HIGH,
        **manifest(OWN, f"{'a' * 64}/layer.tar", f"{'b' * 64}/layer.tar"),
    },
}


def receive(layout: Layout, content: bytes, image: DockerImage = IMAGE, tag: str = TAG) -> StoredImage:
    with layout.writing():
        return layout.receive(io.BytesIO(content), image, tag, "0.2.0")


def blobs(layout: Layout) -> set[str]:
    return {file.name for file in (layout.directory / "blobs/sha256").iterdir()}


def members(chunks: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(chunks)) as opened:
        return {member.name: content.read() for member in opened if (content := opened.extractfile(member))}


@pytest.mark.parametrize("form", FORMS)
def test_an_image_comes_out_as_docker_printed_it(tmp_path: Path, form: str) -> None:
    layout = Layout(tmp_path / "images")
    stored = receive(layout, tar(FORMS[form]))

    assert layout.images() == {TAG: stored}
    assert (stored.diffs, stored.architecture, stored.labels) == (DIFFS, "arm64", IMAGE.labels)
    assert stored.image.content == IMAGE.content
    assert blobs(layout) == {digest.partition(":")[2] for digest in (stored.digest, f":{hexed(CONFIG)}", *stored.blobs)}
    printed = members(b"".join(layout.tar(stored)))
    [listed] = json.loads(printed["manifest.json"])
    layers = [printed[name] for name in listed["Layers"]]
    assert printed[listed["Config"]] == CONFIG
    assert [gzip.decompress(layer) if "compressed" in form else layer for layer in layers] == [LOW, HIGH]
    assert listed["RepoTags"] is None


def test_it_is_an_image_layout_that_other_programs_read(tmp_path: Path) -> None:
    stored = receive(Layout(tmp_path), tar(GRAPH))
    index = json.loads((tmp_path / "index.json").read_text())
    described = json.loads((tmp_path / "blobs/sha256" / stored.digest.partition(":")[2]).read_text())

    assert json.loads((tmp_path / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    assert index["manifests"][0]["digest"] == stored.digest
    assert index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] == TAG
    assert [layer["digest"] for layer in described["layers"]] == list(DIFFS)
    assert described["layers"][0]["mediaType"] == "application/vnd.oci.image.layer.v1.tar"


def test_a_layer_that_occurs_twice_in_an_old_tar_is_a_link(tmp_path: Path) -> None:
    twice = json.dumps({**json.loads(CONFIG), "rootfs": {"diff_ids": [DIFFS[0]] * 2}}).encode()
    name, one, two = f"{hexed(twice)}.json", f"{'a' * 64}/layer.tar", f"{'b' * 64}/layer.tar"
    content = tar({name: twice, one: LOW, **manifest(name, one, two)}, {two: f"../{one}"})
    image = DockerImage("sha256:1", (), (DIFFS[0],) * 2, "c", 1)

    assert receive(Layout(tmp_path), content, image).blobs == (DIFFS[0],) * 2


@pytest.mark.parametrize("at", [0, 700, 3000, len(tar(GRAPH)) // 2, 8000])
def test_a_cut_stream_leaves_no_image_and_the_next_try_continues(tmp_path: Path, at: int) -> None:
    layout = Layout(tmp_path)
    with pytest.raises(ImageCutOff, match="the image ended early") as raised:
        receive(layout, tar(GRAPH)[:at])

    assert raised.value.next_step == "Run the command again: it continues."
    assert not layout.exists
    have = layout.stored_below(IMAGE)
    assert have == sum(layout.has(diff) for diff in DIFFS)
    rest = {name: content for name, content in GRAPH.items() if name not in NAMES[:have]}
    assert receive(layout, tar(rest)).blobs == DIFFS
    assert not [name for name in blobs(layout) if name.endswith(".part")]


def test_a_layer_that_neither_came_nor_is_stored_ends_the_export(tmp_path: Path) -> None:
    rest = {name: content for name, content in GRAPH.items() if name != NAMES[0]}
    with pytest.raises(ImageCutOff, match=f"layer {NAMES[0]} is missing"):
        receive(Layout(tmp_path), tar(rest))


def test_a_stored_layer_of_another_content_is_removed_and_no_image_has_it(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    receive(layout, tar(GRAPH))
    layout.path(DIFFS[0]).write_bytes(LOW[:-1])
    rest = {name: content for name, content in GRAPH.items() if name not in NAMES}

    with pytest.raises(ImageCutOff, match=f"the stored layer {NAMES[0]} was damaged and is removed"):
        receive(layout, tar(rest), tag="sparkops/r:0123456789ab")

    assert layout.stored_below(IMAGE) == 0
    assert set(layout.images()) == {TAG}
    assert receive(layout, tar(GRAPH)).sizes == (len(LOW), len(HIGH))


def test_layers_that_docker_did_not_report_are_refused(tmp_path: Path) -> None:
    other = {**GRAPH, NAMES[1]: b"other"}
    with pytest.raises(SparkopsError, match="has other layers than Docker reported"):
        receive(Layout(tmp_path), tar(other))
    assert not Layout(tmp_path).exists


def test_images_share_layers_and_one_of_the_same_tag_is_replaced(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    receive(layout, tar(GRAPH))
    settings = json.dumps({**json.loads(CONFIG), "config": {"Labels": {"sparkops.inputs": "j"}}}).encode()
    name = f"{hexed(settings)}.json"
    again = tar({name: settings, **manifest(name, *NAMES)})

    other = receive(layout, again, tag="sparkops/r:0123456789ab")
    assert set(layout.images()) == {TAG, other.tag}
    replaced = receive(layout, again)
    assert layout.images()[TAG] == replaced
    assert replaced.labels == {"sparkops.inputs": "j"}


@pytest.mark.parametrize("notes", [{}, {"annotations": None}, {"annotations": {"org.example": "1"}}])
def test_an_image_of_another_program_stays_in_the_index(tmp_path: Path, notes: dict[str, Any]) -> None:
    foreign = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": DIFFS[0], "size": 1, **notes}
    (tmp_path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [foreign]}))

    stored = receive(Layout(tmp_path), tar(GRAPH))

    first, second = json.loads((tmp_path / "index.json").read_text())["manifests"]
    assert (first, second["digest"]) == (foreign, stored.digest)


@pytest.mark.parametrize("name", ["index.json.part", "oci-layout.part"])
def test_a_link_in_the_directory_leads_to_no_file_outside(tmp_path: Path, name: str) -> None:
    outside, directory = tmp_path / "outside", tmp_path / "images"
    outside.write_text("kept")
    directory.mkdir()
    (directory / name).symlink_to(outside)

    receive(Layout(directory), tar(GRAPH))

    assert outside.read_text() == "kept"
    assert not (directory / "index.json").is_symlink()


def damaged(layout: Layout, stored: StoredImage) -> Path:
    file = layout.path(stored.blobs[1])
    file.write_bytes(b"H" + HIGH[1:])
    return file


def test_a_damaged_layer_never_completes_the_tar(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    stored = receive(layout, tar(GRAPH))
    file = damaged(layout, stored)
    layout.require_whole(stored)  # which only looks at sizes

    chunks: list[bytes] = []
    with pytest.raises(SparkopsError) as raised:
        chunks.extend(layout.tar(stored))
    assert f"{file}: its SHA-256 is {hexed(b'H' + HIGH[1:])}, another one than its name" in str(raised.value)
    assert raised.value.next_step.startswith("Remove this file and run `sparkops images export` again")
    assert b"manifest.json" not in b"".join(chunks)
    assert members(b"".join(layout.tar(stored, skip=2))).keys() == {OWN, "manifest.json"}


def test_a_short_or_missing_file_is_found_before_anything_is_sent(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    stored = receive(layout, tar(GRAPH))
    layout.path(stored.blobs[0]).write_bytes(LOW[:-1])
    with pytest.raises(SparkopsError, match=f"of {TAG}: expected a file of {len(LOW)} bytes"):
        layout.require_whole(stored)
    layout.path(stored.digest).unlink()
    with pytest.raises(SparkopsError, match="cannot be read: No such file"):
        layout.images()
    assert layout.readable() == []


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"manifests": [{}]}',
        '{"manifests": [{"digest": "sha256:../../etc/passwd", "annotations": {}}]}',
        '{"manifests": 5}',
    ],
)
def test_an_index_that_is_none_is_named_without_a_traceback(tmp_path: Path, text: str) -> None:
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(SparkopsError) as raised:
        Layout(tmp_path).images()
    assert str(raised.value).startswith(f"{tmp_path}/index.json: ")


def test_a_directory_without_images_names_the_verb_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no index\.json: no image was exported to it") as raised:
        Layout(tmp_path).images()
    assert raised.value.next_step == "sparkops images export RECIPE DIRECTORY --node NODE"


def test_two_exports_do_not_write_to_one_directory(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    with layout.writing(), pytest.raises(SparkopsError, match="another export writes to"), Layout(tmp_path).writing():
        pass


def test_the_directory_needs_room_and_must_be_writable(tmp_path: Path) -> None:
    with pytest.raises(SparkopsError, match=r"free, 1000000000.00 GB needed"):
        Layout(tmp_path).require_room(10**18)
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkopsError, match="cannot be written: "), Layout(tmp_path / "file").writing():
        pass


def test_settings_of_an_image_name_no_file_outside(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    stored: Any = receive(layout, tar(GRAPH))
    entry = json.loads((tmp_path / "index.json").read_text())
    file = tmp_path / "blobs/sha256" / stored.digest.partition(":")[2]
    described = json.loads(file.read_text())
    described["layers"][0]["digest"] = "sha256:../../../secret"
    file.write_text(json.dumps(described))
    assert entry["manifests"]
    with pytest.raises(SparkopsError, match="expected sha256: and 64 hex digits"):
        layout.require_whole(layout.images()[TAG])
