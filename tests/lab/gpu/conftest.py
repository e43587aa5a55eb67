"""The machine, its images and the service that the GPU tests share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import inventory
from sparkops.config.node import Gpu as Way
from tests.fleet import engine
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.images import exists
from tests.fleet.shell import docker, run
from tests.lab.gpu import machine, models, options, wheels
from tests.lab.gpu import nodes as two_nodes
from tests.lab.gpu.evidence import Evidence
from tests.lab.gpu.lab import RECIPES, Lab
from tests.lab.gpu.machine import Gpu
from tests.lab.gpu.options import Options
from tests.real.program import Cli

DEBIAN = "debian:trixie-slim"
HOME = CHECKOUT / ".fleet/gpu"
SHARE = 0.15  # gpu-memory-utilization of the recipe
OUTSIDE_GIB = 3.0
MID_SHARE = 0.3


@pytest.fixture(scope="session")
def given() -> Options:
    """What the command line of `make gpu` says."""
    return options.given()


@pytest.fixture(scope="session")
def gpus() -> tuple[Gpu, ...]:
    """The GPUs of this machine; without one the tests end here."""
    return machine.gpus()


@pytest.fixture(scope="session")
def evidence(given: Options, gpus: tuple[Gpu, ...]) -> Evidence:
    """The report of this run."""
    title = f"{len(gpus)} x {gpus[0].name}"
    report = Evidence(CHECKOUT / f"docs/evidence/gpu-{given.name}.md", CHECKOUT / given.logs, title)
    report.fact("date", datetime.now(UTC).strftime("%Y-%m-%d"))
    report.fact("GPUs", ", ".join(f"{gpu.name}, {gpu.memory_gib:.1f} GiB, sm_{gpu.capability}" for gpu in gpus))
    report.fact("driver", gpus[0].driver)
    report.fact("kernel", run("uname", "-sr"))
    report.fact("processor", f"{run('uname', '-m')}, {os.cpu_count()} cores")
    report.fact("sparkops", os.environ.get("SPARKOPS_COMMIT") or run("git", "-C", str(CHECKOUT), "rev-parse", "HEAD"))
    return report


@pytest.fixture(scope="session")
def debian(given: Options, evidence: Evidence) -> str:
    """The image of nodes, gateway and guard. Docker runs, and the images that were given as tars are loaded."""
    engine.ensure()
    evidence.fact("Docker Engine", engine.version())
    if (root := options.tar(given.debian)) and not exists(DEBIAN):
        docker("import", str(root), DEBIAN)
    if base := options.tar(given.base):
        docker("load", "--input", str(base))
    return DEBIAN


@pytest.fixture(scope="session")
def index(given: Options) -> Iterator[int | None]:
    """The port of an index of the wheels that were given; None where builds use the internet."""
    if not given.wheels:
        yield None
        return
    with wheels.served(Path(given.wheels)) as port:
        yield port


def build(given: Options, port: int | None, host: str) -> dict[str, Any]:
    """Return the section `build` of an inventory whose builds reach this machine as `host`."""
    section: dict[str, Any] = {}
    if port is not None:
        section |= {"package_index": f"http://{host}:{port}/simple", "torch_index": f"http://{host}:{port}/torch"}
    if given.debian:
        section["parent_images"] = {DEBIAN: DEBIAN, "debian:bookworm-slim": DEBIAN}  # that of the gateway
    return section


def sized(gpus: tuple[Gpu, ...]) -> dict[str, str]:
    """Return the claim of an engine that takes SHARE of a GPU here."""
    return {"memory.claim_gib": f"{SHARE * min(gpu.memory_gib for gpu in gpus) + OUTSIDE_GIB:.1f}"}


def larger(gpus: tuple[Gpu, ...], port: int) -> dict[str, str]:
    """Return the settings of the service of mid_model.py, an engine of which takes MID_SHARE of a GPU here."""
    return {
        "service": "gpu-mid",
        "serve.port": str(port),
        "model.path": "mid-qwen3",
        "args.max-model-len": "2048",
        "args.gpu-memory-utilization": str(MID_SHARE),
        "memory.claim_gib": f"{MID_SHARE * min(gpu.memory_gib for gpu in gpus) + OUTSIDE_GIB:.1f}",
    }


@pytest.fixture(scope="session")
def reach(debian: str, given: Options, evidence: Evidence) -> Way:
    """How the GPU reaches containers: each way is tried, the first that works is taken."""
    working = list[Way]()
    for tried in machine.reaches(debian, 1):
        with evidence.step(f"a container gets the GPU, gpu: {tried.way}") as step:
            step.result = "not available" if tried.problem else "passed"
            step.figures.append(tried.problem)
        working += [] if tried.problem else [tried.way]
    usable = [way for way in working if given.reach in ("", way)]
    assert usable, f"no way to containers works: tried {', '.join(machine.WAYS)}"
    evidence.fact("gpu", usable[0])
    return usable[0]


@pytest.fixture(scope="session")
def lab(reach: Way, given: Options, index: int | None, gpus: tuple[Gpu, ...], evidence: Evidence) -> Lab:
    """The tiny model's service on this machine as the only node, behind a gateway."""
    host = docker("network", "inspect", "--format", "{{(index .IPAM.Config 0).Gateway}}", "bridge")
    node = machine.config(reach, [0]).model_dump(exclude_none=True, exclude_unset=True)
    HOME.mkdir(parents=True, exist_ok=True)
    file = HOME / "one.yaml"
    data = {"nodes": {"here": {**node, "model_dir": "/srv/models"}}, "gateway": {"node": "here"}}
    file.write_text(yaml.safe_dump({**data, "build": build(given, index, host)}))
    Path("/srv/models").mkdir(parents=True, exist_ok=True)
    cli = Cli(file, HOME, env={"PATH": os.environ["PATH"]})
    return Lab(cli, evidence, {"here": local}, RECIPES / f"{given.recipe}.yaml", "gpu-tiny", 8200, settings=sized(gpus))


def local(*argv: str, both: bool = False) -> str:
    """Run this machine's Docker client. With `both`, its output and its errors in one."""
    if both:
        words = ("docker", *argv)
        return subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True).stdout
    return docker(*argv)


@pytest.fixture(scope="session")
def built(lab: Lab) -> str:
    """The tag of the CUDA image, which passed its gate."""
    result = lab.run("build the CUDA image", "build", str(lab.recipe), "--json", timeout=3600).json
    lab.evidence.fact("image size", docker("image", "inspect", "--format", "{{.Size}} bytes", result["tag"]))
    for package in (lab.engine, "torch", "transformers"):
        show = f"from importlib.metadata import version; print(version('{package}'))"
        shown = docker("run", "--rm", "--network=none", "--entrypoint=python", result["tag"], "-c", show)
        lab.evidence.fact(package, shown)
    return str(result["tag"])


@pytest.fixture(scope="session")
def model(lab: Lab, built: str) -> str:
    """The tiny model, trained inside the image."""
    with lab.evidence.step("train the tiny model in the image"):
        models.make(inventory.load(lab.cli.inventory), "here", built, "tiny_model.py", "/out/tiny-qwen3")
    return "tiny-qwen3"


@pytest.fixture(scope="session")
def serving(lab: Lab, model: str) -> Lab:
    """The service with one release that answers."""
    lab.deploy("deploy, first start", change={"model.path": model})
    lab.check_answer("ask")
    return lab


@pytest.fixture(scope="session")
def nodes(debian: str, evidence: Evidence) -> RealFleet:
    """Two nodes, each with one GPU, an engine and sshd of its own."""
    with evidence.step("two nodes made of containers, one GPU each"):
        return two_nodes.up(HOME, debian)
