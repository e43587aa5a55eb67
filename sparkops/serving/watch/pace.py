"""The speed of an engine under its own past, from a short, fixed answer that it streams now and then. Pure.

Only samples of one release on one node are compared: another model, flag or version of vLLM is another release. What
an idle engine needs for the same tokens varies little. What else varies is left out: no sample is taken while the
engine or its node has other work, nor soon after a start, and figures are medians, which a few odd samples do not move.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median

EVERY_S = 600.0
"""Least seconds between two samples: TOKENS at 6.8 tokens/s, the slowest recipe (gemma4-31b-it in
docs/evidence/recipes.md), take 4.7 s, below 1 % of the time of an idle engine."""
TOKENS = 32
"""Tokens of a sample. The time to the first one, which depends on the prefix cache, does not count."""
WARM_S = 900.0
"""Seconds after a start, a swap or a lease before the first sample. Kernels are compiled at the first request of their
shape, page cache fills, and the GPU leaves its idle clocks: within minutes, up to 300 s for a kernel
(`probe.startup.compile_stall_s`)."""
PAST = 20
"""Samples of the past: the first ones of a release on a node, some four hours of an idle engine. They are kept: a past
that slides would get used to an engine that becomes slower day by day."""
LAST = 5
"""Newest samples that are compared with the past. Their median is that of three: a backup, an update of packages or a
hot afternoon has to last for half an hour."""
SLOW_SHARE, FINE_SHARE = 0.6, 0.7
"""Share of the median of the past at or below which an engine is slow, and at which it no longer is. A GPU at a power
or clock limit, a slow kernel or a driver that lost a feature costs 40 % and more; the gate, which compares with a speed
that was measured elsewhere, passes from 50 % (`probe.smoke.speed.min_share`). Between the two nothing changes."""


@dataclass(frozen=True)
class Pace:
    """Samples of one release on one node, in tokens per second. `last`: the newest ones, after the past is complete."""

    past: tuple[float, ...] = ()
    last: tuple[float, ...] = ()
    slow: bool = False

    def after(self, tok_s: float) -> Pace:
        """Return the pace with one more sample."""
        if len(self.past) < PAST:
            return replace(self, past=(*self.past, tok_s))
        return replace(self, last=(*self.last, tok_s)[-LAST:]).judged()

    def judged(self) -> Pace:
        """Return the pace with its verdict.

        Slow is also below all of the past but one odd sample: where that varies, a share of its median shows nothing.
        """
        if len(self.past) < PAST or len(self.last) < LAST:
            return replace(self, slow=False)
        now, usual = median(self.last), median(self.past)
        if self.slow:
            return replace(self, slow=now < FINE_SHARE * usual)
        return replace(self, slow=now <= SLOW_SHARE * usual and now < sorted(self.past)[1])

    @property
    def detail(self) -> str:
        """Return both figures, of a pace that is complete."""
        now, usual = median(self.last), median(self.past)
        return (
            f"{now:.1f} tokens/s in its last {LAST} samples while idle, "
            f"{now / usual:.0%} of its own past on this node, {usual:.1f} tokens/s in its first {PAST}"
        )
