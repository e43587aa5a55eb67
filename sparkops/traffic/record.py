"""The outcome of one request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from typing import Literal

STOPPED = "stopped"  # ended by the load itself: neither a success nor a failure


@dataclass(frozen=True)
class RequestRecord:
    """One request. Times are seconds of the monotonic clock, which all processes of a machine share."""

    kind: Literal["short", "stream"]
    connection: Literal["fresh", "kept"]
    start: float
    end: float
    status: int = 0
    """0 if there was no answer."""
    error: str = ""
    """refused, reset, closed (before an answer), cut (in an answer), timeout, status, wrong, stopped."""
    detail: str = ""
    release: str = ""
    """Header x-sparkops-release."""
    stand_in: str = ""
    """Header x-stand-in."""
    retry_after: str = ""
    openai_error: bool = False
    """Whether the body of an answer that is not 200 has OpenAI's shape."""
    first_s: float = 0.0
    """Seconds to the first event of a stream."""
    pause_s: float = 0.0
    """The longest pause between two parts of a stream."""

    @property
    def latency_s(self) -> float:
        """Seconds from sending to the last byte."""
        return self.end - self.start

    @property
    def ok(self) -> bool:
        """Whether a complete and correct answer came."""
        return not self.error

    @property
    def refused_well(self) -> bool:
        """Whether it is the documented refusal of a service without a release."""
        return self.status == 503 and bool(self.retry_after) and self.openai_error

    @property
    def reason(self) -> str:
        """The failure in a few words."""
        what = f"status {self.status}" if self.error == "status" else self.error
        return f"{self.kind} {what}"


def write(record: RequestRecord) -> str:
    """Return a record as a line."""
    return json.dumps(astuple(record), separators=(",", ":")) + "\n"


def read(lines: Iterable[str]) -> Iterator[RequestRecord]:
    """Return the records of lines, without the incomplete last line of a file that is being written."""
    return (RequestRecord(*json.loads(line)) for line in lines if line.endswith("\n"))
