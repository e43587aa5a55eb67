"""`make arguments`: judge every recipe's arguments, and write docs/evidence/arguments.md. Fails if one is refused."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, datetime

from sparkops.operator.convert import releases
from tests.fleet.shell import say, step
from tests.lab.arguments import page, scratch
from tests.lab.arguments.command_lines import WRONG, Judgement, recipes, to_judge, vllm_recipes
from tests.lab.arguments.page import ACCEPTED, NEWEST, NOT_RUN, Parser
from tests.lab.wheels import remote


def main() -> int:
    """Run each parser in turn. Returns 1 if a recipe is refused by its own, or a wrong example accepted by any."""
    pinned = {judge for of in vllm_recipes() if of.image.vllm for judge in page.parsers(of.image.vllm)} | {
        release.image["vllm"] for release in releases.RELEASES
    }
    judged = [_judge(requirement) for requirement in dict.fromkeys((*sorted(pinned), NEWEST))]
    rows = [page.row(of, {one.requirement: one.problems for one in judged}) for of in recipes()]
    ran = next((one.judgement for one in judged if one.judgement), None)
    python, torch = (ran["python"], ran["torch"]) if ran else ("none", "none")
    today = f"{datetime.now(UTC):%-d %B %Y}"
    page.PAGE.write_text(page.text(today, python, torch, (rows, [one.parser for one in judged])))
    wrong = [f"{row.recipe}: {row.verdict}" for row in rows if row.verdict not in (ACCEPTED, *NOT_RUN.values())]
    wrong += [f"{one.requirement} accepts: {name}" for one in judged for name in one.accepted]
    for line in wrong:
        say(line)
    return int(bool(wrong))


@dataclass(frozen=True)
class Judged:
    """What one vLLM reports; `problems` is the reason if it did not run."""

    requirement: str
    parser: Parser
    problems: dict[str, str] | str
    judgement: Judgement | None = None

    @property
    def accepted(self) -> list[str]:
        """Wrong examples that it accepts."""
        return [name for name in WRONG if self.judgement and not self.judgement["problems"][name]]


def _judge(requirement: str) -> Judged:
    name = page.version(requirement)
    wheel = remote.find(requirement, "aarch64")
    if wheel is None:
        return Judged(requirement, Parser(name, "-", "-", NOT_RUN["no wheel"]), NOT_RUN["no wheel"])
    with step(f"{requirement}: judged"):
        try:
            judgement = scratch.judge(wheel, to_judge(vllm_recipes()))
        except scratch.NotImported as error:
            reason = NOT_RUN["not imported"]
            return Judged(requirement, Parser(name, wheel.name, wheel.uploaded, f"{reason}: {error}"), reason)
    refused = sum(bool(judgement["problems"][name]) for name in WRONG)
    parser = Parser(name, wheel.name, wheel.uploaded, f"{refused} of {len(WRONG)}")
    return Judged(requirement, parser, judgement["problems"], judgement)


if __name__ == "__main__":
    sys.exit(main())
