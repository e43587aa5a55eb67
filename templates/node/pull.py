"""Download a model repository from its hub into a partial directory. Runs in a container with the hub's own library,
huggingface_hub, which `hf download` uses as well.

The request is the second line of stdin, with the token, so that no argument, environment or file has the token. The
output is JSON: the bytes so far, and at the end the result or the error.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import attended
import checkpoint
import partial

REPORTING = threading.Lock()
TELL_EVERY_S = 1.0
# An interrupted file is downloaded anew, so few parallel files lose less; they still fill a gigabit line.
FILES_AT_ONCE = 4
# The number belongs to one process: no other one resumes such a file. Older libraries omit it, and resume.
ABANDONED = re.compile(r"\.[0-9a-f]{8}\.incomplete$")
SETTINGS = {
    "HF_HOME": "/tmp/hub",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "0",
    "HF_XET_CHUNK_CACHE_SIZE_BYTES": "0",  # the cache would fill the container's disk
}


class Refused(Exception):
    """The download is impossible: `kind` for the client, `text` for the operator."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


def fetch(request):
    """Look up the repository, check the disk, download missing files, compare sizes and digests with the hub's list."""
    hub = library()
    token = request["token"] or False
    api = hub.HfApi(token=token)
    info = api.model_info(request["id"], revision=request["revision"], files_metadata=True, timeout=30)
    directory = f"{request['directory']}.partial"
    handle = partial.claim(directory, f"pull {request['id']}@{info.sha}")
    clear(directory)
    expected = chosen(hub, info, request)
    total = sum(file.size or 0 for file in expected)
    room(directory, total)
    counting(directory, total)
    attempt = (hub, info.sha, request, directory, expected)
    if problems := download(*attempt) and download(*attempt):  # once more, without the damaged files
        raise problems[0]
    checkpoint.write_marker(directory, {"model": request["id"], "asked": request["revision"], "commit": info.sha})
    os.close(handle)  # the client may rename the directory after this message
    report(done={"commit": info.sha, "bytes": total})


def download(hub, commit, request, directory, expected):
    """Download missing files. Removes each one that differs from the hub's list, and returns why."""
    # Pin the commit that was looked up. Without the hub, the library returns an incomplete directory as a success.
    hub.snapshot_download(
        request["id"],
        revision=commit,
        local_dir=directory,
        allow_patterns=request["include"] or None,
        ignore_patterns=request["exclude"] or None,
        token=request["token"] or False,
        max_workers=FILES_AT_ONCE,
    )
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        return [problem for problem in pool.map(lambda file: difference(directory, file), expected) if problem]


def difference(directory, file):
    """Return how a file differs from the hub's list, and remove it: the library would keep it. None if it does not.

    The library compares no digest. The list has the sha256 of large files (LFS); that of a mirror may lack it.
    """
    path, size = os.path.join(directory, file.rfilename), file.size or 0
    if not os.path.isfile(path):
        return Refused("incomplete", f"{file.rfilename}: 0 of {size} bytes")
    problem = None
    if os.path.getsize(path) != size:
        problem = Refused("incomplete", f"{file.rfilename}: {os.path.getsize(path)} of {size} bytes")
    elif file.lfs:
        with open(path, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        if digest != file.lfs.sha256:
            problem = Refused("damaged", f"{file.rfilename}: sha256 {digest}, expected {file.lfs.sha256}")
    if problem:
        os.unlink(path)
    return problem


def library():
    """Import the hub's library, which reads SETTINGS at that time."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise Refused("library", str(error)) from None
    return huggingface_hub


def chosen(hub, info, request):
    """Return every required file of the hub's list.

    Raises Refused if the repository lacks one of `include`, and for a name that leads out of the model's directory: a
    file that differs from the list is removed, and would be one of another model.
    """
    if outside := [file.rfilename for file in info.siblings if not is_below(file.rfilename)]:
        raise Refused("path", f"{outside[0][:200]!r} is not a path below the directory of a model")
    include, exclude = request["include"] or None, request["exclude"] or None
    names = (file.rfilename for file in info.siblings)
    names = set(hub.utils.filter_repo_objects(names, allow_patterns=include, ignore_patterns=exclude))
    lacking = sorted(set(include or ()) - names)
    if lacking:
        raise Refused("file", f"{lacking[0]} is not in {request['id']}")
    return [file for file in info.siblings if file.rfilename in names]


def is_below(name):
    """Return whether a name of the hub's list is a path below the directory that it is joined to."""
    return "\0" not in name and not {"", ".", ".."} & set(name.split("/"))


def clear(directory):
    """Remove files of an interrupted run that cannot be resumed."""
    for place, _, names in os.walk(directory):
        for name in names:
            if ABANDONED.search(name):
                os.unlink(os.path.join(place, name))


def room(directory, total):
    """Refuse before the disk is full."""
    missing, free = total - present_bytes(directory), shutil.disk_usage(directory).free
    if missing > free:
        raise Refused("disk", f"{missing} bytes to download, {free} free")


def present_bytes(directory):
    """Return the bytes on disk, of complete and partial files."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(place, name))
            except FileNotFoundError:  # completed and renamed since the listing
                continue
    return total


def counting(directory, total):
    """Report the bytes on disk during the download."""

    def count():
        while True:
            report(bytes=min(present_bytes(directory), total), total=total)
            time.sleep(TELL_EVERY_S)

    threading.Thread(target=count, daemon=True).start()


STATUS = re.compile(r"\((\d{3}) [A-Z][\w ]{1,40}\)|\b(\d{3}) (?:Client|Server) Error")
"""A status in words: those of Xet, which raises a RuntimeError, and of requests."""


def kind(error):
    """Return the kind of a failure. The library wraps the reason, so the whole chain of errors is checked.

    Xet, which downloads the files, raises a RuntimeError whose text alone says why.
    """
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    names = {base.__name__ for cause in chain for base in type(cause).__mro__}
    text = " ".join(map(str, chain))[:20_000]
    statuses = {getattr(getattr(cause, "response", None), "status_code", None) for cause in chain}
    statuses |= {int(one or two) for one, two in STATUS.findall(text)}
    checks = (
        ("range", 416 in statuses or re.search(r"\b416\b", text)),
        ("gated", "GatedRepoError" in names or re.search(r"gated repo|awaiting a review from the repo authors", text)),
        ("revision", "RevisionNotFoundError" in names),
        ("unknown", "RepositoryNotFoundError" in names),
        ("disabled", "DisabledRepoError" in names),
        ("token", 401 in statuses),
        ("denied", 403 in statuses),
        ("throttled", 429 in statuses or "Too Many Requests" in text),
        ("server", any(status and status >= 500 for status in statuses)),
        (
            "disk",
            any(getattr(cause, "errno", None) == 28 for cause in chain) or re.search(r"No space left|os error 28", text),
        ),
        ("name", "HFValidationError" in names),
        ("directory", "PermissionError" in names or re.search(r"Permission denied|Read-only file system", text)),
        ("certificate", re.search(r"CERTIFICATE_VERIFY_FAILED|invalid peer certificate|UnknownIssuer", text)),
        (
            "unreachable",
            names & {"ConnectionError", "ConnectError", "TimeoutException", "Timeout", "ProxyError"}
            or re.search(r"dns error|error sending request|Request failed after \d+ retries|tcp connect error", text),
        ),
    )
    return next((name for name, matches in checks if matches), "other")


def report(**message):
    """Print one line, and exit after the last one."""
    with REPORTING:
        print(json.dumps(message), flush=True)
        if "done" in message or "error" in message:
            os._exit(0)  # other threads may still wait for the network


def main():
    """Download, and report the result."""
    request = attended.begin()
    os.environ.update(SETTINGS)
    if request["endpoint"]:
        os.environ["HF_ENDPOINT"] = request["endpoint"]
    try:
        fetch(request)
    except Refused as refused:
        report(error=refused.kind, text=refused.text)
    except Exception as error:  # the library's errors have many classes
        report(error=kind(error), text=f"{type(error).__name__}: {error}"[:2000])


main()
