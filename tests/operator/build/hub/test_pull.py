"""The program that fetches a model, with a library of a few lines in place of huggingface_hub.

tests/real/test_models.py runs it with the real library, in the image of a recipe, against a hub on this machine.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import programs
from sparkops.node.program import python
from sparkops.operator.build.weights import models
from sparkops.operator.build.weights.checkpoint import Origin
from tests.operator.build.weights.places import member
from tests.safetensors import two_shards

COMMIT = "c" * 40
# It copies the directory SOURCE, and says about it what the files `lies` and `raises` beside it say. It damages as many
# downloads of a file as the file `damages` beside it has bytes.
LIBRARY = """
import builtins, fnmatch, hashlib, json, os, pathlib, shutil, types

SOURCE = pathlib.Path(os.environ["SOURCE"])

class RepositoryNotFoundError(Exception): pass
class GatedRepoError(RepositoryNotFoundError): pass

def files():
    return {str(f.relative_to(SOURCE)): f for f in SOURCE.rglob("*") if f.is_file()}

class HfApi:
    def __init__(self, token): assert token in (False, "secret"), token
    def model_info(self, id, revision, files_metadata, timeout):
        raises = SOURCE.with_name("raises")
        if raises.exists():
            name, status, text = json.loads(raises.read_text())
            error = {**globals(), **vars(builtins)}.get(name, RuntimeError)(text) if name else None
            wrapped = RuntimeError("wrapped")
            wrapped.response = types.SimpleNamespace(status_code=status)
            raise wrapped from error
        lies = SOURCE.with_name("lies")
        more = json.loads(lies.read_text()) if lies.exists() else {}
        sizes = {**{name: f.stat().st_size for name, f in files().items()}, **more}
        def lfs(name):
            large = name.endswith(".safetensors") and name in files()
            return large and types.SimpleNamespace(sha256=hashlib.sha256(files()[name].read_bytes()).hexdigest())
        siblings = [types.SimpleNamespace(rfilename=name, size=size, lfs=lfs(name)) for name, size in sizes.items()]
        return types.SimpleNamespace(sha="COMMIT", siblings=siblings)

def filter_repo_objects(items, allow_patterns, ignore_patterns):
    kept = [each for each in items if not any(fnmatch.fnmatch(each, p) for p in ignore_patterns or ())]
    return [each for each in kept if allow_patterns is None or any(fnmatch.fnmatch(each, p) for p in allow_patterns)]

utils = types.SimpleNamespace(filter_repo_objects=filter_repo_objects)

def snapshot_download(id, revision, local_dir, allow_patterns, ignore_patterns, token, max_workers):
    assert revision == "COMMIT"
    for name in filter_repo_objects(files(), allow_patterns, ignore_patterns):
        target = pathlib.Path(local_dir, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():  # as the real one does
            continue
        shutil.copyfile(files()[name], target)
        damages = SOURCE.with_name("damages")
        if name == "model-1-of-2.safetensors" and damages.exists() and damages.stat().st_size:
            os.truncate(damages, damages.stat().st_size - 1)
            target.write_bytes(bytes(target.stat().st_size))
""".replace("COMMIT", COMMIT)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What the hub has: a model, and a file that no engine reads."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library/huggingface_hub.py").write_text(LIBRARY)
    shards = two_shards(tmp_path / "hub/q")
    (shards / "original").mkdir()
    (shards / "original/x.pth").write_bytes(b"x" * 50)
    return shards


def pull(
    tmp_path: Path,
    *,
    library: bool = True,
    token: str = "",
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """What it prints. Its stdin stays open until it ends, as a container's does."""
    request = {
        "id": "org/q",
        "revision": None,
        "include": include,
        "exclude": exclude,
        "directory": str(tmp_path / "n1/q"),
        "token": token,
        "endpoint": "",
    }
    member("n1", tmp_path / "n1")
    env = ("env", f"PYTHONPATH={tmp_path / 'library' if library else ''}", f"SOURCE={tmp_path / 'hub/q'}")
    command = python(programs.load(*programs.PULL), request, interpreter=(*env, sys.executable))
    assert "secret" not in str(command)
    pipe = subprocess.PIPE
    with subprocess.Popen(command.argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin
        process.stdin.write(command.stdin.decode())
        process.stdin.flush()
        out, err = process.stdout.read(), process.stderr.read()  # type: ignore[union-attr]
        assert (process.wait(), err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


def test_what_was_fetched_is_complete_and_says_what_it_is(tmp_path: Path, source: Path) -> None:
    printed = pull(tmp_path, token="secret", exclude=("original/*",))
    fetched = models.publish(member("n1", tmp_path / "n1"), "q")
    size = sum(file.stat().st_size for file in source.iterdir() if file.is_file())

    assert printed[-1] == {"done": {"commit": COMMIT, "bytes": size}}
    assert fetched.origin == Origin("org/q", None, COMMIT)
    assert set(fetched.files) == {file.name for file in source.iterdir() if file.is_file()} | {".sparkops.json"}


def test_of_a_repository_with_several_gguf_files_only_the_named_parts_are_fetched(tmp_path: Path, source: Path) -> None:
    names = [f"Q4/q-Q4-0000{number}-of-00002.gguf" for number in (1, 2)]
    (source / "Q4").mkdir()
    for name in (*names, "q-Q8.gguf"):
        (source / name).write_bytes(b"GGUF")

    printed = pull(tmp_path, include=tuple(names))
    fetched = models.publish(member("n1", tmp_path / "n1"), "q")

    assert printed[-1] == {"done": {"commit": COMMIT, "bytes": 8}}
    assert set(fetched.files) == {*names, ".sparkops.json"}


def test_a_file_that_the_repository_lacks_is_named(tmp_path: Path, source: Path) -> None:
    (source / "q-Q8.gguf").write_bytes(b"GGUF")

    assert pull(tmp_path, include=("q-Q4.gguf",))[-1] == {"error": "file", "text": "q-Q4.gguf is not in org/q"}


def test_nothing_of_the_token_is_left(tmp_path: Path, source: Path) -> None:  # noqa: ARG001
    pull(tmp_path, token="secret")

    files = [file for file in tmp_path.rglob("*") if file.is_file() and "library" not in file.parts]
    assert not any(b"secret" in file.read_bytes() for file in files)


def test_a_file_that_did_not_arrive_whole_is_named(tmp_path: Path, source: Path) -> None:
    source.with_name("lies").write_text('{"model-3.safetensors": 700}')

    assert pull(tmp_path)[-1] == {"error": "incomplete", "text": "model-3.safetensors: 0 of 700 bytes"}


def test_a_file_that_is_cut_off_on_the_disk_is_downloaded_anew(tmp_path: Path, source: Path) -> None:
    pull(tmp_path)
    (tmp_path / "n1/q.partial/config.json").write_bytes(b"")

    assert "done" in pull(tmp_path)[-1]
    assert (tmp_path / "n1/q.partial/config.json").read_bytes() == (source / "config.json").read_bytes()


def test_a_file_with_other_bytes_than_the_hubs_is_downloaded_once_more(tmp_path: Path, source: Path) -> None:
    source.with_name("damages").write_bytes(b"x")

    assert "done" in pull(tmp_path)[-1]
    file = "model-1-of-2.safetensors"
    assert (tmp_path / "n1/q.partial" / file).read_bytes() == (source / file).read_bytes()


def test_a_file_that_arrives_damaged_twice_is_removed_and_named_with_both_digests(tmp_path: Path, source: Path) -> None:
    source.with_name("damages").write_bytes(b"xx")
    file = source / "model-1-of-2.safetensors"
    digests = [hashlib.sha256(content).hexdigest() for content in (bytes(file.stat().st_size), file.read_bytes())]

    text = f"{file.name}: sha256 {digests[0]}, expected {digests[1]}"
    assert pull(tmp_path)[-1] == {"error": "damaged", "text": text}
    assert not (tmp_path / "n1/q.partial" / file.name).exists()
    assert not (tmp_path / "n1/q.partial/.sparkops.json").exists()
    assert "done" in pull(tmp_path)[-1]


@pytest.mark.parametrize(
    "name",
    ["../other/model.safetensors", "a/../../other/model.safetensors", "{root}/n1/other/model.safetensors", "a//b"],
)
def test_a_hub_that_names_a_file_of_another_model_is_refused_and_the_file_stays(
    tmp_path: Path, source: Path, name: str
) -> None:
    """A file that differs from the hub's list is removed: of no other model, and of nothing outside of a model."""
    other = tmp_path / "n1/other/model.safetensors"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"weights of another model")
    name = name.format(root=tmp_path)
    source.with_name("lies").write_text(json.dumps({name: 1}))

    printed = pull(tmp_path)[-1]

    assert printed == {"error": "path", "text": f"{name!r} is not a path below the directory of a model"}
    assert other.read_bytes() == b"weights of another model"


def test_a_model_that_is_too_large_is_refused_before_it_is_fetched(tmp_path: Path, source: Path) -> None:
    source.with_name("lies").write_text('{"model-3.safetensors": 10000000000000000}')

    assert pull(tmp_path)[-1]["error"] == "disk"
    assert [file.name for file in (tmp_path / "n1/q.partial").iterdir()] == [".sparkops-partial"]


def test_an_image_without_the_library_is_told(tmp_path: Path, source: Path) -> None:  # noqa: ARG001
    assert pull(tmp_path, library=False)[-1]["error"] == "library"


XET = "Data processing error: CAS service error : Reqwest Error: HTTP status {}, domain: https://cas-server.xethub.hf.co/x"
"""As Xet raises it: a RuntimeError without a response."""


@pytest.mark.parametrize(
    ("name", "status", "text", "kind"),
    [
        ("", 416, "", "range"),
        ("RuntimeError", None, "CAS error: 416 Range Not Satisfiable", "range"),
        ("GatedRepoError", 403, "", "gated"),
        ("RepositoryNotFoundError", 404, "", "unknown"),
        ("", 401, "", "token"),
        ("", 403, "", "denied"),
        ("", 429, "", "throttled"),
        ("RuntimeError", None, XET.format("client error (429 Too Many Requests)"), "throttled"),
        ("RuntimeError", None, XET.format("client error (401 Unauthorized)"), "token"),
        ("RuntimeError", None, XET.format("client error (403 Forbidden)"), "denied"),
        ("RuntimeError", None, XET.format("server error (503 Service Unavailable)"), "server"),
        (
            "RuntimeError",
            None,
            "CAS service error : ReqwestMiddleware Error: Request failed after 5 retries",
            "unreachable",
        ),
        ("RuntimeError", None, "Data processing error: I/O error: Permission denied (os error 13)", "directory"),
        ("OSError", None, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "certificate"),
        ("RuntimeError", None, "a model of 429 layers", "other"),
        ("ConnectionError", None, "refused", "unreachable"),
        ("OSError", None, "No space left on device", "disk"),
        ("", 500, "", "server"),
    ],
)
def test_a_failure_is_known_by_what_led_to_it(
    tmp_path: Path, source: Path, name: str, status: int | None, text: str, kind: str
) -> None:
    source.with_name("raises").write_text(json.dumps([name, status, text]))

    assert pull(tmp_path)[-1]["error"] == kind


def test_what_an_interrupted_run_left_and_nobody_can_go_on_with_is_removed(tmp_path: Path, source: Path) -> None:  # noqa: ARG001
    pull(tmp_path)
    notes = tmp_path / "n1/q.partial/.cache/huggingface/download"
    notes.mkdir(parents=True)
    (notes / "x.etag.0123abcd.incomplete").touch()
    (notes / "x.etag.incomplete").touch()  # older libraries go on with it
    pull(tmp_path)

    assert [path.name for path in notes.iterdir()] == ["x.etag.incomplete"]


def test_a_directory_that_was_begun_with_another_model_is_emptied(tmp_path: Path, source: Path) -> None:  # noqa: ARG001
    other = tmp_path / "n1/q.partial"
    other.mkdir(parents=True)
    (other / "old.safetensors").touch()
    pull(tmp_path)

    assert not (other / "old.safetensors").exists()
