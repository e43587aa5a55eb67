"""Request, messages and end of a step's script. Standard library only: this runs in containers on nodes."""

from __future__ import annotations

import json
import os
import re
import sys

import attended

NAMED = 3


def read_request(*arguments, inputs=("base", "donor")):
    """Return the request in the second line of stdin. Exits for unknown arguments, and for other inputs."""
    request = attended.begin()
    unknown = sorted(set(request["args"]) - {*arguments, "config"})
    if unknown:
        refuse(f"unknown arguments: {', '.join(unknown)}; expected: {', '.join([*arguments, 'config'])}")
    if sorted(request["inputs"]) != sorted(inputs):
        refuse(f"expected the inputs {' and '.join(inputs)}, got: {', '.join(sorted(request['inputs']))}")
    return request


def attempt(work):
    """Run `work`, or end the step with the message of its error."""
    try:
        return work()
    except OSError as error:
        return refuse(f"{error.filename}: {error.strerror}" if error.filename else error.strerror)
    except ValueError as error:
        return refuse(str(error))


def finish(make):
    """Do the work of a step, and exit with 0."""
    attempt(make)
    sys.stdout.flush()
    os._exit(0)


def finder(expression):
    """Return the search function of a regular expression."""
    try:
        return re.compile(expression).search
    except re.error as error:
        return refuse(f"{expression} is not a regular expression: {error}")


def named(names):
    """Return the first few names, and the number of others."""
    first = sorted(names)
    more = f" and {len(first) - NAMED} more" if len(first) > NAMED else ""
    return ", ".join(first[:NAMED]) + more


def report(**message):
    print(json.dumps(message), flush=True)


def say(text):
    report(say=text)


def refuse(why):
    """End the step with an error."""
    print(why, file=sys.stderr, flush=True)
    os._exit(1)
