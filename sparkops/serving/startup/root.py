"""The line that a failed start began with, found in the last lines of its log. Pure.

A log mixes several processes and ends with what the failure caused elsewhere. A line is a candidate if it ends a
traceback or reports an error; of these the first counts whose process did nothing afterwards. Reports of a failure in
another process, and errors that only say that a program below them failed, count where there is nothing better.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

LONGEST = 1200
"""Characters of a line that are read: a message names its reason before that."""
COLOUR = re.compile(r"\x1b\[[\d;]{0,16}m")
PREFIXES = re.compile(
    r"[\d-]{10}T[\d:.]{8,18}Z "  # Docker
    r"|"
    r"(?:\[[^\]]{1,64}\] )?[\w.-]{1,64}:\d{1,9}:\d{1,9} \[\d{1,4}\] (?:[\w./]{1,64}:\d{1,6} )?(?=NCCL )"
    r"|\((?P<process>[\w.:@-]{1,64},? pid=\d{1,9}[^)]{0,128})\) ?"  # vLLM from 0.10, Ray
    r"|\((?P<worker>[A-Z]\w{1,64} (?:rank=\d{1,4}|pid=\d{1,9}))\) ?"
    r"|\[rank(?P<rank>\d{1,4})\]:? ?"  # torch, vLLM
    r"|\[(?P<c10>[DIWEF])\d{4} [\d:.]{8,20} [^\]]{1,128}\] ?"  # torch's C++ code
    r"|\[[\d-]{10} [\d:.,]{8,15}(?P<sglang>(?: [A-Z]{2}\d{1,4}){0,4})\] ?"  # SGLang
    r"|\[[\d-]{10} [\d:.,]{8,15} (?P<raylet>[DIWEF]) \d{1,9} \d{1,9}\] ?"  # Ray's C++ code
    r"|(?P<vllm>DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]{5,10} [\d:.]{8,15} (?:\[[^\]]{1,128}\] ?){1,3}"
    r"|[\d-]{10}[ T][\d:]{8}[,.]\d{3,6}(?: -| \[|\t| ){1,4}"
    r"(?P<python>DEBUG|INFO|SUCC|WARNING|WARN|ERROR|CRITICAL)\b[\]:]{0,2}"
    r"(?: [\w.]{1,64}:\d{1,6} --| -)?[ \t]{0,4}"
    r"|(?P<uvicorn>INFO|WARNING|ERROR|CRITICAL):[ \t]{1,10}"  # uvicorn
    r"|(?P<said>warn(?:ing)?): "  # llama.cpp, compilers
    r"|\d{1,9}\.\d\d\.\d{3}\.\d{3} (?P<llama>[DIWE]) (?:(?:srv|slot|cmn|spec|que|res) {1,16})?"  # llama.cpp
)
"""What stands before the text of a line: the process, its rank, the time, the level."""
MOST_PREFIXES = 6


OWN, LOGGED, INTRODUCTION, WORDS, OTHERS = range(5)
"""How much a line says of the root: an error of its own; one that was only logged; what introduces one; words that
sound like an error; the report of a failure elsewhere."""


class Level(IntEnum):
    """How a line was logged: PLAIN is one without a level, which may be anything."""

    CALM = 0
    WARNING = 1
    PLAIN = 2
    ERROR = 3


LEVELS = {
    "D": Level.CALM,
    "I": Level.CALM,
    "S": Level.CALM,
    "W": Level.WARNING,
    "E": Level.ERROR,
    "F": Level.ERROR,
    "C": Level.ERROR,
}
SHUTTING_DOWN = re.compile(
    r"(?i)shut(?:ting)? ?down|sigterm|sigint|terminat|clean(?:ing)? ?up|exiting|kill_process_tree"
    r"|waiting for (?:application|process)|stopp(?:ing|ed)|dumping|failed|crash|No live |loading model ''$"
)
"""What a process still logs at its end, or when it continues with nothing."""
HEADLINE = re.compile(
    r"(?!(?:Runtime|User|Future|Deprecation|Syntax)?Warning\b)[A-Za-z_][\w.]{0,200}(?:\(\w{1,64}\))?(?:: |:$|$)"
)
"""The line after the frames of a traceback."""
EXCEPTION = re.compile(r"(?:\w{1,64}\.){0,8}[A-Z]\w{0,64}(?:Error|Exception|Exit|OutOfResources)(?:\(\w{1,64}\))?: ?\S")
TRACEBACK = re.compile(r"(?:\|? ?\+?.{0,8}Exception Group )?Traceback \(most recent call last\):")
SIGNALS = re.compile(
    r"NCCL WARN (?!.{0,128}(?:GID table changed|[Nn]on.?fatal|async event|port active|client reregistration))"
    r"|\b(?:ptxas|nvcc|nvlink|cicc) {0,4}(?:fatal|error)\b"
    r"|: (?:fatal )?error(?: #\d{1,6})?: |: fatal error$|^(?:c\+\+|cc1plus|gcc|g\+\+|ld|collect2): "
    r"|\): error(?: #[\w-]{1,16})?: |: undefined (?:reference|symbol)|: No space left on device"
    r"|^terminate called (?:after throwing|without)|^Fatal Python error: |^Killed\b|: {1,4}(?:\d{1,9} )?Killed {0,40}"
    r"|^Segmentation fault|^Bus error|^Illegal instruction|^Aborted\b|^!{3,10} ?Segfault|\*{3} SIG[A-Z]{3,6} received"
    r"|^[\w./-]{1,128}: error: |^error: |exec format error|error while loading shared libraries"
    r"|^exec [^:]{1,256}: |^(?:/bin/)?(?:ba|da)?sh: (?:line )?\d{1,4}: |^env: |: command not found"
    r"|version `[\w.]{1,32}' not found"
    r"|^GGML_ASSERT|ggml_abort|GGML_ASSERT\(|^CUDA error|: CUDA error|^sparkops: (?!all |.{1,64} joins)"
    r"|[Ww]atchdog timeout \(self\.(?!.{0,64}soft=True)"
    r"|^LLVM ERROR|: line \d{1,6}: |^[^:]{1,256}: (?:not found|Permission denied)$|Hunk #\d{1,4} FAILED"
    r"|error loading model|^OpenBLAS |^libgomp: |^python\d?: |^/usr/bin/python[\d.]{0,4}: |^what\(\): "
)
"""Lines without a level that report an error of their own: compilers, the C library, NCCL, the shell."""
INTRODUCES = re.compile(
    r"^FAILED: |^ninja: (?!no work)|^terminate called|^Fatal Python error: "
    r"|: CUDA error$|returned \d{1,3} exit status"
)
"""What introduces an error, and says little of it."""
ELSEWHERE = re.compile(
    r"(?:EngineCore|WorkerProc|Engine core|Worker\w{0,32}|TokenizerManager|Scheduler|DetokenizerManager"
    r"|DataParallelController)"
    r"(?: \w{1,32})? (?:failed|encountered|initialization failed|hit an exception|died|process)"
    r"|[Ss]ee (?:root cause|stack trace|the) above|See root cause|[Rr]eceived sigquit|SIGQUIT received"
    r"|Initialization failed|Worker failed with error|Executor failed|EngineDeadError|engine core proc"
    r"|Worker proc \S{1,64} died|died unexpectedly|died with exit code"
    r"|ActorDiedError|The actor died|ActorUnavailableError|RayTaskError|ray::\w"
    r"|KeyboardInterrupt|SystemExit|CancelledError|BrokenPipeError|EOFError|Process group watchdog"
    r"|scheduler died|crashed with exit code|exit code: -?\d|Rank \d{1,9} (?:scheduler )?died|leaked \w{1,32} objects"
    r"|exiting due to|failed to load model(?! '[^']{1,256}': \w)|llama_model_loader: failed to load model from"
    r"|failed to create context with model|encountered an error while trying to fit|failed to create_context"
    r"|cleaning up before exit"
    r"|destroy_process_group|returned non-zero exit status|subprocess\.CalledProcessError|Ninja build failed"
    r"|unhandled (?:system|cuda) error|remote process exited|NCCL error|PTXAS error|Internal Triton PTX codegen error"
    r"|(?<!JIT )[Cc]ompilation failed|CppCompileError|Error building extension|BackendCompilerFailed"
    r"|Exception ignored in|During handling"
    r"|RuntimeError: cancelled|Connection closed by peer|Connection reset by peer|Broken pipe|recvValue failed"
    r"|sendBytes failed"
)
"""Reports of a failure in another process or program; the cause stands in another line."""
WEAK = re.compile(
    r"(?i)\b(?:failed|fatal|cannot|can't|could ?n[o']t|unable|not found|no such|invalid|out of memory|insufficient"
    r"|unsupported|not supported|unknown|refused|denied|timed out|timeout|killed|aborted|error)\b"
)
"""Words of a line that reports an error where no other line does."""
ENOUGH = 8
"""Calm lines after which the traceback of an unknown process counts as caught."""
EXPLAINED = -1
EXPLICIT = "The above exception was the direct cause of the following exception"
IMPLICIT = "During handling of the above exception, another exception occurred"
LOOKUPS = re.compile(r"(?:\w{1,64}\.){0,4}(?:KeyError|AttributeError|IndexError|StopIteration)\b")
"""Errors that a program catches and explains by the next one of a chain."""
VALIDATION = re.compile(r"\bvalidation errors? for \w")
VALUE_ERROR = re.compile(
    r"\s{0,8}(?:Value|Assertion) error, |\s{0,8}Input should be |\s{0,8}\S.{0,512}\[type=\w{1,64}, input_value="
)
NO_WORDS = re.compile(r"(?:\w{1,64}\.){0,8}\w{1,64}:? {0,8}")
"""The end of a traceback without a message on its line."""
USAGE = re.compile(r"usage: |\s{1,64}\[-")
"""The list of arguments that argparse prints before its error."""


@dataclass(frozen=True)
class Entry:
    """One line of a log."""

    number: int
    process: str
    level: Level
    text: str
    """Without what stands before it."""
    code: bool = False
    """Whether it is a frame of a traceback: what it contains was not printed as a message."""


@dataclass(frozen=True)
class Candidate:
    """A line that may be the root. `rank`: OWN to OTHERS."""

    entry: Entry
    rank: int
    followed: bool
    """Whether its process went on calmly afterwards: then the error was caught."""
    chain: int = 0
    """Number of the chain of exceptions that it belongs to; 0 for none."""

    @property
    def order(self) -> tuple[bool, int, int]:
        """Return the key by which the smallest is the root."""
        return self.followed, self.rank, self.entry.number


def entries(lines: Iterable[str]) -> list[Entry]:
    """Return the lines of a log as entries; the frames of tracebacks are marked."""
    read = list[Entry]()
    frames = set[tuple[str, Level]]()
    record: str | None = None
    for number, line in enumerate(lines):
        entry, begins = _entry(number, line)
        if begins:  # of SGLang, which writes process and time before the first line of a message only
            record = entry.process
        elif entry.process or entry.level is not Level.PLAIN or entry.text.startswith("NCCL "):
            record = None
        elif record is not None:
            entry = replace(entry, process=record)
        if TRACEBACK.search(entry.text) and not entry.text.startswith(" "):
            entry = replace(entry, level=Level.PLAIN) if begins else entry
            frames.add((entry.process, entry.level))
        elif (stream := (entry.process, entry.level)) in frames:
            if entry.text[:1] in (" ", "\t", "") or entry.text.startswith("|"):
                entry = replace(entry, code=bool(entry.text.strip()))
            else:
                frames.discard(stream)
        read.append(replace(entry, code=True) if USAGE.match(entry.text) else entry)
    return read


def _entry(number: int, line: str) -> tuple[Entry, bool]:
    """Return a line without what stands before it, and whether that is the mark of a message of SGLang."""
    text = COLOUR.sub("", line[:LONGEST]).rstrip().rpartition("\r")[2]
    processes, level, begins = list[str](), Level.PLAIN, False
    for _ in range(MOST_PREFIXES):
        match = PREFIXES.match(text)
        if match is None:
            break
        text = text[match.end() :]
        found = match.groupdict()
        processes += [name.strip() for key in ("process", "worker", "sglang") if (name := found[key])]
        stated = next(
            (found[key] for key in ("c10", "raylet", "vllm", "python", "uvicorn", "llama", "said") if found[key]), ""
        )
        begins = begins or found["sglang"] is not None
        level = LEVELS.get(stated[:1].upper(), level) if stated else level
    if text.startswith("NCCL INFO"):
        level = Level.CALM
    elif begins and level is Level.PLAIN:  # SGLang prints no level
        level = Level.ERROR if _is_error(text) else Level.CALM
    return Entry(number, " ".join(processes), level, text), begins


def candidates(read: Sequence[Entry]) -> list[Candidate]:
    """Return the lines that may be the root, in the order of the log."""
    chains, calm = _chains(read), [entry for entry in read if _at_work(entry)]
    last = {entry.process: entry.number for entry in calm}
    some = calm[-ENOUGH].number if len(calm) >= ENOUGH else -1
    found = []
    for entry in read:
        if (rank := _rank(entry, chains)) is not None:
            unknown = not entry.process and entry.number in chains  # the calm lines may be of another process
            after = some if unknown else last.get(entry.process, some)
            found.append(Candidate(entry, rank, after > entry.number, chains.get(entry.number, 0)))
    return found


def _at_work(entry: Entry) -> bool:
    """Return whether a line shows its process at work."""
    ends = entry.code or SHUTTING_DOWN.search(entry.text) or _is_error(entry.text)
    return entry.level is Level.CALM and not entry.text.startswith("NCCL ") and not ends


def _is_error(text: str) -> bool:
    return bool(EXCEPTION.match(text) or TRACEBACK.search(text) or SIGNALS.search(text) or ELSEWHERE.search(text))


def _chains(read: Sequence[Entry]) -> dict[int, int]:
    """Return by number of its line each end of a traceback, with the number of its chain.

    That of a lookup that was caught, and is explained by the next exception, is EXPLAINED.
    """
    ends, chain = dict[int, int](), 0
    state: dict[tuple[str, Level], tuple[bool, int, bool]] = {}  # frames, last end of the chain, linked
    for entry in read:
        stream = entry.process, entry.level
        frames, last, linked = state.get(stream, (False, -1, False))
        if entry.text.startswith((EXPLICIT, IMPLICIT)):
            if entry.text.startswith(IMPLICIT) and last >= 0 and LOOKUPS.match(read[last].text):
                ends[last] = EXPLAINED
            state[stream] = (False, last, True)
        elif TRACEBACK.search(entry.text):
            chain = chain if linked else chain + 1
            state[stream] = (True, last, False)
        elif frames and not entry.code and entry.text and HEADLINE.match(entry.text):
            ends[entry.number] = chain
            state[stream] = (False, entry.number, False)
        elif frames and not entry.code and entry.text:
            state[stream] = (False, last, False)
    return ends


def _rank(entry: Entry, ends: dict[int, int]) -> int | None:
    """Return how much a line says of the failure's root; None for one that says nothing."""
    text = entry.text
    if entry.code or not text.strip() or TRACEBACK.match(text):
        return None
    if ends.get(entry.number) == EXPLAINED:
        return OTHERS
    ended = entry.number in ends
    signal = SIGNALS.search(text) if entry.level is not Level.WARNING or text.startswith("NCCL WARN") else None
    if entry.level is Level.CALM and not (ended or (entry.process and EXCEPTION.match(text))):
        return LOGGED if signal and not text.startswith("NCCL INFO") and entry.process else None
    if entry.level is Level.WARNING and not signal:
        return None
    if not (ended or signal or EXCEPTION.match(text) or entry.level is Level.ERROR):
        if INTRODUCES.search(text):
            return INTRODUCTION
        weak = entry.level is Level.PLAIN and WEAK.search(text) and not ELSEWHERE.search(text)
        return WORDS if weak else OTHERS if entry.level is Level.PLAIN and ELSEWHERE.search(text) else None
    if INTRODUCES.search(text):
        return INTRODUCTION
    if ELSEWHERE.search(text):
        return OTHERS
    return OWN if ended or signal or EXCEPTION.match(text) else LOGGED


def told(read: Sequence[Entry], number: int) -> int:
    """Return the line that says why, where the end of a traceback does not: it counts errors, or has no words."""
    text, after = read[number].text, read[number + 1 : number + 12]
    same = [entry for entry in after if entry.process == read[number].process and not entry.code]
    if VALIDATION.search(text):
        return next((entry.number for entry in same if VALUE_ERROR.match(entry.text)), number)
    if NO_WORDS.fullmatch(text):
        return next((entry.number for entry in same[:4] if entry.text.strip(" -=*#\t")), number)
    return number
