"""How sparkops judges the starts of tests/captured/starts: `python -m tests.serving.startup.judging work [NAME...]`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from sparkops.engines import ENGINES
from sparkops.engines.start_log import Stage
from sparkops.serving.startup import causes
from sparkops.serving.startup.explain import Explanation, explain, of_docker
from tests.serving.startup import starts
from tests.serving.startup.starts import Start

DOCKER = "docker"


@dataclass(frozen=True)
class Verdict:
    """What sparkops says of one start, and whether that is right."""

    start: Start
    root: str
    """The line of the log; empty where none was found."""
    cause: str
    step: str

    @property
    def root_right(self) -> bool:
        return self.start.truth["engine"] == DOCKER or self.start.is_root(self.root)

    @property
    def cause_right(self) -> bool:
        """Whether cause and step are right."""
        wrong = self.start.is_wrong(self.cause)
        return bool(self.cause) and not wrong and self.start.says("step", self.step)

    @property
    def cause_wrong(self) -> bool:
        return self.start.is_wrong(self.cause)


def judge(start: Start) -> Verdict:
    """Return the verdict on a failed start: of several ranks that of the one which does not point to another."""
    if start.truth["engine"] == DOCKER:
        known = of_docker(start.files[0].read_text())
        return Verdict(start, "", *(known or ("", "")))
    stalled = start.truth.get("ends", "exit") != "exit"
    read = [(lines, _explained(start, lines, stalled=stalled)) for lines in _logs(start)]
    lines, found = min(read, key=lambda one: (one[1].number is None, one[1].of_others, one[1].advice is None))
    line = "" if found.number is None else lines[found.number]
    return Verdict(start, line, *(found.advice or ("", "")))


def _logs(start: Start) -> Iterator[list[str]]:
    return (file.read_text().splitlines() for file in start.files)


def verdicts(half: str, kind: str = "failed") -> Iterator[Verdict]:
    return (judge(start) for start in starts.load() if start.half == half and start.truth["kind"] == kind)


def _explained(start: Start, lines: list[str], *, stalled: bool = False) -> Explanation:
    engine = start.truth["engine"]
    served = any(ENGINES[engine].log.read(line).stage is Stage.SERVING for line in lines)
    return explain(lines, causes.of(engine), stalled=stalled, served=served)


def known(start: Start) -> list[Explanation]:
    """Return what each log of a failed start shows; nothing for Docker's errors."""
    stalled = start.truth.get("ends", "exit") != "exit"
    if start.truth["engine"] == DOCKER:
        return []
    return [_explained(start, lines, stalled=stalled) for lines in _logs(start)]


def explained(start: Start) -> list[Explanation]:
    """Return what would be said of a good start, as if it had failed: nothing may be a cause."""
    return [_explained(start, lines) for lines in _logs(start)]


def main() -> None:
    """Print the verdicts that are not right, and the shares."""
    half, names = sys.argv[1], sys.argv[2:]
    judged = [one for one in verdicts(half) if not names or one.start.name in names]
    for one in judged:
        marks = ("root " * (not one.root_right), "cause " * (not one.cause_right), "WRONG" * one.cause_wrong)
        if any(marks) or names:
            truth = one.start.truth
            print(f"\n{one.start.name} ({truth['engine']}, {truth['layer']}): {''.join(marks)}")
            print(f"  root:  {truth.get('root', '')[:150]}\n    got: {one.root[:170]}")
            print(f"  cause: {truth['cause']} {truth['cause_words']}\n    got: {one.cause}")
            print(f"  step:  {truth['step']} {truth['step_words']}\n    got: {one.step}")
    count = len(judged)
    print(
        f"\n{count} starts: root right {sum(one.root_right for one in judged)}, cause and step right "
        f"{sum(one.cause_right for one in judged)}, cause wrong {sum(one.cause_wrong for one in judged)}"
    )
    for start in starts.load() if not names else ():
        if start.half == half and start.truth["kind"] == "good":
            for found in explained(start):
                if found.advice:
                    print(f"good {start.name}: {found.root[:150]} -> {found.advice.cause}")


if __name__ == "__main__":
    main()
