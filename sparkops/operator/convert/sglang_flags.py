"""Convert the flags of an SGLang server. The parser of its finished image judges them, as no table has its flags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sparkops.config import opt_in
from sparkops.config.fields import PUBLIC, as_name
from sparkops.engines.sglang import NODES, SGLANG
from sparkops.operator.convert import command_lines
from sparkops.operator.convert.conversion import Conversion, Kept, Kind, directory
from sparkops.operator.convert.flag_types import SIZE
from sparkops.operator.convert.server_flags import (
    DRAFTS,
    DROPPED,
    FILE,
    JUDGED,
    MODELS,
    SETS,
    add_argument,
    add_revisions,
    invalid,
    missing_file,
    not_json,
    opt_ins,
    provided,
    remote_code,
    with_draft,
    with_template,
    without_value,
)

RANKS = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")
DRAFT_REVISION = "speculative-draft-model-revision"
NAMES: Mapping[str, str] = {
    "tp-size": "tensor-parallel-size",
    "pp-size": "pipeline-parallel-size",
    "dp-size": "data-parallel-size",
    "model-path": "model",
    **{name: name for name in (*RANKS, "model", SGLANG.name_flag, SGLANG.share_flag, SGLANG.window_flag)},
}
"""Flags that import reads itself, with their names there, which are those of vLLM for ranks and model."""
KEYS: Mapping[str, str] = {
    "gpu-memory-utilization": SGLANG.share_flag,
    "max-model-len": SGLANG.window_flag,
    "max-num-seqs": "max-running-requests",
    "chunked-prefill": "chunked-prefill-size",
}
"""Keys in `defaults` whose flag has another name (sparkrun/runtimes/sglang.py of spark-arena/sparkrun at 0129882)."""
ONE_NAME = "SGLang has one name; clients call"
KNOWN = (
    SGLANG.flags.harmless | {*SGLANG.flags.effects, *NAMES, "revision", DRAFT_REVISION} | SGLANG.flags.secrets
) | SGLANG.taken
"""The flags of SGLang that sparkops knows."""


def renamed(conversion: Conversion, flags: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the flags with the names that import reads, of which argparse takes each beginning of only one.

    Without a command they are the keys of `defaults`, of which sparkrun writes none that is false or null.
    """
    has_command = isinstance(conversion.original.get("command"), str)
    new: dict[str, Any] = {}
    for flag, value in flags:
        if not has_command and (value is None or value is False):
            continue
        key = flag if has_command else KEYS.get(flag, flag)
        meant = command_lines.full(key, KNOWN)
        key = meant[0] if len(meant) == 1 else key
        name = NAMES.get(key, key)
        conversion.spelled[name] = flag
        new[name] = value
    return new


def service(conversion: Conversion, flags: dict[str, Any], guess: str) -> str:
    """Remove the names for clients from the flags, and return the service: the first that it may have, or `guess`."""
    given = flags.pop(SGLANG.name_flag, None)
    words = given if isinstance(given, list) else [] if given in (None, True) else [given]
    names = [name for word in words for name in str(word).split()]
    if not names:
        return guess
    line = conversion.flag_line(SGLANG.name_flag)
    conversion.lines["service",] = line
    chosen = next((name for name in names if as_name(name) == name), as_name(directory(names[0]))) or guess
    for name in dict.fromkeys(names):
        if name != chosen:
            conversion.omit(line, f"{SGLANG.name_flag} {name}", f"{ONE_NAME} {chosen}", "loss")
    return chosen


def convert_flags(
    conversion: Conversion, flags: Mapping[str, Any], model: str, unknown: frozenset[str]
) -> dict[str, Any]:
    """Return `serve.args` of the new recipe. `unknown` are slots of the command without a value."""
    args: dict[str, Any] = {}
    for flag, original in flags.items():
        line = conversion.flag_line(flag)
        if flag in ("revision", DRAFT_REVISION) or (flag == "tokenizer-path" and original == model):
            continue
        value = with_template(conversion, flag, _with_draft(conversion, flag, original, model))
        if omission := _omission(conversion, flag, value, model, unknown):
            conversion.omit(line, flag, *omission)
            continue
        names = [name.removeprefix("no-") if value is True else name for name in _needs(flag, value)]
        conversion.kept += [Kept(line, name, f"{opt_in.UNKNOWN}; {JUDGED}", name) for name in names]
        add_argument(conversion, args, line, flag, value)
    add_revisions(conversion, flags.get("revision"), flags.get(DRAFT_REVISION))
    return args


def _needs(flag: str, value: Any) -> dict[str, str]:
    return dict(opt_in.of_flag(flag, value, "sglang"))


def _with_draft(conversion: Conversion, flag: str, value: Any, model: str) -> Any:
    """Return the value of a flag with the directory of its draft, which may be the model itself."""
    if flag in DRAFTS["sglang"] and value == model:
        return f"{MODELS}/{directory(model)}"
    return with_draft(conversion, flag, value)


def _omission(
    conversion: Conversion, flag: str, value: Any, model: str, unknown: frozenset[str]
) -> tuple[str, Kind] | None:
    """Return why a flag is not imported, and the kind of omission; None if it is imported."""
    first = flag.partition(".")[0]
    if taken := opt_in.abbreviated(first, SGLANG.taken):
        return DROPPED["nnodes"] if taken in NODES else DROPPED.get(taken, SETS), "note"
    if opt_in.abbreviated(first, SGLANG.flags.secrets):
        return PUBLIC, "loss"
    needs = _needs(flag, value)
    if flag == opt_in.REMOTE_CODE:
        return remote_code(conversion, needs)
    if loss := without_value(needs, value, unknown):
        return loss, "loss"
    if flag == SGLANG.template_flag and opt_in.image_template(value):
        return None
    if problem := not_json(flag, value) or provided(conversion, flag, value, _problem(conversion, flag, value, model)):
        return problem, "refusal"
    is_known = any(effect != opt_in.UNKNOWN for effect in needs.values())
    if loss := invalid(flag, value) or (opt_ins(needs) if is_known else ""):
        return loss, "loss"
    return None


def _problem(conversion: Conversion, flag: str, value: Any, model: str) -> str:
    """Return why no SGLang starts with a flag on a node; empty if the parser of the image must judge it."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if flag.startswith("-"):
        return f"SGLang has no flag {flag}"
    if flag == SGLANG.share_flag and not (number and 0 < value <= 1):
        return f"expected a share of the memory above 0 and up to 1, got {value}"
    if flag == SGLANG.window_flag and not (
        (isinstance(value, int) and number and value > 0) or SIZE.fullmatch(str(value))
    ):
        return f"expected a number of tokens, got {value}"
    if flag in DRAFTS["sglang"] and not _is_on_node(conversion, value, model):
        return f"expected OWNER/NAME of a draft model, got {value}"
    own_template = flag == SGLANG.template_flag and not FILE.fullmatch(str(value))
    return "" if own_template else missing_file(flag, value)


def _is_on_node(conversion: Conversion, value: Any, model: str) -> bool:
    """Return whether the value of a flag is the directory of the model, or of its draft."""
    names = [directory(model), *([conversion.draft["path"]] if conversion.draft else [])]
    return value in [f"{MODELS}/{name}" for name in names]
