"""Run the benchmark of an engine's own package, and report its progress and its result. Runs in a container.

The request is the second line of stdin, with the key of the gateway, so that no argument has it. The output is JSON: a
line for each step of the progress, and at the end the tool's own result file, or the end of its log.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile

import attended

PROGRESS = re.compile(r"(\d{1,9})/(\d{1,9}) \[")
"""A bar of tqdm."""
KEPT = 40  # lines of the log
LONGEST = 500  # characters of a line
MAX_RESULT = 2**22


def version(module):
    """Return name and version of the package that has a module; builds for CPUs have a name of their own."""
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    return {"name": names[0], "version": importlib.metadata.version(names[0])} if names else {"name": module}


def pieces(stream):
    """Yield the lines of a log; a bar returns to the start of its own."""
    rest = ""
    while piece := stream.read1(65536):
        *whole, rest = re.split(r"[\r\n]", rest + piece.decode(errors="replace"))
        yield from whole
        rest = rest[-LONGEST:]
    yield rest


def run(request, directory):
    """Run the tool and return what to report at the end."""
    output = ("--save-result", f"--result-dir={directory}", "--result-filename=result.json")
    argv = [sys.executable, "-m", *request["argv"], *output]
    environment = {**os.environ, **request["env"]}
    tool = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=directory)
    log, last = [], ""
    with tool.stdout as stream:
        for line in pieces(stream):
            step = PROGRESS.search(line)
            if step and step[0] != last:
                last = step[0]
                print(json.dumps({"at": int(step[1]), "of": int(step[2])}), flush=True)
            elif not step and line.strip():
                log = [*log[1 - KEPT :], line.strip()[:LONGEST]]
    code, file = tool.wait(), os.path.join(directory, "result.json")
    if code or not os.path.isfile(file) or os.path.getsize(file) > MAX_RESULT:
        return {"failed": code, "log": log}
    with open(file, encoding="utf-8") as result:
        return {"result": json.load(result), "tool": version(request["argv"][0])}


def main():
    """Run the tool that is requested."""
    request = attended.begin()
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(run(request, directory)), flush=True)


main()
