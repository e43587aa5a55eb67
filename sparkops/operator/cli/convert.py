"""The verb import."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
import yaml

from sparkops.command import quote
from sparkops.config import opt_in, source
from sparkops.config.fields import as_name
from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError, UsageError
from sparkops.foreign import one_line
from sparkops.operator.cli.options import JSON
from sparkops.operator.cli.terminal import data, data_json, say, write
from sparkops.operator.convert import other_tools, recipe_keys
from sparkops.operator.convert.conversion import Choices, Conversion

STDIN, UNKNOWN_IMAGE = "-", "IMAGE"
"""How a command line names what comes from stdin, and an image that the reader must choose."""
SHOWN = 40
"""Recipes of a checkout that an error names."""


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Recipe, script or compose file; - is stdin")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE; default: stdout")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="KEY", help="Import without KEY (repeatable)")
    ] = None,
    mods: Annotated[
        Path | None, typer.Option("--mods", metavar="FOLDER", help="Checkout of spark-vllm-docker with the mods")
    ] = None,
    use: Annotated[
        str, typer.Option("--use", metavar="IMAGE", help="Run in IMAGE, which is finished, instead of building one")
    ] = "",
    variant: Annotated[
        str, typer.Option("--variant", metavar="NAME", help="Import this variant of a recipe that has several")
    ] = "",
    json: JSON = False,
) -> None:
    """Convert a recipe of another tool

    Reads recipes of spark-vllm-docker, sparkrun and vllm-project. A shell script or line with `vllm serve` or
    `docker run`, and a compose file, are read where they start one server without a condition.

    Takes chat templates and diffs of mods that lie beside the recipe, and writes them to ./mods with -o. Follows no
    symbolic link of the recipe's checkout. Lists the settings that it cannot convert. Refuses a recipe that cannot
    start; with --without KEY it imports the recipe without that flag or key, and notes what was dropped. Overwrites no
    file that has another content.

    Names code of the recipe's author, such as its image or a diff, that you must allow in serve.allow before another
    verb accepts the new recipe.

    With --use the recipe runs in a finished image, whose own parser judges the flags. Flags that no known vLLM has,
    such as those of a fork, are kept, with their names in serve.allow. A recipe of vllm-project for a DGX Spark runs
    in its own image, and so does one of SGLang, whose name for clients becomes the service.

    A recipe with tensor_parallel and no fixed number of nodes has the variants solo and cluster; cluster is the
    default. A recipe with named variants, or a compose file of several servers, needs --variant; the error lists them.

    Exit code 2 for a refused recipe.

    Example: sparkops import their-recipe.yaml -o recipes/mine.yaml
    """
    is_stdin = str(file) == STDIN
    if not is_stdin and not file.exists():
        step = "Correct the path: expected a recipe of another tool on this machine."
        raise UsageError(f"file not found: {file}", next_step=step)
    if file.is_dir():
        raise _no_recipe(file)
    given = _stdin() if is_stdin else other_tools.content(file)
    original = other_tools.read(file, given)
    text = given.decode(errors="replace")
    name = as_name((output or Path("imported" if is_stdin else file)).stem)
    if output and output.name != f"{name}.yaml":
        raise UsageError(
            f"{output}: invalid file name for recipe {name}: expected {name}.yaml",
            next_step=f"-o {output.parent}/{name}.yaml",
        )
    _require_image(use)
    choices = Choices(without or (), mods, use, variant)
    conversion = other_tools.convert(original, text, name, choices)
    _require_known(conversion, without or ())
    _refuse(conversion, original, text, choices, output)
    recipe = source.validate(source.Source(file, conversion.data, conversion.lines), Recipe)
    written = _text(conversion)
    if output:
        _require_unchanged(output, written)
        _write_mods(conversion.files)
        write(output, written)
        say(f"wrote {output}", fg="green")
    for omission in conversion.omissions:
        say(f"{file}:{omission.line}: {omission.key}: not imported: {omission.reason}", fg="yellow")
    if lines := sorted({omission.line for omission in conversion.omissions if omission.may_change_answers}):
        where = f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
        say(
            f"the model may answer otherwise than with the original, for lack of {where}: compare before you rely on it"
        )
    for kept in conversion.kept:
        say(f"{file}:{kept.line}: {kept.key}: kept: {kept.reason}")
    for key, comment in conversion.guessed.items():
        say(f"{key}: {comment}")
    needs = [
        need
        for need in opt_in.of_image(recipe.image, recipe.engine)
        if need.name not in recipe.serve.allow and (need.where[1] != "mods" or need.name in conversion.files)
    ]
    for need in needs:
        say(f"{source.dotted(need.where)}: {need.name} {need.effect}", fg="yellow")
    if needs:
        line = opt_in.line((*recipe.serve.allow, *(need.name for need in needs)))
        say(
            f"code of the recipe's author: if you trust it, write `{line}` below `serve`; else no verb takes the recipe"
        )
    if json:
        rows = [
            {
                "line": omission.line,
                "key": omission.key,
                "why": omission.reason,
                "may_change_answers": omission.may_change_answers,
            }
            for omission in conversion.omissions
        ]
        kept_rows = [{"line": kept.line, "key": kept.key, "why": kept.reason} for kept in conversion.kept]
        data_json(
            {
                "recipe": conversion.data,
                "not_carried_over": rows,
                "kept": kept_rows,
                "guessed": conversion.guessed,
                "code": [{"name": need.name, "why": need.effect} for need in needs],
            }
        )
    elif not output:
        data(written.rstrip())


def _stdin() -> bytes:
    """Return the recipe on stdin. Raises UsageError for a larger one than a file may be."""
    given = sys.stdin.buffer.read(source.MAX_BYTES + 1)
    if len(given) > source.MAX_BYTES:
        raise UsageError(f"stdin: larger than {source.MAX_BYTES} bytes", next_step="Write it to a file, and shorten it")
    return given


def _no_recipe(checkout: Path) -> UsageError:
    """Return the error for a directory, with the recipes in it: each is imported by itself, as each is one service."""
    recipes = sorted(path for kind in ("*.yaml", "*.yml") for path in checkout.glob(f"**/*recipes/**/{kind}"))
    shown = "".join(f"\n  {path}" for path in recipes[:SHOWN])
    more = f"\n  and {len(recipes) - SHOWN} more" if len(recipes) > SHOWN else ""
    problem = f"{checkout} is a directory: expected one recipe"
    return UsageError(f"{problem}. It has:{shown}{more}" if recipes else problem, next_step="sparkops import FILE")


def _require_unchanged(output: Path, text: str) -> None:
    """Raise UsageError for a file that exists with another content: it may have been edited since its import."""
    if not output.exists() or (output.is_file() and output.read_bytes() == text.encode()):
        return
    other = output.with_name(f"{output.stem}-2.yaml")
    raise UsageError(
        f"{output} exists with another content: it was edited, or imported with other options",
        next_step=f"Move {output}, then retry; or import to another file and compare: -o {quote(str(other))}",
    )


def _write_mods(files: Mapping[str, bytes]) -> None:
    """Write the mods of the new recipe. Raises UsageError for one that exists with another content, or is no text."""
    texts = dict[Path, str]()
    for name, content in files.items():
        path = Path("mods") / name
        if path.exists() and path.read_bytes() != content:
            raise UsageError(f"{path} exists with another content", next_step=f"Move {path}, then retry")
        try:
            texts[path] = content.decode()
        except UnicodeDecodeError as error:
            problem = f"{name}, from beside the recipe: byte {error.start + 1} is not UTF-8, expected text in UTF-8"
            raise UsageError(problem, next_step="Write that file as UTF-8 (iconv), then retry.") from None
    for path, text in texts.items():
        write(path, text)
        say(f"wrote {path}", fg="green")


def _require_image(use: str) -> None:
    """Raise UsageError for a value of --use that is no image."""
    if use and not recipe_keys.is_image(use):
        raise UsageError(f"--use {use}: not an image", next_step="--use REPOSITORY:TAG, or REPOSITORY@sha256:DIGEST")


def _require_known(conversion: Conversion, without: Sequence[str]) -> None:
    """Raise UsageError for a key of --without that the original does not have, or that is imported."""
    known = dict.fromkeys(omission.key for omission in conversion.omissions)
    for key in without:
        if key not in known:
            words = ", ".join(known) or "none: every setting is imported"
            raise UsageError(
                f"--without {key}: not a flag or key that can be left out", next_step=f"Those of this recipe: {words}"
            )


def _refuse(conversion: Conversion, original: source.Source, text: str, choices: Choices, output: Path | None) -> None:
    """Report every omission without which the engine cannot start. Raises ConfigError for the first one.

    The next step keeps the options that were given, and has only commands that import the recipe.
    """
    if not conversion.refusals:
        return
    errors = [
        ConfigError(conversion.source.file, omission.line, omission.key, omission.reason)
        for omission in conversion.refusals
    ]
    for error in errors[1:]:
        say(f"sparkops: {error}", fg="red")
    given = (
        *(("-o", output), ("--mods", choices.mods), ("--use", choices.use), ("--variant", choices.variant)),
        *(("--without", key) for key in choices.without),
    )
    options = [word for name, value in given if value for word in (name, str(value))]
    retry = ("sparkops", "import", str(conversion.source.file))
    ways = [
        f"{words}: {quote(*retry, *added, *options)}"
        for words, added, changed in _ways(conversion, choices)
        if _imports(original, text, changed)
    ]
    final = ", ".join(omission.key for omission in conversion.refusals if omission.final)
    keys = final or ", ".join(omission.key for omission in conversion.refusals)
    errors[0].next_step = "; or: ".join(ways) or f"Change {keys} in a copy of the file, then import the copy"
    raise errors[0]


def _ways(conversion: Conversion, choices: Choices) -> Iterator[tuple[str, Sequence[str], Choices]]:
    """Yield what may import a refused recipe: words for it, the options to add, and the choices with them."""
    refusals = conversion.refusals
    if any(omission.unknown for omission in refusals):
        left = [omission.key for omission in refusals if not omission.unknown]
        use = _container(conversion) or UNKNOWN_IMAGE
        changed = replace(choices, use=use, without=(*left, *choices.without))
        yield "Let the parser of its image judge", ("--use", use, *_without(left)), changed
    keys = [omission.key for omission in refusals]
    yield "Import without it", _without(keys), replace(choices, without=(*keys, *choices.without))


def _without(keys: Sequence[str]) -> list[str]:
    return [word for key in keys for word in ("--without", key)]


def _imports(original: source.Source, text: str, choices: Choices) -> bool:
    """Return whether a recipe is imported with other options."""
    use = choices.use.lower() if choices.use == UNKNOWN_IMAGE else choices.use
    try:
        return not other_tools.convert(original, text, "retried", replace(choices, use=use)).refusals
    except ConfigError:
        return False


def _container(conversion: Conversion) -> str:
    """Return the image of the original that a node can pull; empty for one that the original's owner builds."""
    container = str(conversion.original.get("container") or "")
    return recipe_keys.pulled(recipe_keys.PUBLISHED.get(container, container))


def _text(conversion: Conversion) -> str:
    """Return the recipe with a comment for each guess and each missing setting."""
    file = conversion.source.file
    name = "stdin" if str(file) == STDIN else one_line(file.name)
    lines = [f"# Imported from {name}. Check the guessed values and the settings that were not imported."]
    for section, value in conversion.data.items():
        if section in conversion.guessed:
            lines.append(f"# {one_line(conversion.guessed[section])}")
        head, *rest = yaml.safe_dump({section: value}, sort_keys=False, width=110, allow_unicode=True).splitlines()
        missing = (omission for omission in conversion.losses if omission.section == section)
        comments = (f"(line {omission.line} of {name}): {omission.key}: {omission.reason}" for omission in missing)
        kept = conversion.kept if section == "serve" else []
        lines += [
            head,
            *(f"  # not imported {comment}" for comment in comments),
            *(f"  # kept (line {one.line} of {name}): {one.key}: {one.reason}" for one in kept),
            *rest,
        ]
    return "\n".join(lines) + "\n"
