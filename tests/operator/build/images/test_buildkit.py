"""BuildKit's plain progress."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import reduce

import pytest

from sparkops.operator.build.images import buildkit
from sparkops.operator.build.images.buildkit import BuildProgress

Captured = Callable[[str], str]


def read(lines: Iterable[str]) -> BuildProgress:
    """Return the progress after all lines."""
    return reduce(buildkit.advance, lines, BuildProgress())


def steps(log: str) -> list[str]:
    """The steps in the order in which they were shown."""
    shown, progress = [], BuildProgress()
    for line in log.splitlines():
        before, progress = progress, buildkit.advance(progress, line)
        if progress.step != before.step:
            shown.append(progress.step)
    return shown


def test_a_whole_build(captured: Captured) -> None:
    log = captured("buildx-0.13-plain.log")

    progress = read(log.splitlines())

    assert [step.split(": ")[0] for step in steps(log)] == [
        "sending the build context",
        *(f"runner {number}/9" for number in range(1, 10)),
        "exporting to image",
    ]
    assert (progress.completed, progress.total, progress.failed, progress.disk_full) == (9, 9, "", False)


def test_a_step_is_shown_without_its_mounts(captured: Captured) -> None:
    shown = steps(captured("buildx-0.13-plain.log"))

    assert shown[7] == "runner 7/9: RUN python /run/sparkops/mods/vllm-cpu-metadata.py"
    assert max(map(len, shown)) <= len("runner 9/9: ") + 100


def test_a_failed_build_names_the_step_and_what_it_said(captured: Captured) -> None:
    progress = read(captured("buildx-0.13-failed.log").splitlines())

    what = 'RUN echo looking for the package; echo "error: there is no package like that" >&2; exit 3'
    assert progress.failed == f"runner 3/3: {what}"
    assert progress.tail == ("looking for the package", "error: there is no package like that")
    assert progress.disk_full is False


def test_steps_of_several_stages_are_counted_once(captured: Captured) -> None:
    progress = read(captured("buildx-0.13-failed.log").splitlines())

    assert list(progress.steps.values())[:3] == [
        "runner 1/3: FROM docker.io/library/debian:bookworm-slim",
        "wheels 2/2: RUN echo a wheel > /wheel",
        "runner 2/3: COPY --from=wheels /wheel /wheel",
    ]
    assert (progress.completed, progress.total) == (4, 3 + 2)  # the FROM that both stages share is shown once


def test_from_ten_steps_on_numbers_are_padded() -> None:
    progress = read(["#5 [runner  2/10] RUN a", "#6 [ 3/10] RUN b", "#5 CACHED"])

    assert list(progress.steps.values()) == ["runner 2/10: RUN a", "image 3/10: RUN b"]
    assert (progress.completed, progress.total) == (1, 20)


def test_a_full_disk_is_seen(captured: Captured) -> None:
    progress = read(captured("buildx-0.13-disk-full.log").splitlines())

    assert progress.disk_full is True
    assert progress.failed == "stage-0 2/2: RUN dd if=/dev/zero of=/small/file bs=64k"


def test_only_the_last_lines_of_output_are_kept() -> None:
    progress = read(f"#5 0.{number} line {number}" for number in range(50))

    assert progress.tail == tuple(f"line {number}" for number in range(30, 50))


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("#7 2.803 (Reading ... \r(Reading ... 5%\r(Reading ... 10%\r", "(Reading ... 10%"),
        ("#7 2.803 Selecting a package.\r", "Selecting a package."),
        ("#7 2.803 ", ""),
    ],
)
def test_of_a_line_drawn_again_and_again_the_last_is_kept(line: str, kept: str) -> None:
    assert buildkit.advance(BuildProgress(), line).tail == (kept,)


@pytest.mark.parametrize(
    "line", ["", "#1 [internal] load metadata for debian", "------", " > [runner 3/3] RUN exit 3:"]
)
def test_other_lines_say_nothing(line: str) -> None:
    assert buildkit.advance(BuildProgress(), line) == BuildProgress()


def test_the_architectures_of_a_list_of_manifests_are_named_without_attestations() -> None:
    platforms = [("arm64", "v8"), ("amd64", ""), ("unknown", ""), ("amd64", "")]
    entries = [{"platform": {"architecture": name, "variant": variant, "os": "linux"}} for name, variant in platforms]

    assert buildkit.platforms(json.dumps({"manifests": entries})) == ["amd64", "arm64/v8"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"manifests": [{}]}', '{"manifests": [{"platform": 1}]}'])
def test_what_is_no_list_of_manifests_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - json's own error, or that of a list
        buildkit.platforms(text)
