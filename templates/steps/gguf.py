"""Write a checkpoint of Qwen3 as one GGUF file, which llama.cpp loads. For small models: nothing is quantized.

    file      name of the file in the output directory (default: model.gguf)

The format: docs/gguf.md of ggml, and ggml/include/gguf.h of llama.cpp (llama-cpp-python 0.3.36). Names of tensors and
values are those of its own converter (conversion/qwen.py, gguf-py/gguf/constants.py). Tensors of one dimension become
F32, because llama.cpp has no kernels for norms in BF16; the others keep their type. The tokenizer must split text as
GPT-2's does, such as that of the tiny model of `sparkops demo`.
"""

from __future__ import annotations

import json
import os
import struct

import checkpoint
import partial
import shards
import step

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9
PACKED = {UINT32: "<I", INT32: "<i", FLOAT32: "<f"}
TYPES = {"F32": 0, "F16": 1, "BF16": 30}  # ggml/include/ggml.h
ORDINARY, CONTROL = 1, 3  # src/llama-vocab.h
PARTS = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def main():
    """Read everything, then write the file."""
    request = step.read_request("file", inputs=("base",))
    step.finish(lambda: convert(request))


def convert(request):
    """Write the file into the partial directory, with its marker."""
    base, output = request["inputs"]["base"], request["output"]
    config, words = read(base, "config.json"), read(base, "tokenizer.json")
    if config.get("model_type") != "qwen3":
        raise ValueError(f"{base} is a model of type {config.get('model_type')!r}, expected qwen3")
    if words["model"]["type"] != "BPE" or words["pre_tokenizer"]["type"] != "ByteLevel":
        raise ValueError(f"{base} has a tokenizer that does not split text as GPT-2's does")
    tensors = shards.Checkpoint(base).tensors
    handle = partial.claim(output, f"gguf {request['marker']['made']}")
    file = gguf(values(base, config, words), [entry(name, tensor) for name, tensor in sorted(tensors.items())])
    checkpoint.write(os.path.join(output, request["args"].get("file", "model.gguf")), file)
    checkpoint.write_marker(output, request["marker"])
    os.close(handle)
    step.say(f"{len(tensors)} tensors, {len(file)} bytes")


def read(directory, name):
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def values(base, config, words):
    """Return (name, type, value) of each value before the tensors."""
    tokens, control = vocabulary(words, config["vocab_size"])
    theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    yield "general.architecture", STRING, "qwen3"
    yield "general.name", STRING, os.path.basename(base)
    for name, key in (
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
    ):
        yield f"qwen3.{name}", UINT32, config[key]
    yield "qwen3.rope.freq_base", FLOAT32, theta
    yield "qwen3.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"]
    yield "tokenizer.ggml.model", STRING, "gpt2"
    yield "tokenizer.ggml.pre", STRING, "gpt-2"
    yield "tokenizer.ggml.tokens", ARRAY, (STRING, tokens)
    yield "tokenizer.ggml.token_type", ARRAY, (INT32, [CONTROL if word in control else ORDINARY for word in tokens])
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in words["model"]["merges"]]
    yield "tokenizer.ggml.merges", ARRAY, (STRING, merges)
    yield "tokenizer.ggml.eos_token_id", UINT32, config["eos_token_id"]
    yield "tokenizer.ggml.padding_token_id", UINT32, config["pad_token_id"]
    with open(os.path.join(base, "chat_template.jinja"), encoding="utf-8") as file:
        yield "tokenizer.chat_template", STRING, file.read()


def vocabulary(words, size):
    """Return the tokens in order, and the control tokens among them."""
    numbered = {number: word for word, number in words["model"]["vocab"].items()}
    control = {added["content"] for added in words["added_tokens"] if added["special"]}
    numbered.update({added["id"]: added["content"] for added in words["added_tokens"]})
    return [numbered.get(number, f"[PAD{number}]") for number in range(size)], control


def entry(name, tensor):
    """Return name, dimensions, type and bytes of a tensor as GGUF has them: the innermost dimension first."""
    place, _, _ = name.rpartition(".")
    layer, named = "", place
    if place.startswith("model.layers."):
        number, _, named = place.removeprefix("model.layers.").partition(".")
        layer = f"blk.{number}."
    if named not in PARTS or tensor.dtype not in TYPES:
        raise ValueError(f"{name} of type {tensor.dtype}: expected a tensor of Qwen3 in F32, F16 or BF16")
    with open(tensor.path, "rb") as file:
        file.seek(tensor.begin)
        content = file.read(tensor.size)
    kind = tensor.dtype
    if len(tensor.shape) == 1 and kind == "BF16":
        content, kind = b"".join(b"\0\0" + content[at : at + 2] for at in range(0, len(content), 2)), "F32"
    return f"{layer}{PARTS[named]}.weight", tensor.shape[::-1], TYPES[kind], content


def gguf(metadata, tensors):
    """Return the bytes of a file."""
    metadata = list(metadata)
    head = [MAGIC, struct.pack("<IQQ", VERSION, len(tensors), len(metadata))]
    for name, kind, value in metadata:
        head += [text(name), struct.pack("<I", kind), packed(kind, value)]
    data, at = [], 0
    for name, dimensions, kind, content in tensors:
        shape = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        head += [text(name), shape, struct.pack("<IQ", kind, at)]
        data.append(padded(content))
        at += len(data[-1])
    return padded(b"".join(head)) + b"".join(data)


def packed(kind, value):
    """Return the bytes of a value; of an array also its type and length."""
    if kind == ARRAY:
        of, items = value
        return struct.pack("<IQ", of, len(items)) + b"".join(packed(of, item) for item in items)
    return text(value) if kind == STRING else struct.pack(PACKED[kind], value)


def text(value):
    content = value.encode()
    return struct.pack("<Q", len(content)) + content


def padded(content):
    return content + b"\0" * (-len(content) % ALIGNMENT)


main()
