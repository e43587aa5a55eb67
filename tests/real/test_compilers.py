"""A build at run time in a container with little memory: without the limit it is OOM-killed, with it it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.node.docker import commands
from sparkops.operator.deploy.memory import compilers
from tests import examples
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import Cli

pytestmark = [pytest.mark.fleet, pytest.mark.matrix]

MEMORY_GIB = 2.0
JOBS = 40
JOB_MIB = 300
# As FlashInfer starts ninja (jit/cpp_ext.py). Without -j, ninja runs two jobs more than there are cores: 22 on a Spark.
BUILD = f"""
import os, pathlib, subprocess, sys
work = pathlib.Path("/tmp/build")
work.mkdir()
compiler = work / "compiler.py"
compiler.write_text("import sys, time; held = b'x' * ({JOB_MIB} << 20); time.sleep(0.5); open(sys.argv[1], 'w')")
rule = "rule compile\\n  command = python3 compiler.py $out\\n"
edges = (f"build kernel-{{number}}.o: compile\\n" for number in range({JOBS}))
(work / "build.ninja").write_text(rule + "".join(edges))
jobs = os.environ.get("MAX_JOBS", "22")
sys.exit(subprocess.run(["ninja", "-C", str(work), "-j", jobs]).returncode)
"""
RUN = """
docker run --name=storm --interactive --memory="$0" --memory-swap="$0" --network=none "$@" >/tmp/storm.log 2>&1
docker inspect --format '{{.State.ExitCode}} {{.State.OOMKilled}}' storm
docker rm storm >/dev/null
"""


@pytest.fixture(scope="module")
def image(nodes: RealFleet, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The stand-in's image with ninja in it, on node-1."""
    text = (CHECKOUT / "recipes/stand-in.yaml").read_text()
    file: Path = tmp_path_factory.mktemp("recipes") / "stand-in.yaml"
    file.write_text(text.replace("  disk_gib: 1\n", "  disk_gib: 1\n  apt: [ninja-build]\n"))
    ran = Cli(nodes.inventory, file.parent)("build", file, "--node", "node-1", "--json")
    assert ran.code == 0, ran.err
    return str(ran.json["tag"])


def build(nodes: RealFleet, image: str, *env: str) -> str:
    """Exit code of the build in a container of MEMORY_GIB, and whether the kernel killed one of its processes."""
    words = (f"{int(MEMORY_GIB)}g", *env, "--entrypoint=python3", image, "-")
    return nodes.node("node-1").exec("sh", "-c", RUN, *words, stdin=BUILD.encode())


def given(jobs: int) -> list[str]:
    """The environment that a rank's container gets."""
    argv = commands.create(examples.rank(), examples.node(), examples.IMAGE_ID, jobs).argv
    return [word for word in argv if word.startswith("--env=")]


def test_a_storm_of_compilers_is_killed_without_the_limit_and_ends_with_it(nodes: RealFleet, image: str) -> None:
    jobs = compilers.fitting(MEMORY_GIB, cores=None, job_gib=JOB_MIB / 1024)
    limited = given(jobs)
    unlimited = [word for word in limited if not word.startswith("--env=MAX_JOBS=")]

    assert 1 < jobs < JOBS
    assert build(nodes, image, *unlimited) == "1 true"
    assert build(nodes, image, *limited) == "0 false"
