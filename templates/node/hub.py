"""Fetch what describes a model from its hub: config.json, its index, and the header of each shard. Runs on the node.

The files lie in a directory as those of a checkpoint do: a shard has its header and its length, and no tensor. Standard
library only. The endpoints are those of huggingface_hub: /api/models/ID/revision/REVISION and /ID/resolve/COMMIT/FILE.
"""

from __future__ import annotations

import fnmatch
import http.client
import json
import os
import re
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import checkpoint

ENDPOINT = "https://huggingface.co"
NAME = re.compile(r"[\w.-]{1,96}(/[\w.-]{1,96})?")
MEBI = 2**20
FIRST = 32 * 1024  # bytes of a shard in the first request: most headers end there
MAX_LIST = 8 * MEBI
MAX_TOTAL = 96 * MEBI  # an index and the headers of 200,000 tensors are 47 MB
MAX_SHARD = 2**42  # 4 TiB, as a file without content
MOST_SHARDS = 2000
AT_ONCE = 8
REQUEST_S = 15.0
TOTAL_S = 90.0
PIECE = 64 * 1024
CODES = {"GatedRepo": "gated", "RevisionNotFound": "revision", "RepoNotFound": "unknown", "EntryNotFound": "file"}
"""Kinds of failure by the header X-Error-Code."""
STATUSES = {403: "denied", 404: "unknown", 416: "range", 429: "throttled"}


class Refused(Exception):
    """The hub gives no description: `kind` for the client, `text` for the operator."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind, self.text = kind, text


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects without the token to other hosts, and never from https to anything else."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        """Return the next request. Raises Refused."""
        before, after = (urllib.parse.urlsplit(url) for url in (req.full_url, newurl))
        if after.scheme not in ("https", before.scheme):
            raise Refused("answer", f"redirected from {before.scheme} to {after.scheme or 'nothing'}")
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.unredirected_hdrs.get("Authorization")
        if request and token and (before.scheme, before.netloc) == (after.scheme, after.netloc):
            request.add_unredirected_header("Authorization", token)
        return request


class Hub:
    """One hub, with a bound of bytes and time for all requests together."""

    def __init__(self, request):
        self.model, self.token = request["id"], request["token"]
        self.endpoint = (request["endpoint"] or ENDPOINT).rstrip("/")
        context = ssl.create_default_context()
        for certificate in request["certificates"]:
            context.load_verify_locations(cadata=certificate)
        self.opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), Redirects())
        self.read_bytes, self.lock, self.ends = 0, threading.Lock(), time.monotonic() + TOTAL_S

    def get(self, path, most, begin=0, *, part=False):
        """Return the bytes of a quoted path: up to `most`, or with `part` those from `begin` that exist."""
        request = urllib.request.Request(f"{self.endpoint}/{path}")
        request.add_header("User-Agent", "sparkops")
        if self.token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        if part:
            request.add_header("Range", f"bytes={begin}-{begin + most - 1}")
        try:
            with self.opener.open(request, timeout=max(min(REQUEST_S, self.ends - time.monotonic()), 0.1)) as reply:
                if part and reply.status == 206 and not stated(reply, begin):
                    raise Refused("answer", f"{path}: another part than bytes {begin} to {begin + most - 1}")
                skipped = begin if reply.status != 206 else 0  # a server without ranges sends the whole file
                content = self.body(reply, path, skipped + most + (not part))
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Refused(kind(error, self.token), f"{path}: {type(error).__name__}: {error}"[:500]) from None
        if not part and len(content) > most:
            raise Refused("answer", f"{path}: larger than {most // MEBI} MiB")
        return content[skipped:]

    def body(self, reply, path, most):
        """Return up to `most` bytes of a reply. Raises Refused where all replies together are too large or slow."""
        content = bytearray()
        while len(content) < most and (piece := reply.read1(min(PIECE, most - len(content)))):
            content += piece
            with self.lock:
                self.read_bytes += len(piece)
            if self.read_bytes > MAX_TOTAL:
                raise Refused("answer", f"{path}: more than {MAX_TOTAL // MEBI} MiB of headers")
            if time.monotonic() > self.ends:
                raise Refused("slow", f"{path}: not read within {TOTAL_S:g} s")
        return bytes(content)


def stated(reply, begin):
    """Return whether a partial reply begins where it was requested."""
    return (reply.headers.get("Content-Range") or "").startswith(f"bytes {begin}-")


def kind(error, token):
    """Return the kind of a failed request."""
    if isinstance(error, urllib.error.HTTPError):
        named = CODES.get(error.headers.get("X-Error-Code", ""))
        if error.code == 401 and not named:
            return "token" if token else "unknown"  # a hub hides what an account may not see
        return named or STATUSES.get(error.code) or ("server" if error.code >= 500 else "answer")
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return "certificate"
    return "unreachable" if isinstance(error, OSError) else "answer"


def fetch(request, directory):
    """Write what describes a model into an empty directory, and return its commit. Raises Refused."""
    if not NAME.fullmatch(request["id"]) or ".." in request["id"]:
        raise Refused("name", request["id"][:100])
    hub = Hub(request)
    revision = urllib.parse.quote(request["revision"] or "main", safe="")
    commit, names = listed(hub.get(f"api/models/{hub.model}/revision/{revision}", MAX_LIST))
    names = [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in request["exclude"])]
    place = f"{hub.model}/resolve/{commit}"
    small = {"config.json": checkpoint.MAX_JSON, "hf_quant_config.json": checkpoint.MAX_JSON}
    index = next((name for name in names if name.endswith(checkpoint.INDEX)), None)
    small.update({index: checkpoint.MAX_INDEX} if index else {})
    for name in [name for name in small if name in names]:
        write(directory, name, hub.get(f"{place}/{name}", small[name]))
    shards = [name for name in names if name.endswith(checkpoint.SHARD)]
    if index:
        shards = sorted(set(checkpoint.weight_map(os.path.join(directory, index)).values()) & set(shards))
    if len(shards) > MOST_SHARDS:
        raise Refused("answer", f"more than {MOST_SHARDS} shards")
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        list(pool.map(lambda name: header(hub, place, directory, name), shards))
    finally:
        pool.shutdown(cancel_futures=True)
    return commit


def listed(text):
    """Return the commit and the names of the files beside config.json. Raises Refused for another reply."""
    try:
        reply = checkpoint.loads(text)
        commit, names = reply["sha"], sorted(file["rfilename"] for file in reply["siblings"])
    except (ValueError, KeyError, TypeError):
        raise Refused("answer", "the list of files is not that of a model") from None
    if not isinstance(commit, str) or not re.fullmatch("[0-9a-f]{7,64}", commit):
        raise Refused("answer", "the list of files has no commit")
    return commit, [name for name in names if os.path.basename(name) == name and "\0" not in name]


def header(hub, place, directory, name):
    """Write a shard with its header and its length alone: the length follows from the header. Raises Refused."""
    path, file = f"{place}/{urllib.parse.quote(name)}", os.path.join(directory, name)
    text = hub.get(path, FIRST, part=True)
    if len(text) == FIRST:
        (length,) = checkpoint.LENGTH.unpack(text[: checkpoint.LENGTH.size])
        more = checkpoint.LENGTH.size + min(length, checkpoint.MAX_HEADER) - FIRST
        text += hub.get(path, more, FIRST, part=True) if more > 0 else b""
    write(directory, name, text)
    try:
        tensors, begin = checkpoint.header(file)
    except ValueError as error:
        raise Refused("answer", f"{name[:200]}: {error}") from None
    size = checkpoint.length(tensors, begin)
    if size > MAX_SHARD:
        raise Refused("answer", f"{name[:200]}: {size} bytes by its header")
    os.truncate(file, size)


def write(directory, name, content):
    """Write a small file."""
    with open(os.path.join(directory, name), "wb") as file:
        file.write(content)
