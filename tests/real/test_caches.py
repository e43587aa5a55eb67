"""Where the packages of a real image keep what they compile: in the volume that outlives the container."""

from __future__ import annotations

import json

import pytest

from sparkops.engines import runtime
from sparkops.node.docker import commands
from tests import examples
from tests.fleet.fleet import Fleet as RealFleet

pytestmark = pytest.mark.vllm

# The packages' own functions and values; each is asked only where its package is installed.
PATHS = """
import contextlib, importlib.util, json, os, sys


def at(module, *names):
    value = importlib.import_module(module)
    for name in names:
        value = getattr(value, name)
    return value


INDUCTOR = "torch._inductor.runtime.cache_dir_utils"
LOOK = {
    "vllm": lambda: at("vllm.envs", "VLLM_CACHE_ROOT"),
    "torch: inductor": lambda: at(INDUCTOR, "cache_dir")(),
    "torch: inductor's Triton": lambda: at(INDUCTOR, "triton_cache_dir")(0),
    "torch: extensions": lambda: at("torch.utils.cpp_extension", "_get_build_directory")("kernel", False),
    "torch: hub": lambda: at("torch.hub", "get_dir")(),
    "triton": lambda: at("triton.knobs", "cache", "dir"),
    "flashinfer": lambda: at("flashinfer.jit.env", "FLASHINFER_JIT_DIR"),
    "tilelang": lambda: at("tilelang.env", "env", "TILELANG_CACHE_DIR"),
    "cutlass": lambda: at("cutlass.base_dsl.cache_helpers", "default_generated_ir_path"),
    "quack": lambda: at("quack.cache.jit", "get_cache_path")(),
}
with contextlib.redirect_stdout(sys.stderr):
    found = {name: str(look()) for name, look in LOOK.items() if importlib.util.find_spec(name.partition(":")[0])}
mount = {"mounted": os.path.ismount(sys.argv[1]), "owner": os.stat(sys.argv[1]).st_uid}
print(json.dumps({"found": found, "lacking": sorted(LOOK.keys() - found), **mount}))
"""


@pytest.mark.matrix
def test_what_is_compiled_at_run_time_outlives_the_container(nodes: RealFleet, built: str) -> None:
    argv = commands.create(examples.rank(), examples.node(), built, jobs=1).argv
    given = [word for word in argv if word.startswith("--env=") or word.endswith(f":{runtime.CACHE}")]
    options = ("--rm", "--interactive", "--network=none", *commands.RIGHTS, *given, "--entrypoint=python")

    printed = nodes.node("node-1").exec("docker", "run", *options, built, "-", runtime.CACHE, stdin=PATHS.encode())
    report = json.loads(printed.splitlines()[-1])
    print(report)  # which packages were asked, and which the image lacks

    outside = {name: path for name, path in report["found"].items() if not path.startswith(f"{runtime.CACHE}/")}
    assert (report["mounted"], report["owner"]) == (True, runtime.USER), given
    assert outside == {}
    assert {"vllm", "torch: inductor", "torch: extensions"} <= set(report["found"]), report["lacking"]
