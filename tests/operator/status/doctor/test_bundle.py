"""The archive for a bug report: what it holds, for whom, and what it does not hold."""

from __future__ import annotations

import io
import json
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from sparkops.command import Command
from sparkops.config.node import NodeConfig
from sparkops.errors import UsageError
from sparkops.node.local import LocalNode
from sparkops.node.member import Member
from sparkops.operator.cli.doctor import write_bundle
from sparkops.operator.fleet.guards.leader import Leader
from sparkops.operator.status.doctor import bundle
from sparkops.swap.intents import Hold
from tests.guard_peer import Peer
from tests.operator.deploy.states import serving
from tests.operator.fleet.guards.test_leader import Guarded, peer_node

pytestmark = pytest.mark.local
SECRET = "s3cret-value"
PARTS = {
    "versions.json": {"sparkops": "0.1"},
    "nodes/a/evidence/chat/1/inspect.json": json.dumps({"Env": [f"HF_TOKEN={SECRET}"]}),
    "nodes/a/evidence/chat/1/cut.json": f'{{"api_key": "{SECRET}", "lo',
    "nodes/a/guard.log": f"GET http://me:{SECRET}@h/\nAuthorization: Bearer {SECRET}\nstarted\n",
}


def test_every_file_is_listed_with_its_size_and_none_holds_a_secret() -> None:
    texts = bundle.files(PARTS)

    assert texts.keys() == {bundle.MANIFEST, *PARTS}
    rows = [line.split() for line in texts[bundle.MANIFEST].splitlines()[1:]]
    assert {name: size for size, name in rows} == {
        name: str(len(text)) for name, text in texts.items() if name != bundle.MANIFEST
    }
    assert [name for name, text in texts.items() if SECRET in text] == []
    assert json.loads(texts["nodes/a/evidence/chat/1/inspect.json"]) == {"Env": ["HF_TOKEN=***"]}
    assert texts["nodes/a/guard.log"].endswith("started\n")


def test_the_archive_has_the_files_for_their_owner_only() -> None:
    packed = bundle.archive({"a/b.txt": "text \ud800"}, 1_700_000_000.5)

    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        [entry] = tar.getmembers()
        content = tar.extractfile(entry)
        assert (entry.name, entry.mode, entry.mtime) == ("sparkops-bundle/a/b.txt", 0o600, 1_700_000_000)
        assert content is not None
        assert content.read() == b"text ?"


def test_the_file_is_new_and_only_its_owner_can_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "b.tar.gz"
    write_bundle(file, bundle.files(PARTS))

    assert file.stat().st_mode & 0o777 == 0o600
    assert tarfile.is_tarfile(file)
    shown = capsys.readouterr().err
    assert [name for name in PARTS if name not in shown] == []
    with pytest.raises(UsageError, match=r"--bundle: .*b\.tar\.gz cannot be written: File exists"):
        write_bundle(file, bundle.files(PARTS))


def test_the_last_failure_of_each_service_is_read_and_its_files_are_cut(tmp_path: Path) -> None:
    for name, text in {
        "chat/20261120T000000Z-r1/log.txt": "old",
        "chat/20261121T000000Z-r2/log.txt": "0123456789",
        "chat/20261121T000000Z-r2/inspect.json": "{}",
        "other/20261119T000000Z-r1/log.txt": "x",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert read(tmp_path, 4) == {
        "chat/20261121T000000Z-r2/inspect.json": "{}",
        "chat/20261121T000000Z-r2/log.txt": "6789",
        "other/20261119T000000Z-r1/log.txt": "x",
    }


def test_without_a_failure_there_is_no_evidence(tmp_path: Path) -> None:
    assert read(tmp_path / "absent", 4) == {}


def read(directory: Path, most: int) -> object:
    """Run the program of the command on this machine."""
    at = bundle.EVIDENCE.argv.index("-c")
    argv = (sys.executable, "-c", bundle.EVIDENCE.argv[at + 1], str(directory), str(most))
    return json.loads(LocalNode("here").run(Command(argv)).stdout)


def guarded(node: Guarded) -> Member:
    """A node of which only the guard replies."""
    return Member("n1", NodeConfig(transport="local"), node, None)  # type: ignore[arg-type]


def test_the_events_of_each_service_are_those_of_its_guard(tmp_path: Path) -> None:
    peer = Peer(tmp_path)
    peer.write(serving().journal)
    with closing(Leader(peer_node(tmp_path))) as leader:  # type: ignore[arg-type]
        leader.intend("chat", Hold("i1", 7, "fair"))

    [(service, found)] = bundle.events(guarded(peer_node(tmp_path))).items()
    assert (service, [event["kind"] for event in found]) == ("chat", ["intent", "note"])


def test_of_what_a_node_sends_no_more_is_searched_for_secrets_than_a_file_may_have() -> None:
    """To hide the secrets of 4 MiB takes seconds of this machine."""
    long = {"guard.log": "a" * 2**22 + "end", "evidence/x.json": '"' * 2**22}
    assert {len(bundle.files(long)[name]) for name in long} == {bundle.FILE_BYTES}
    assert bundle.files(long)["guard.log"].endswith("end")

    events = [{"n": number, "text": "x"} for number in range(500)]
    assert bundle.last(events) == events[-bundle.EVENTS :]
    assert bundle.last([*events, {"text": "x" * 2**17}]) == [*events[-bundle.EVENTS + 1 :], {"text": "x" * 2**17}]
    large = [{"text": "x" * 2**12}] * 500
    assert 0 < len(json.dumps(bundle.last(large))) <= bundle.FILE_BYTES
    assert bundle.last([{"text": "x" * 2**22}]) == []


@pytest.mark.parametrize(
    "name", ["../../../etc/cron.d/x", "/etc/passwd", "a/../../x", "\x1b[2J", "a\nb", "", "a//b", ".ssh/rc", "x" * 101]
)
def test_a_node_names_no_file_outside_its_own_directory(name: str) -> None:
    assert bundle.named({name: "text", "guard.log": "text"}) == {"misnamed/0.txt": "text", "guard.log": "text"}


def test_a_node_adds_no_more_files_than_a_bundle_takes() -> None:
    assert len(bundle.named({f"{number}": "" for number in range(10_000)})) == bundle.FILES


@pytest.mark.parametrize("printed", ["[]", "null", "1", '{"a": []}', '{"a": {"b": 1}}', "[" * 100_000, "no JSON", ""])
def test_evidence_of_another_kind_is_a_readable_error(printed: str) -> None:
    with pytest.raises(ValueError, match=r"expected files and their text|Expecting value|nested"):
        bundle.evidence(printed)


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"ok": ' + "[" * 100_000, "[]", "{}", "null", "", '{"ok": 1}', '{"error": 1}', "no JSON"]
)
def test_another_reply_of_a_guard_is_a_file_with_the_error(line: str) -> None:
    member = guarded(Guarded(("sh", "-c", 'read asked; printf "%s\\n" "$1"', "sh", line)))

    assert bundle.part("events", lambda: bundle.events(member)).keys() == {"events-error.txt"}


def test_json_of_a_node_that_is_nested_too_deep_is_kept_as_text() -> None:
    deep = "[" * 100_000

    assert bundle.files({"nodes/a/evidence/x.json": deep})["nodes/a/evidence/x.json"] == deep
