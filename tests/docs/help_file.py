"""`python -m tests.docs.help_file > sparkops/operator/cli/help.json`: what --help prints of each verb, as data."""

from __future__ import annotations

import sys
from json import dumps
from typing import Any

from sparkops.operator.cli.main import command
from sparkops.operator.cli.verbs import LEAVES


def text() -> str:
    """Return the text of the file."""
    return dumps({words: page(words) for words in LEAVES}, indent=1, ensure_ascii=False) + "\n"


def page(words: str) -> dict[str, Any]:
    """Return usage, text, arguments and options of a verb, none wrapped."""
    program: Any = command()
    verb: Any = LEAVES[words].load(words.rpartition(" ")[2])
    context = verb.context_class(verb, info_name=words, parent=program.make_context("sparkops", ["status"]))
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in verb.get_params(context):
        if record := param.get_help_record(context):
            sections.setdefault(f"{param.param_type_name.title()}s", []).append(record)
    order = sorted(sections)  # Arguments before Options
    return {
        "usage": verb.collect_usage_pieces(context),
        "help": verb.help,
        "sections": {title: sections[title] for title in order},
    }


if __name__ == "__main__":
    sys.stdout.write(text())
