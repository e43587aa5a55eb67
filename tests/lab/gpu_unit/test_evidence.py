"""The report of a run: written after each step, also of one that fails, without serial numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.gpu.evidence import CHECKOUT, Evidence, scrubbed

UUID = "GPU-1b0c7f6e-5a2d-4e0f-9c3b-0123456789ab"


@pytest.fixture
def evidence(tmp_path: Path) -> Evidence:
    return Evidence(tmp_path / "docs/gpu-x.md", tmp_path / "logs", "1 x NVIDIA H100")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"GPU 0: NVIDIA H100 (UUID: {UUID})", "GPU 0: NVIDIA H100 (UUID: GPU-(scrubbed))"),
        ("    Serial Number                     : 1653021012345", "    Serial Number                     : (scrubbed)"),
        ('"uuid": "0a1b2c3d-0000"', '"uuid": "(scrubbed)"'),
        (f"-f {CHECKOUT}/.fleet/id", "-f .fleet/id"),
        ("driver 580.159.04", "driver 580.159.04"),
    ],
)
def test_serial_numbers_and_uuids_are_scrubbed(text: str, shown: str) -> None:
    assert scrubbed(text) == shown


def test_a_report_holds_facts_steps_figures_and_commands(evidence: Evidence) -> None:
    evidence.fact("driver", "580.159.04\n")
    with evidence.step("build | gate", ("sparkops", "build", "a b")) as step:
        step.figures.append("9.46 GiB")

    written = evidence.file.read_text()

    assert "# Run on 1 x NVIDIA H100\n" in written
    assert "| driver | 580.159.04 |\n" in written
    assert "| build \\| gate | passed | 0.0 | 9.46 GiB |\n" in written
    assert "sparkops build 'a b'  # build | gate\n" in written


def test_a_step_that_fails_is_in_the_report_with_its_error(evidence: Evidence) -> None:
    with pytest.raises(ValueError, match="wrong"), evidence.step("ask"):
        raise ValueError(f"wrong answer of {UUID}\nmore")

    assert "| ask | failed: wrong answer of GPU-(scrubbed) | 0.0 |  |\n" in evidence.file.read_text()


def test_outputs_are_kept_scrubbed(evidence: Evidence) -> None:
    evidence.keep("nvidia-smi.txt", f"UUID: {UUID}")

    assert (evidence.logs / "nvidia-smi.txt").read_text() == "UUID: GPU-(scrubbed)"
