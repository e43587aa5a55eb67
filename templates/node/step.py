"""How the script of a step begins, speaks and ends. Standard library only: this runs in containers on nodes."""

from __future__ import annotations

import json
import os
import re
import sys

import attended

NAMED = 3


def read_request(*arguments):
    """What the second line of stdin asks for. Arguments that the script does not have are refused."""
    request = attended.begin()
    unknown = sorted(set(request["args"]) - {*arguments, "config"})
    if unknown:
        refuse(f"unknown arguments: {', '.join(unknown)}; there are: {', '.join([*arguments, 'config'])}")
    if sorted(request["inputs"]) != ["base", "donor"]:
        refuse(f"expected the inputs base and donor, got: {', '.join(sorted(request['inputs']))}")
    return request


def attempt(work):
    """Do it, or end the step with the error in words."""
    try:
        return work()
    except OSError as error:
        return refuse(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    except ValueError as error:
        return refuse(str(error))


def finish(make):
    """Do the work of a step, and end well."""
    attempt(make)
    sys.stdout.flush()
    os._exit(0)


def finder(expression):
    """Whether a name has something in it that the regular expression finds."""
    try:
        return re.compile(expression).search
    except re.error as error:
        return refuse(f"{expression} is no regular expression: {error}")


def named(names):
    """The first few names, and how many more there are."""
    first = sorted(names)
    more = f" and {len(first) - NAMED} more" if len(first) > NAMED else ""
    return ", ".join(first[:NAMED]) + more


def tell(**message):
    print(json.dumps(message), flush=True)


def say(text):
    tell(say=text)


def refuse(why):
    """End the step."""
    print(why, file=sys.stderr, flush=True)
    os._exit(1)
