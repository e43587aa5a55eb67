"""Convert flags and environment of a vLLM server: imported, omitted, or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sparkops.config import opt_in
from sparkops.config.fields import EnvName, Flag, FlagValue, Value
from sparkops.config.image import CHAT_TEMPLATES
from sparkops.engines import ENGINES
from sparkops.engines.flags import READS
from sparkops.operator.convert import command_lines, flag_types, mods
from sparkops.operator.convert.conversion import Conversion, Kept, Kind
from sparkops.operator.convert.flag_types import Words
from sparkops.operator.convert.releases import RELEASES, Release

DROPPED = {
    "host": "sparkops sets the address of the engine",
    **dict.fromkeys(
        ("nnodes", "node-rank", "master-addr", "master-port", "headless", "data-parallel-size-local"),
        "sparkops starts the ranks of a replica",
    ),
}
LOADERS = {
    "instanttensor": "instanttensor==0.2.2",
    "runai_streamer": "runai-model-streamer==0.17.0",
    "runai_streamer_sharded": "runai-model-streamer==0.17.0",
    "tensorizer": "tensorizer==2.10.1",
}
"""The package that a load format needs in addition to the wheel of vLLM 0.23.0 (extras of these names in its metadata;
versions of 22 November 2026). The wheel includes fastsafetensors."""
SETS = "sparkops sets this flag"
DRAFTS: Mapping[str, frozenset[str]] = {
    "vllm": frozenset({"spec-model"}),
    "sglang": frozenset({"speculative-draft-model-path", "speculative-draft-model"}),
}
"""The flags of each engine that name a draft model."""
JUDGED = "the parser of the image judges it"
REVISIONS = dict.fromkeys(
    ("tokenizer-revision", "code-revision"), "the engine reads the files of the model's directory, at `model.revision`"
)
COMMIT = re.compile(r"[A-Za-z0-9][\w./-]*")
NAMED = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+$|[/.~${]")
"""The beginning of a word that may name a model: a repository, a path, or a variable."""
PATHS = frozenset(
    {"chat-template", "tokenizer", "tokenizer-path", "hf-config-path", "generation-config", "lora-modules"}
)
"""Flags that may name a file without which vLLM does not start."""
LATER = frozenset({opt_in.UNKNOWN, READS, opt_in.NOT_JSON})
"""Effects of flags of which a refusal by vLLM, or a missing file, is the better reason."""
INLINE = ("{", "vllm", "auto")
FILE = re.compile(r"[./~].*|.*\.(jinja2?|json|ya?ml|py|txt)")

SHOWN_GIB = 121.7
"""Memory of a Spark in GiB as vLLM shows it, as in the shipped recipes."""
IN_GIB = "gpu-memory-utilization-gb"
MODELS = "/models"
"""Where a container sees the node's model directory, as in node/docker/commands.py."""
LIKE = 0.85
"""Least likeness (difflib's ratio) of an unknown flag to one that was meant; a flag of a fork has none."""
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
FLAG, FLAG_VALUE = TypeAdapter[str](Flag), TypeAdapter[Any](FlagValue)
ENV_NAME, ENV_VALUE = TypeAdapter[str](EnvName), TypeAdapter[str](Value)


def accepted(release: Release) -> frozenset[str]:
    """Return the flags that the parser of a release takes, with the --no- of those that take no value."""
    return release.flags | {f"no-{flag}" for flag in flag_types.BOOLEANS & release.flags} | {"help"}


def renamed(conversion: Conversion, flags: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the flags by the names that vLLM's parser reads, and under the empty name a model that follows a flag."""
    names, new = accepted(conversion.release), dict[str, Any]()
    for flag, value in flags:
        meant = command_lines.full(flag, names)
        name = meant[0] if len(meant) == 1 else flag
        conversion.spelled |= {name: flag} if name != flag else {}
        new[name] = flag_types.in_words(name, value)
    if not {"", "model"} & {*new}:
        behind = {flag: words for flag, value in new.items() if (words := _words_behind(names, flag, value))}
        if len(behind) == 1 and len(words := next(iter(behind.values()))) == 1 and NAMED.match(words[0]):
            (flag,) = behind
            new[flag] = new[flag][0] if isinstance(new[flag], Words) else True
            new[""] = words[0]
    return new


def _words_behind(names: Collection[str], flag: str, value: Any) -> list[str]:
    """Return the words after a flag that argparse does not read as its value."""
    first = flag.partition(".")[0]
    if first not in names or first in flag_types.LISTS:
        return []
    takes_none = first.removeprefix("no-") in flag_types.BOOLEANS
    words = value if isinstance(value, Words) else [value] if takes_none else []
    return [word for word in words[0 if takes_none else 1 :] if isinstance(word, str)]


def convert_flags(
    conversion: Conversion, flags: Mapping[str, Any], model: str, unknown: frozenset[str]
) -> dict[str, Any]:
    """Return `serve.args` of the new recipe. `unknown` are slots of the command without a value."""
    args: dict[str, Any] = {}
    draft = next((rest for flag, value in flags.items() if (rest := _speculative(flag, value).get("revision"))), None)
    for flag, original in _in_shares(conversion, _without_revision(flags)).items():
        line = conversion.flag_line(flag)
        value = _own_draft(original, model) if flag == "speculative-config" else original
        if flag == "revision" or (flag == "tokenizer" and value == model):
            continue
        if flag in REVISIONS:
            conversion.omit(line, flag, REVISIONS[flag])
            continue
        if flag == "quantization" and not conversion.use and (why := _stated_by_checkpoint(conversion, value, model)):
            conversion.omit(line, flag, why)
            continue
        value = with_template(conversion, flag, with_draft(conversion, flag, value))
        if omission := _omission(conversion, flag, value, unknown):
            unknown_there = not conversion.use and (
                bool(_not_in_tables(conversion.release, flag, value))
                or (flag == "chat-template" and _is_example(value))
            )
            conversion.omit(line, flag, *omission, unknown=unknown_there and omission[1] == "refusal")
            continue
        if conversion.use:
            conversion.kept += _kept(conversion, line, flag, value)
        add_argument(conversion, args, line, flag, value)
        if flag == "load-format" and value in LOADERS:
            _add_loader(conversion, line, value)
    add_revisions(conversion, flags.get("revision"), draft)
    return args


def add_revisions(conversion: Conversion, revision: Any, draft: Any) -> None:
    """Add the commits of model and draft that flags name: the engine reads a directory, the download needs them."""
    conversion.revision = "" if revision in (None, True) else str(revision)
    if conversion.revision and not COMMIT.fullmatch(conversion.revision):
        reason = f"expected a commit, a tag or a branch, got {conversion.revision}"
        conversion.omit(conversion.flag_line("revision"), "revision", reason, "loss", "model")
        conversion.revision = ""
    if conversion.draft and draft not in (None, True):
        conversion.draft["revision"] = str(draft)


def with_template(conversion: Conversion, flag: str, value: Any) -> Any:
    """Return the value of a flag with the place in the image of a chat template that lies beside the original."""
    if flag == "chat-template" and (found := mods.template(conversion.source.file, str(value), conversion.beside)):
        return f"{CHAT_TEMPLATES}/{conversion.add_mod(*found)}"
    return value


def add_argument(conversion: Conversion, args: dict[str, Any], line: int, flag: str, value: Any) -> None:
    """Add a flag to `serve.args` in the form of a recipe."""
    value = list(value) if isinstance(value, Words) else value
    name, value = (flag.removeprefix("no-"), False) if flag.startswith("no-") and value is True else (flag, value)
    args[name] = json.dumps(value) if _has_null(value) else value
    conversion.lines["serve", "args", name] = line


def _stated_by_checkpoint(conversion: Conversion, value: Any, model: str) -> str:
    """Return why a method of quantization is not needed that vLLM does not know; empty if it is, or if it is known.

    vLLM's parser takes any word. For a checkpoint of NVIDIA's ModelOpt in NVFP4 it replaces the word by the method that
    the checkpoint states (ModelConfig._verify_quantization in vllm/config/model.py, override_quantization_method in
    model_executor/layers/quantization/modelopt.py of 0.32.0).
    """
    both_fp4 = "fp4" in str(value).lower() and "nvfp4" in model.lower()
    if not both_fp4 or not _not_in_tables(conversion.release, "quantization", value):
        return ""
    return f"vLLM has no method {value}: it takes the one that the checkpoint states"


def _in_shares(conversion: Conversion, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags with a share of the memory in place of the GiB that a mod of the original permits."""
    gib = flags.get(IN_GIB)
    if isinstance(gib, bool) or not isinstance(gib, int | float) or not 0 < gib <= SHOWN_GIB:
        return dict(flags)
    share = round(gib / SHOWN_GIB, 3)
    reason = f"a flag of the mod gpu-mem-util-gb; written as gpu-memory-utilization {share} of {SHOWN_GIB} GiB"
    conversion.omit(conversion.flag_line(IN_GIB), IN_GIB, reason, "loss")
    return {**{flag: value for flag, value in flags.items() if flag != IN_GIB}, "gpu-memory-utilization": share}


def _omission(conversion: Conversion, flag: str, value: Any, unknown: frozenset[str]) -> tuple[str, Kind] | None:
    """Return why a flag is not imported, and the kind of omission; None if it is imported."""
    if note := DROPPED.get(flag, ""):
        return note, "note"
    if opt_in.abbreviated(flag.partition(".")[0], ENGINES["vllm"].taken):
        return SETS, "note"
    needs = dict(opt_in.of_flag(flag, value, "vllm"))
    if flag == opt_in.REMOTE_CODE:
        return remote_code(conversion, needs)
    if not conversion.use and len(meant := command_lines.full(flag, accepted(conversion.release))) > 1:
        return f"vLLM {conversion.release.version} reads it as several flags: {', '.join(meant[:5])}", "refusal"
    if loss := without_value(needs, value, unknown):
        return loss, "loss"
    if flag == "chat-template" and (opt_in.image_template(value) or _in_finished_image(conversion, value)):
        return None
    if problem := not_json(flag, value) or _draft(flag, value) or _unprovided(conversion, flag, value):
        return problem, "refusal"
    is_kept = conversion.use and all(_is_of_fork(name, effect) for name, effect in needs.items())
    if loss := invalid(flag, value) or ("" if is_kept else opt_ins(needs)):
        return loss, "loss"
    return None


def _in_finished_image(conversion: Conversion, value: Any) -> bool:
    """Return whether a value names a file of vLLM's examples, which are in the working directory of its images."""
    return bool(conversion.use) and _is_example(value)


def _is_example(value: Any) -> bool:
    return re.fullmatch(r"examples/[\w/.-]+", str(value)) is not None and ".." not in str(value)


def _is_of_fork(name: str, effect: str) -> bool:
    """Return whether a flag, or a key inside its value, is one that no vLLM has which import knows."""
    return effect == opt_in.UNKNOWN and ("." in name or all(_no_such_flag(release, name) for release in RELEASES))


def _kept(conversion: Conversion, line: int, flag: str, value: Any) -> Iterator[Kept]:
    """Yield why a flag is in the new recipe although the tables lack it, its value or a key inside."""
    problem = _not_in_tables(conversion.release, flag, value)
    if flag == "chat-template" and _in_finished_image(conversion, value):
        yield Kept(line, flag, f"{value} is a file of vLLM's examples, in the working directory of its images", flag)
        return
    names = [name.removeprefix("no-") if value is True else name for name, _ in opt_in.of_flag(flag, value, "vllm")]
    for name in names:
        yield Kept(line, name, f"{problem or opt_in.UNKNOWN}; {JUDGED}", name)
    if problem and not names:
        yield Kept(line, flag, f"{problem}; {JUDGED}")


def _add_loader(conversion: Conversion, line: int, load_format: str) -> None:
    """Add the package of a load format to an image that sparkops builds; a finished one must have it."""
    package = LOADERS[load_format]
    if conversion.use:
        conversion.kept.append(Kept(line, f"load-format {load_format}", f"the image must have {package}"))
    else:
        conversion.data.setdefault("packages", []).append(package)


def remote_code(conversion: Conversion, needs: Mapping[str, str]) -> tuple[str, Kind] | None:
    """Return what becomes of --trust-remote-code: needless, or a choice of the reader if the model may need it."""
    if not needs:
        return None
    known = conversion.model_type
    if known and known.tokenizer:
        return f"{opt_ins(needs)}, and a commit in `model.revision`; the tokenizer is {known.tokenizer}", "refusal"
    if known and known.config and conversion.use:
        return f"vLLM has classes of its own for {known.type} since {known.vllm}", "note"
    if known and known.config:
        return f"vLLM {conversion.release.version} has classes of its own for {known.type}", "note"
    why = f"no package has a class for {known.type}" if known else "unknown whether the model needs it"
    return f"{opt_ins(needs)}, and a commit in `model.revision`; {why}", "refusal" if known else "loss"


def without_value(needs: Mapping[str, str], value: Any, unknown: frozenset[str]) -> str:
    """Return the opt-in or value that a flag lacks; empty if none."""
    if LATER.isdisjoint(needs.values()) and needs:
        return opt_ins(needs)
    slot = next((slot for slot in unknown if f"{{{slot}}}" in str(value)), None)
    return f"no value for {{{slot}}}" if slot else ""


def invalid(flag: str, value: Any) -> str:
    """Return why a recipe cannot have the flag; empty if it can."""
    try:
        FLAG.validate_python(flag)
        FLAG_VALUE.validate_python(json.dumps(value) if _has_null(value) else value)
    except ValidationError as error:
        return error.errors()[0]["msg"]
    own = str(value).startswith(f"{MODELS}/") and _draft(flag, value) == "" and flag.startswith("spec")
    return f"path in the original's container: {value}" if str(value).startswith(("/", "~")) and not own else ""


def _no_such_flag(release: Release, flag: str) -> bool:
    """Return whether a release of vLLM has no flag of this name."""
    return flag.partition(".")[0] not in accepted(release)


def _not_in_tables(release: Release, flag: str, value: Any) -> str:
    """Return which flag or value a release of vLLM does not have; empty if it has both."""
    if _no_such_flag(release, flag):
        near = get_close_matches(flag.partition(".")[0], accepted(release), 1, LIKE)
        meant = f"; did you mean --{near[0]}?" if near else ""
        return f"vLLM {release.version} has no flag {flag if flag.startswith('-') else f'--{flag}'}{meant}"
    method = _speculative(flag, value).get("method")
    for name, given in ((flag, value), ("spec-method", method)):
        choices, word = release.choices.get(name), str(given) if type(given) is int else given
        if choices and isinstance(word, str) and not choices & {word, word.upper(), word.lower().replace("-", "_")}:
            return f"vLLM {release.version} rejects the {'value' if name == flag else 'method'} {word}"
    return ""


def not_json(flag: str, value: Any) -> str:
    text = isinstance(value, str) and value[:1] in ("{", "[") and flag != "chat-template"
    return f"expected JSON, got {value[:60]}" if text else ""


def missing_file(flag: str, value: Any) -> str:
    if flag not in PATHS or not isinstance(value, str) or value.startswith(INLINE):
        return ""
    if FILE.fullmatch(value) or (flag == "chat-template" and "\n" not in value):
        place = f"{MODELS}/PATH/{value.rpartition('/')[2]}"
        return (
            f"no node has the file {value}; to use it, put it beside the weights, and add `{flag}: {place}`, with the "
            f"PATH of `model`, to `serve.args` of the new recipe, and `allow: [{flag}]` to `serve`"
        )
    return f"{value} is a second repository; a recipe downloads one model" if "/" in value else ""


def _draft(flag: str, value: Any) -> str:
    """Return why a flag with a draft model is refused; empty without one, and for one of the new recipe."""
    draft = value if flag == "spec-model" else _speculative(flag, value).get("model")
    known = str(draft or "").startswith(f"{MODELS}/")
    return f"{draft} is a path in the original's container: expected OWNER/NAME" if draft and not known else ""


def _speculative(flag: str, value: Any) -> dict[str, Any]:
    """Return the settings in --speculative-config or --speculative-config.KEY."""
    first, _, key = flag.partition(".")
    settings = {key: value} if key else value
    return settings if first == "speculative-config" and isinstance(settings, dict) else {}


def _without_revision(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags without the commit of a draft model, which becomes `model.draft.revision`."""
    own = {flag: value for flag, value in flags.items() if flag != "speculative-config.revision"}
    settings = own.get("speculative-config")
    if isinstance(settings, dict) and settings.get("model"):
        own["speculative-config"] = {key: value for key, value in settings.items() if key != "revision"}
    return own


def with_draft(conversion: Conversion, flag: str, value: Any) -> Any:
    """Return the value of a flag with the directory of its draft, which becomes `model.draft` of the new recipe."""
    draft = value if flag in DRAFTS[conversion.engine] else _speculative(flag, value).get("model")
    stated = str(conversion.original.get("draft_model") or "")
    repository = next((name for name in (str(draft or ""), stated) if REPOSITORY.fullmatch(name)), "")
    if not draft or not repository:
        return value
    directory = f"{MODELS}/{repository.rpartition('/')[2]}"
    conversion.draft = {"id": repository, "path": repository.rpartition("/")[2]}
    conversion.lines["model", "draft"] = conversion.flag_line(flag)
    return {**value, "model": directory} if isinstance(value, dict) else directory


def _own_draft(value: Any, model: str) -> Any:
    """Return a speculative configuration without `model` if it names the served model, as for its MTP head."""
    is_same_model = isinstance(value, dict) and value.get("model") == model and "mtp" in str(value.get("method"))
    return {key: item for key, item in value.items() if key != "model"} if is_same_model else value


def _unprovided(conversion: Conversion, flag: str, value: Any) -> str:
    """Return why vLLM rejects this flag, and the mods that may provide the flag, its file or its value."""
    in_image = conversion.use and not flag.startswith("-")  # no build of vLLM has a flag of one dash that none knows
    unknown = "" if in_image else _not_in_tables(conversion.release, flag, value)
    is_of_fork = in_image and all(_no_such_flag(release, flag) for release in RELEASES)
    problem = unknown or ("" if is_of_fork else flag_types.problem(flag, value)) or missing_file(flag, value)
    return provided(conversion, flag, value, problem)


def provided(conversion: Conversion, flag: str, value: Any, problem: str) -> str:
    """Return a problem of a flag with the mods that may provide the flag, its file or its value."""
    providers = [name for name, flags in conversion.mods.items() if flags and flags in f"--{flag} {value}"]
    candidates = providers or [
        name
        for name, flags in conversion.mods.items()
        if not flags and _may_provide(conversion.beside.get(name), value)
    ]
    if not problem or not candidates:
        return problem
    fetched = next((file for mod in conversion.beside.values() for file in mod.fetched), "")
    if fetched and flag == "reasoning-parser":
        repository = next(mod.fetched[fetched] for mod in conversion.beside.values() if fetched in mod.fetched)
        plugin = f"reasoning-parser-plugin: {MODELS}/{repository.rpartition('/')[2]}/{fetched}"
        return (
            f"{problem}; {repository} has it as {fetched}: import without it, then add `reasoning-parser: {value}` and "
            f"`{plugin}` to `serve.args` of the new recipe, and `allow: [reasoning-parser-plugin]` to `serve`"
        )
    if flag == "chat-template" and candidates:
        read = ", ".join(name for name in candidates if name in conversion.beside)
        where = f"the script of {read} is not read" if read else "give --mods FOLDER, a checkout of spark-vllm-docker"
        return f"{problem}; it comes from a mod: {where}"
    words = "provided by mod" if providers else "perhaps provided by mod"
    return f"{problem} ({words} {', '.join(candidates)}, which is not imported)"


def _may_provide(mod: mods.Mod | None, value: Any) -> bool:
    """Return whether a mod may be what makes a value work: its script has it, or does not lie beside the recipe."""
    return mod is None or str(value) in mod.script


def _has_null(value: Any) -> bool:
    """Return whether JSON has a null, which mappings of a recipe cannot have."""
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else value is None


def opt_ins(needs: Mapping[str, str]) -> str:
    """Return the effects of a flag or variable and the line that opts in; empty without any."""
    effects = ", ".join(dict.fromkeys(needs.values()))
    return f"{effects}; to keep it, add it to the new recipe, with `{opt_in.line(needs)}` in `serve`" if needs else ""


def convert_variables(conversion: Conversion, env: Mapping[str, Any]) -> dict[str, str]:
    """Return `serve.env` of the new recipe."""
    variables = {}
    for key, value in env.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        line = conversion.source.lines.get(("env", key)) or conversion.line(("command",), f"{key}=")
        try:
            ENV_NAME.validate_python(key)
            ENV_VALUE.validate_python(text)
        except ValidationError as error:
            conversion.omit(line, f"env.{key}", error.errors()[0]["msg"], "loss")
            continue
        effect = opt_in.of_variable(key, text, conversion.engine)
        if effect and not (conversion.use and effect == opt_in.UNKNOWN):
            conversion.omit(line, f"env.{key}", opt_ins({key: effect}), "loss")
            continue
        variables[key] = text
        conversion.lines["serve", "env", key] = line
        if effect:
            conversion.kept.append(Kept(line, f"env.{key}", f"{effect}; the image may read it", key))
    return variables
