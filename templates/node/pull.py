"""Fetch a model repository from its hub into a directory that is not whole yet. Runs in a container that has the hub's
own library, huggingface_hub, which `hf download` uses as well.

What it does comes as the second line of stdin, the token with it, so that no argument, environment or file shows the
token. It prints JSON: the bytes that are there, and at the end what was fetched or what went wrong.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time

import attended
import checkpoint
import partial

TELLING = threading.Lock()
TELL_EVERY_S = 1.0
# A file is begun anew when it was interrupted, so few at once lose less; they fill a gigabit line all the same.
FILES_AT_ONCE = 4
# Named for one process: nobody can go on with such a file. Older libraries leave the number out, and go on.
ABANDONED = re.compile(r"\.[0-9a-f]{8}\.incomplete$")
SETTINGS = {
    "HF_HOME": "/tmp/hub",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "0",
    "HF_XET_CHUNK_CACHE_SIZE_BYTES": "0",  # it would fill the container's disk with what is fetched once
}


class Refused(Exception):
    """It cannot be fetched: `kind` for the program that asked, `text` for a person."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


def fetch(request):
    """Look the repository up, make sure there is room, fetch what is missing, hold it against the hub's list."""
    hub = library()
    token = request["token"] or False
    api = hub.HfApi(token=token)
    info = api.model_info(request["id"], revision=request["revision"], files_metadata=True, timeout=30)
    directory = f"{request['directory']}.partial"
    handle = partial.claim(directory, f"pull {request['id']}@{info.sha}")
    clear(directory)
    expected = sizes(hub, info, request["exclude"])
    room(directory, expected)
    counting(directory, sum(expected.values()))
    # It must be the commit that was looked up. And the library returns what is there when the hub cannot be reached.
    hub.snapshot_download(
        request["id"],
        revision=info.sha,
        local_dir=directory,
        ignore_patterns=request["exclude"] or None,
        token=token,
        max_workers=FILES_AT_ONCE,
    )
    for name, size in expected.items():
        path = os.path.join(directory, name)
        present = os.path.getsize(path) if os.path.isfile(path) else -1
        if present != size:
            raise Refused("incomplete", f"{name}: {max(present, 0)} of {size} bytes")
    checkpoint.write_marker(directory, {"model": request["id"], "asked": request["revision"], "commit": info.sha})
    os.close(handle)  # whoever hears that it is done may give it its name
    tell(done={"commit": info.sha, "bytes": sum(expected.values())})


def library():
    """The hub's library, with our settings. It reads them when it is imported."""
    try:
        import huggingface_hub
    except ImportError as error:
        raise Refused("library", str(error)) from None
    return huggingface_hub


def sizes(hub, info, exclude):
    """Size in bytes of every file that is wanted."""
    patterns = exclude or None
    names = hub.utils.filter_repo_objects((file.rfilename for file in info.siblings), ignore_patterns=patterns)
    chosen = set(names)
    return {file.rfilename: file.size or 0 for file in info.siblings if file.rfilename in chosen}


def clear(directory):
    """Remove what an interrupted run left and nobody can go on with."""
    for place, _, names in os.walk(directory):
        for name in names:
            if ABANDONED.search(name):
                os.unlink(os.path.join(place, name))


def room(directory, expected):
    """Refuse before the disk is full."""
    missing, free = sum(expected.values()) - present_bytes(directory), shutil.disk_usage(directory).free
    if missing > free:
        raise Refused("disk", f"{missing} bytes are missing, {free} are free")


def present_bytes(directory):
    """What is there, finished or not."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            try:
                total += os.path.getsize(os.path.join(place, name))
            except FileNotFoundError:  # it was finished and moved since it was listed
                continue
    return total


def counting(directory, total):
    """Tell how many bytes are there, for as long as it goes on."""

    def count():
        while True:
            tell(bytes=min(present_bytes(directory), total), total=total)
            time.sleep(TELL_EVERY_S)

    threading.Thread(target=count, daemon=True).start()


def kind(error):
    """What kind of failure it is. The library wraps the reason, so all that led to it is looked at."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    names = {base.__name__ for cause in chain for base in type(cause).__mro__}
    statuses = {getattr(getattr(cause, "response", None), "status_code", None) for cause in chain}
    text = " ".join(map(str, chain))
    checks = (
        ("range", 416 in statuses or re.search(r"\b416\b", text)),
        ("gated", "GatedRepoError" in names),
        ("revision", "RevisionNotFoundError" in names),
        ("unknown", "RepositoryNotFoundError" in names),
        ("denied", statuses & {401, 403}),
        ("throttled", 429 in statuses),
        ("disk", any(getattr(cause, "errno", None) == 28 for cause in chain) or "No space left" in text),
        ("name", "HFValidationError" in names),
        ("directory", "PermissionError" in names),
        ("unreachable", names & {"ConnectionError", "ConnectError", "TimeoutException", "Timeout", "ProxyError"}),
    )
    return next((name for name, matches in checks if matches), "other")


def tell(**message):
    """One line. After the last one nothing more is said."""
    with TELLING:
        print(json.dumps(message), flush=True)
        if "done" in message or "error" in message:
            os._exit(0)  # not through threads that still wait for the network


def main():
    """Fetch, and say how it went."""
    request = attended.begin()
    os.environ.update(SETTINGS)
    if request["endpoint"]:
        os.environ["HF_ENDPOINT"] = request["endpoint"]
    try:
        fetch(request)
    except Refused as refused:
        tell(error=refused.kind, text=refused.text)
    except Exception as error:  # the library's own errors are of many classes; each is told
        tell(error=kind(error), text=f"{type(error).__name__}: {error}"[:2000])


main()
