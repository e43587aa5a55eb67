"""The archive of `doctor --bundle`: files for a bug report, without secrets. Pure."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sparkops import redact
from sparkops.command import Command
from sparkops.docker.places import ASK, CONTAINER, STATE

MANIFEST = "CONTENTS.txt"
EVENTS, LINES, FILE_BYTES = 200, 500, 2**18
"""The last events of a service, lines of a guard's log, and bytes of a file of evidence."""
LOG = Command(("docker", "logs", "--timestamps", f"--tail={LINES}", CONTAINER), timeout_s=30.0)
# The last failure of each service, in the guard's container: names of directories start with their time.
PROGRAM = """\
import json, pathlib, sys
root, most, files = pathlib.Path(sys.argv[1]), int(sys.argv[2]), {}
for service in sorted(root.iterdir()) if root.is_dir() else ():
    for saved in sorted(service.iterdir())[-1:]:
        for file in sorted(saved.iterdir()):
            files[str(file.relative_to(root))] = file.read_bytes()[-most:].decode(errors="replace")
print(json.dumps(files))
"""


def evidence() -> Command:
    """Read the evidence of the last failure of each service."""
    argv = ("docker", "exec", CONTAINER, "python3", "-c", PROGRAM, f"{STATE}/v2/evidence", str(FILE_BYTES))
    return Command(argv, timeout_s=60.0)


def questions(requests: Iterable[Mapping[str, Any]]) -> Command:
    """Send requests to the guard, which replies with a line of JSON to each."""
    lines = "".join(json.dumps(request) + "\n" for request in requests)
    return Command(ASK.argv, stdin=lines.encode(), timeout_s=ASK.timeout_s)


def reply(line: str) -> Any:
    """Return the reply of the guard. Raises ValueError for an error and for other text."""
    answer = json.loads(line)
    if not isinstance(answer, dict) or "ok" not in answer:
        raise ValueError(f"the guard replied {line[:200]!r}")
    return answer["ok"]


def files(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return the redacted text of each file, .json files as JSON."""
    texts = {name: _text(name, part) for name, part in sorted(parts.items())}
    sizes = (f"{len(text.encode()):>9} {name}" for name, text in texts.items())
    title = "For a bug report of sparkops. Bytes and names; *** is where a secret may have been."
    return {MANIFEST: "\n".join([title, *sizes, ""]), **texts}


def _text(name: str, part: Any) -> str:
    if isinstance(part, str) and not name.endswith(".json"):
        return redact.document(part)
    try:
        value = json.loads(part) if isinstance(part, str) else part
    except ValueError:  # cut off at FILE_BYTES
        return redact.document(part)
    return json.dumps(redact.hidden(value), indent=2) + "\n"


def archive(texts: Mapping[str, str], at_s: float) -> bytes:
    """Return a tar.gz of the files for their owner only, changed `at_s` seconds after 1970."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for entry, content in _entries(texts, int(at_s)):
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _entries(texts: Mapping[str, str], at_s: int) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for name, text in texts.items():
        content, entry = text.encode(errors="replace"), tarfile.TarInfo(f"sparkops-bundle/{name}")
        entry.size, entry.mode, entry.mtime = len(content), 0o600, at_s
        yield entry, content
