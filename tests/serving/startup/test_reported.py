"""Reports of failed and frightening starts: each has where it stands, what was wrong and what helped."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.unit

REPORTS = yaml.safe_load(Path(__file__).with_name("reported.yaml").read_text())
SOURCE = re.compile(r"[\w.-]+/[\w.-]+#\d+|https://\S+")
LAYERS = {"torch-cuda", "triton", "flashinfer", "jit", "nccl", "gloo", "ray", "transformers", "safetensors", "hub"}
LAYERS |= {"packages", "docker", "kernel", "engine"}


def test_each_report_has_its_source_and_the_truth_about_it() -> None:
    for report in REPORTS:
        assert SOURCE.fullmatch(report["source"]), report["source"]
        assert report["layer"] in LAYERS
        assert report["kind"] in ("failed", "good")
        assert report["cause"], report["source"]
        assert report["step"], report["source"]
    assert [source for source, count in Counter(report["source"] for report in REPORTS).items() if count > 1] == []
