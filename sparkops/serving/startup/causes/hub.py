"""Known causes of failed starts: the model hub and Xet."""

from __future__ import annotations

from sparkops.engines.causes import Cause

HTTP = "huggingface_hub/utils/_http.py"
DOWNLOAD = "huggingface_hub/file_download.py"
PULL = "Download the model before the start with `sparkops models pull`, which continues an interrupted download"
AT_HUB = r"huggingface\.co|hf\.co|hf-mirror|xethub"
"""Servers of the hub."""
IN_HUB = r"huggingface|hf_hub|hf_xet|snapshot_download|hf-mirror|hf\.co"
"""What a log has where the hub was asked: an answer or a broken connection may be that of another server."""
RETRIED = r"[Rr]etry(?:ing)? (?:in|after|\d)|[Rr]etrying|thrown while requesting|Will ignore|retry #"
"""Words of a line that is followed by another attempt."""

ANSWER = r"40[134] (?:Client Error|Unauthorized|Forbidden|Not Found)|Client error '40[134]"
"""An answer of the hub that says little: the lines after it tell what it refused."""
LOCAL = r"LocalEntryNotFound"


def _refused(pattern: str, cause: str, step: str) -> tuple[Cause, Cause]:
    """Return the causes of a refusal of the hub: for the line that tells it, and for the answer before it."""
    return (
        Cause(pattern, cause, step, source=HTTP, unless=LOCAL),
        Cause(ANSWER, cause, step, source=HTTP, unless=LOCAL, beside=pattern),
    )


CAUSES: tuple[Cause, ...] = (
    Cause(
        r"HTTP Error 429 thrown",
        "the hub limits the rate of requests, and this address or account has made too many (429)",
        "Wait some minutes; download once with sparkops models pull, so that a start asks no hub.",
        source="huggingface_hub/utils/_http.py",
    ),
    Cause(
        r"Still waiting to acquire lock on (\S{1,300})",
        "another process holds the lock of the download {}, or one that was killed left it behind",
        "Stop the other start that downloads the same model, or remove the file on the node; then run `sparkops models "
        "pull`.",
        source=DOWNLOAD,
        quiet=True,
    ),
    *_refused(
        r"enable access to public gated repositories in your fine-grained token settings",
        "the hub's token is fine-grained and has no permission for public gated repositories",
        "Permit them in the settings of the token on the hub, or use a token of the type read: `sparkops models pull "
        "--token-file FILE`.",
    ),
    *_refused(
        r"is restricted and you are not in the authorized list|Your request to access model|awaiting a review from the "
        r"repo authors",
        "the model is gated, and the account of the token has not been granted access to it",
        "Request access on the model's page on the hub, then run `sparkops models pull` with a token of that account "
        "(--token-file, HF_TOKEN), or take a model that is not gated (model.id).",
    ),
    *_refused(
        r"Access to model \S{1,128} is restricted\. You must|GatedRepoError|trying to access a gated repo|Cannot "
        r"access gated repo|is a gated repository",
        "the model is gated: the hub gives it only to accounts that have accepted its terms, and the download brought "
        "no token of such an account",
        "Accept the terms (request access) on the model's page on the hub, then run `sparkops models pull` with a "
        "token of that account (--token-file, HF_TOKEN), or take a model that is not gated (model.id).",
    ),
    *_refused(
        r"Revision ?Not ?Found(?:Error)?\b|Invalid rev id: \S{1,128}|is not a valid git identifier",
        "the model's repository has no such revision (commit, branch or tag)",
        "Correct model.revision of the recipe (or revision in serve.args), or remove it; `sparkops recipe lock` pins "
        "the newest commit.",
    ),
    *_refused(
        r"Repo(?:sitory)? ?Not ?Found(?:Error)?\b|is not a local folder and is not a valid model identifier|is not a "
        r"local folder or a valid repository name",
        "the hub has no repository of this name: the name (model.id) is wrong or does not exist, or the repository is "
        "private and the download brought no token with access",
        "Correct model.id of the recipe (or the model that serve.args names), or run `sparkops models pull` with a "
        "token that has access (--token-file, HF_TOKEN).",
    ),
    *_refused(
        r"\bEntry Not Found for url|(?:Remote)?EntryNotFoundError: 404",
        "the model's repository has no file of this name: a wrong model.file or model.revision, or a repository of "
        "another format",
        "Compare the list of files on the model's page on the hub with model.id, model.file and model.revision.",
    ),
    Cause(
        r"Invalid (?:username or password|credentials in Authorization header|user token)|User Access Token .{0,64} is "
        r"expired|401 (?:Client Error|Unauthorized)|Client error '401",
        "the hub refuses the token (401): it is expired, revoked or incomplete; or the repository is private or does "
        "not exist, and no token was given",
        "Create a new token on the hub and run `sparkops models pull --token-file FILE` (HF_TOKEN); check model.id.",
        source=HTTP,
        unless=r"vllm-openai|registry|docker",
        beside=IN_HUB,
    ),
    Cause(
        r"LocalTokenNotFoundError|Token is required \(.{0,64}but no token found",
        "the download requires a token of the hub, and there is none in the container",
        "Run `sparkops models pull --token-file FILE` (HF_TOKEN); the weights need no token at the start then.",
        source="huggingface_hub/utils/_headers.py",
    ),
    Cause(
        r"[Ii]llegal header value b?.Bearer|header value: b?.Bearer",
        "the hub's token (HF_TOKEN) is empty, or has a space or a line break",
        "Correct the token, or remove it; `sparkops models pull --token-file FILE` reads it from a file.",
        source="httpx, requests",
    ),
    Cause(
        r"403 (?:Client Error|Forbidden)|Client error '403|Make sure your token has the correct "
        r"permissions|DisabledRepoError|Access to this resource is disabled",
        "the hub denies access (403): the token lacks the permission for this repository, the repository is disabled, "
        "or a proxy or firewall blocks the download",
        "Check the permissions of the token and the model's page on the hub, then run `sparkops models pull "
        "--token-file FILE` (HF_TOKEN); check the proxy of the node.",
        source=HTTP,
        unless=RETRIED,
        beside=IN_HUB,
    ),
    Cause(
        r"416 (?:Client Error|Requested Range|Range Not)|Client error '416|Requested Range Not Satisfiable",
        "a partial file (.incomplete) of an interrupted download does not fit the file on the hub, so the download "
        "cannot be resumed",
        "Remove the .incomplete files of the model in the cache (on the node, below model_dir or HF_HOME), then "
        "download it again: `sparkops models pull`.",
        source=DOWNLOAD,
        unless=RETRIED,
        beside=IN_HUB,
    ),
    Cause(
        r"429 (?:Client Error|Too Many)|Client error '429|Too Many Requests|rate[ "
        r"-]limit(?:ed)?\b.{0,64}(?:IP|hub|api|token)|reached your '\w{1,32}' rate limit",
        "the hub limits the rate of requests, and this address or account has made too many (429)",
        "Wait some minutes, then download with a token (`sparkops models pull --token-file FILE`, HF_TOKEN), which has "
        "a higher limit; with HF_HUB_OFFLINE=1 in serve.env a start asks nothing of the hub.",
        source=HTTP,
        unless=RETRIED + r"|toomanyrequests|docker",
        beside=IN_HUB,
    ),
    Cause(
        r"(?:50[0234]) (?:Server Error|Internal|Bad Gateway|Service|Gateway)|Server error '50\d|HfHubHTTPError: 50\d",
        "the hub, or a proxy before it, answered with an error of its own (5xx)",
        f"Try again later (status.huggingface.co). {PULL}.",
        source=HTTP,
        unless=RETRIED,
        beside=IN_HUB,
    ),
    Cause(
        r"Fast download using 'hf_transfer' is enabled|using `hf_transfer`",
        "HF_HUB_ENABLE_HF_TRANSFER is set, and the package hf_transfer is missing in the image or fails",
        "Remove HF_HUB_ENABLE_HF_TRANSFER from serve.env, or add hf_transfer to image.packages. " + PULL + ".",
        source=DOWNLOAD,
    ),
    Cause(
        r"file is too large to be downloaded using the regular|need to install the hf_xet package",
        "the file is kept in Xet storage, for which the image lacks the package hf_xet",
        f"{PULL}, or add hf_xet to image.packages.",
        source=DOWNLOAD,
    ),
    Cause(
        r"(?:OSError: |RuntimeError: |Data processing error|I/O error|IO Error|huggingface).{0,256}No space left on "
        r"device.{0,64}(?:huggingface|/hub/|models--|\.incomplete|os error 28)|Not enough free disk space to download",
        "the disk with the cache of the hub is too small for the model, and filled up during the download",
        "Free space on the node (df, `sparkops prune`, `sparkops models list`) or move model_dir to a larger disk; "
        "then run `sparkops models pull`.",
        source=DOWNLOAD,
        unless=r"Warning|warn",
    ),
    Cause(
        r"No space left on device",
        "the disk with the cache of the hub filled up during the download of the model",
        "Free space on the node (df, `sparkops prune`, `sparkops models list`) or move model_dir to a larger disk; "
        "then run `sparkops models pull`.",
        source=DOWNLOAD,
        beside=r"huggingface_hub/(?:file_download|_snapshot_download|utils/_xet)\.py|hf_hub_download|"
        r"snapshot_download\(",
        unless=r"/shm\b|shm_open|inductor|triton|flashinfer|nvcc|vllm/torch_compile",
    ),
    Cause(
        r"(?:Permission denied|PermissionError).{0,256}(?:huggingface|/hub/|models--|\.locks"
        r"|/HF_HOME)|(?:Data processing error|[Xx]et).{0,256}Permission denied|PermissionError at (\S{1,300}) "
        r"when downloading",
        "the user of the container may not write to the cache of the hub: its directory belongs to another user",
        "Change the owner of the directory on the node (sudo chown -R, below model_dir), or set HF_HOME in serve.env "
        "to a directory that the container may write; then run `sparkops models pull`.",
        source=DOWNLOAD,
        unless=r"Will ignore|[Ii]gnor|xet/logs|telemetry|usage_stats",
    ),
    Cause(
        r"Read-only file system.{0,256}(?:huggingface|/hub/|models--|\.locks)",
        "the cache of the hub is mounted read-only, and the model is not complete in it",
        f"{PULL}, or set HF_HOME in serve.env to a directory that the container may write.",
        source=DOWNLOAD,
        unless=r"Will ignore|[Ii]gnor|[Cc]ould not cache",
    ),
    Cause(
        r"Consistency check failed: file should be of size (\d{1,16}) but has size (\d{1,16})",
        "the download broke off: a file has {1} bytes in place of {0}",
        f"{PULL}. Remove the incomplete file in the cache if it fails again.",
        source=DOWNLOAD,
    ),
    Cause(
        r"cached snapshot for '([^']{1,128})'.{0,200} is incomplete: (\d{1,9}) file",
        "the model {0} is incomplete in the cache, {1} files are missing, and the server runs offline or the hub does "
        "not answer",
        f"{PULL}.",
        source="huggingface_hub/_snapshot_download.py",
    ),
    Cause(
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|SSLCertVerificationError|invalid peer certificate",
        "the certificate of the hub (or of a proxy that takes its place) is not trusted in the container, or the clock "
        "of the node is wrong",
        "Add the certificate of your proxy to the image and set SSL_CERT_FILE or REQUESTS_CA_BUNDLE in serve.env, and "
        f"check `date` on the node. Or do without the network: {PULL[0].lower()}{PULL[1:]}.",
        source="Python (ssl), requests, httpx",
        unless=RETRIED,
        beside=IN_HUB,
    ),
    Cause(
        rf"(?:SSLError|SSLEOFError|EOF occurred in violation of protocol).{{0,256}}(?:{AT_HUB})|(?:{AT_HUB})"
        r".{0,256}(?:SSLError|SSLEOFError|EOF occurred in violation)|SSLZeroReturnError|\[SSL: |EOF occurred in "
        r"violation of protocol",
        "the encrypted connection (TLS) to the hub broke off: a proxy or firewall cuts it, or the network does not "
        "reach the hub",
        f"Check the network and proxy of the node: `curl -I https://huggingface.co`. {PULL}.",
        source="Python (ssl), requests, httpx",
        unless=RETRIED,
        beside=IN_HUB,
    ),
    Cause(
        r"ProxyError|[Cc]annot connect to proxy|Tunnel connection failed|407 Proxy",
        "the proxy that HTTP_PROXY or HTTPS_PROXY names does not answer, or refuses the connection",
        f"Correct or remove HTTPS_PROXY, HTTP_PROXY and NO_PROXY in serve.env (and for Docker on the node). {PULL}.",
        source="requests, httpx",
        unless=RETRIED,
        beside=IN_HUB,
    ),
    Cause(
        rf"(?:Failed to resolve|NameResolutionError|Name or service not known|[Tt]emporary failure in name "
        rf"resolution|failed to lookup address|dns error|nodename nor "
        rf"servname).{{0,256}}(?:{AT_HUB})|(?:{AT_HUB}).{{0,256}}(?:Failed "
        r"to resolve|NameResolutionError|Name or service not known|name resolution|dns error|failed to "
        r"lookup)|(?:httpx|httpcore2?|requests|urllib3)\.?[\w.]{0,64}: .{0,128}(?:Name or service not known|name "
        r"resolution)",
        "the name of the hub (huggingface.co) cannot be resolved in the container: it has no DNS, or no network",
        "Check DNS and network of the node: `getent hosts huggingface.co`, /etc/resolv.conf. Or download the model "
        "first (`sparkops models pull`) and set HF_HUB_OFFLINE=1 in serve.env.",
        source="requests, httpx",
        unless=RETRIED,
    ),
    Cause(
        r"Distant resource does not seem to be on huggingface\.co|does not seem to be served by a Hugging Face Hub|is "
        r"missing the .X-Repo-Commit. header|Distant resource does not have (?:an ETag|a Content-Length)",
        "the address that answered is no hub: HF_ENDPOINT names another server, or a proxy changes the answers",
        "Correct or remove HF_ENDPOINT in serve.env (for a download: `sparkops models pull --endpoint URL`), and check "
        "the proxy of the node.",
        source=DOWNLOAD,
    ),
    Cause(
        r"Request URL (?:is missing|has an unsupported) .{0,32}protocol|(?:No scheme "
        r"supplied|MissingSchema|InvalidSchema)",
        "an address of the hub has no https:// before it, as in a wrong HF_ENDPOINT or proxy",
        "Correct HF_ENDPOINT (and HTTPS_PROXY) in serve.env: with https:// before the name.",
        source="httpx, requests",
        beside=IN_HUB,
    ),
    Cause(
        r"(?:Data processing error|File reconstruction error|CAS (?:service|client) error"
        r"|Internal Writer Error|[Xx]et\w{0,16}(?:Error|Exception)).{0,256}(?:Too many open files"
        r"|os error 24\b)",
        "the download from the hub's Xet storage opened more files and connections than the container may "
        "(limit nofile)",
        "Raise nofile in `default-ulimits` of /etc/docker/daemon.json on the node, or set "
        "HF_HUB_DISABLE_XET=1 in serve.env; or download the model before the start: `sparkops models pull`.",
        source="hf_xet (xet-core)",
    ),
    Cause(
        r"(?:Data processing error|File reconstruction error|CAS (?:service|client) error"
        r"|Internal Writer Error|[Xx]et\w{0,16}(?:Error|Exception))(?:: (.{1,200}))?|hf_xet",
        "the download from the hub's Xet storage (CAS) failed ({}): the network broke off, the hub refused "
        "it, or a file could not be written",
        "Check network and free space of the node (df), set HF_HUB_DISABLE_XET=1 in serve.env if it fails "
        "again (its error is then clearer), and download the model before the start: `sparkops models pull`.",
        source="hf_xet (xet-core)",
        unless=RETRIED + r"|not installed|[Ff]alling back|No module named|[Cc]annot import|requires",
    ),
    Cause(
        r"Cannot reach https?://\S{1,300}: offline mode is enabled|OfflineModeIsEnabled|outgoing traffic has been "
        r"disabled|Cannot find an appropriate cached snapshot folder|HF_HUB_OFFLINE=0",
        "the server runs offline (HF_HUB_OFFLINE), and the model or a file of it is not in the cache of the container: "
        "it was not downloaded, or is named by its name on the hub in place of its directory",
        "Download it with `sparkops models pull` and name its directory (model.path, /models/...), also for a draft "
        "model, tokenizer or adapter in serve.args; or remove HF_HUB_OFFLINE from serve.env.",
        source="huggingface_hub/_snapshot_download.py",
    ),
    Cause(
        r"We couldn't connect to .{1,128} to load|(?:cannot|couldn't|can't) find (?:the requested files|them|it|the "
        r"appropriate snapshot folder).{0,64}(?:cache|local disk)|An error happened while trying to locate the files? "
        r"on the Hub|LocalEntryNotFoundError",
        "the hub cannot be reached from the container or did not give a file of the model, and the file is "
        "not in its cache: no network, a firewall or a proxy, or a model that is named by its name on the hub "
        "in place of its directory",
        "Check the network of the node (`curl -I https://huggingface.co`), or download the model first with `sparkops "
        "models pull` and name its directory (model.path).",
        source="transformers/utils/hub.py, huggingface_hub/file_download.py",
    ),
    Cause(
        rf"(?:{AT_HUB}).{{0,300}}(?:timed out|[Cc]onnection (?:refused|reset|aborted)|[Nn]etwork is unreachable|No "
        rf"route "
        r"to host|Max retries exceeded|RemoteDisconnected|IncompleteRead)|(?:timed out|[Cc]onnection "
        r"(?:refused|reset|aborted)|[Nn]etwork is "
        r"unreachable).{0,300}(?:huggingface\.co|hf\.co)|(?:httpx|httpcore2?|requests|urllib3)\.[\w.]{0,64}(?:Timeout|"
        r"ConnectError|ConnectionError|ProtocolError|ReadError|ChunkedEncodingError|NetworkError)\b",
        "the connection to the hub failed or broke off: no network, a firewall or proxy, or a slow line",
        f"Check the network of the node: `curl -I https://huggingface.co`. {PULL}; then set HF_HUB_OFFLINE=1 in "
        f"serve.env.",
        source="requests, httpx",
        unless=RETRIED + r"|127\.0\.0\.1|localhost|0\.0\.0\.0|/(?:health|get_model_info|model_info|v1/|generate)",
        beside=r"huggingface|hf_hub|hf_xet|snapshot_download",
    ),
    Cause(
        r"Repo id must (?:be in the form|use alphanumeric chars|be a string).{0,128}: '([^']{1,256})'|Cannot have -- "
        r"or \.\. in repo_id: '([^']{1,256})'",
        "the directory {0}{1} does not exist in the container, so it was taken for a name on the hub: this node does "
        "not have the model, or the path is misspelt or not mounted",
        "Name a path below /models, where model_dir of the node is mounted (model.path; model, tokenizer and adapters "
        "in serve.args), and bring the model to the node: `sparkops models pull`, `sparkops models list`.",
        source="huggingface_hub/utils/_validators.py",
        unless=r"Error retrieving",
    ),
    Cause(
        r"(?:ModelInfo|SafeTensorsInfo|RepoSibling|RepoFile|BlobLfsInfo)\b.{0,64}(?:unexpected keyword "
        r"argument|missing \d{1,2} required)|(?:unexpected keyword argument|KeyError:) "
        r"'(?:sharded|xetEnabled|safetensors)'",
        "the huggingface_hub library in the image is older than the answers of the hub, which it cannot read",
        "Add a newer huggingface_hub to image.packages and run `sparkops build`, or take a newer image; or download "
        "the model first (`sparkops models pull`) and set HF_HUB_OFFLINE=1 in serve.env.",
        source="huggingface_hub/hf_api.py",
    ),
    Cause(
        r"Using vLLM with ModelScope needs|install modelscope|No module named 'modelscope'",
        "VLLM_USE_MODELSCOPE (SGLANG_USE_MODELSCOPE) is set, and the image lacks the package modelscope",
        "Remove the variable from serve.env, or add modelscope to image.packages and run `sparkops build`.",
        source="vllm/transformers_utils/__init__.py",
    ),
    Cause(
        r"modelscope\.\w{1,32}[\w.]{0,64}(?:Error|Exception)",
        "ModelScope has no such model or revision, or cannot be reached",
        "Check model.id and model.revision, or download the model first with `sparkops models pull`.",
        source="modelscope",
    ),
)
