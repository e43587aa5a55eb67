"""Describe a checkpoint by its config.json and the headers of its shards. Runs on the node; reads no tensor.

The second line of stdin has the directory, or the model at its hub, as JSON; the last line of stdout is the reply.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import checkpoint
import hub

CONFIG = "config.json"
MODELOPT = "hf_quant_config.json"  # older exports of ModelOpt have the quantization in this file

KINDS = 20_000  # names of tensors without their numbers; models have some hundreds


def describe(directory):
    """Return config, bytes of tensors by name, and bytes of the largest file; None without a config."""
    if not os.path.isfile(os.path.join(directory, CONFIG)):
        return None
    config = read(directory, CONFIG)
    if "quantization_config" not in config and os.path.isfile(os.path.join(directory, MODELOPT)):
        config["quantization_config"] = {"quant_method": "modelopt", **read(directory, MODELOPT)}
    names = shards(directory)
    if not names:
        raise ValueError("safetensors files not found")
    layers = (config.get("text_config") or config).get("num_hidden_layers") or 0
    tensors = {}
    for name in names:
        entries, _ = checkpoint.header(os.path.join(directory, name))
        for tensor, entry in entries.items():
            first, last = entry["data_offsets"]
            short = shortened(tensor, layers)
            tensors[short] = tensors.get(short, 0) + last - first
        if len(tensors) > KINDS:
            raise ValueError(f"more than {KINDS} kinds of tensors")
    largest = max(os.path.getsize(os.path.join(directory, name)) for name in names)
    return {"config": config, "tensors": tensors, "largest": largest}


def read(directory, name):
    """Return a JSON file of the checkpoint. Raises ValueError with its name."""
    try:
        content = checkpoint.read(os.path.join(directory, name))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{name}: expected a JSON object")
    return content


def shards(directory):
    """Return the files that an engine reads: those that the index names, else all of the directory itself."""
    names = sorted(name for name in os.listdir(directory) if name.endswith(checkpoint.SHARD))
    index = next((name for name in sorted(os.listdir(directory)) if name.endswith(checkpoint.INDEX)), None)
    if index is None:
        return names
    named = set(checkpoint.weight_map(os.path.join(directory, index)).values())
    missing = sorted(named - set(names))
    if missing:
        raise ValueError(f"{missing[0]} is missing: {index} names it")
    return sorted(named)


def shortened(tensor, layers):
    """Return a tensor's name with its numbers as `*`; the first one as `+` where it is past the last layer."""
    parts, numbered = tensor.split("."), False
    for place, part in enumerate(parts):
        if part.isdigit():
            parts[place] = "+" if not numbered and layers and int(part) >= layers else "*"
            numbered = True
    return ".".join(parts)


def describe_at_hub(request):
    """Return the same of a model that only its hub has, with its commit. A directory without config is an error."""
    with tempfile.TemporaryDirectory(prefix="sparkops-") as directory:
        try:
            commit = hub.fetch(request, directory)
        except hub.Refused as refused:
            return {"kind": refused.kind, "text": refused.text}
        answer = describe(directory)
    if answer is None:
        raise ValueError(f"{CONFIG} is missing")
    return {**answer, "commit": commit}


def main():
    """Describe the requested directory or model."""
    request = json.loads(sys.stdin.buffer.readline())
    try:
        answer = describe(request["directory"]) if "directory" in request else describe_at_hub(request)
    except ValueError as error:
        answer = {"error": str(error)}
    except OSError as error:
        sys.exit(f"{error.filename or request.get('directory', 'files of the hub')}: {error.strerror}")
    print(json.dumps(answer))


main()
