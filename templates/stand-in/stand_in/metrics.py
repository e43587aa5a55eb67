"""The samples of /metrics."""

from __future__ import annotations

import gc
import math
import platform
import resource
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path

from stand_in import families
from stand_in.families import Family

PAGE = resource.getpagesize()


class Histogram:
    """Observations, counted by bucket."""

    def __init__(self, buckets: tuple[float, ...]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count one value."""
        self.counts[bisect_left(self.buckets, value)] += times
        self.total += value * times

    def samples(self) -> Iterator[tuple[str, str, float]]:
        """Yield suffix, label and value of each line."""
        below = 0
        for bucket, count in zip((*self.buckets, math.inf), self.counts, strict=True):
            below += count
            yield "_bucket", f'le="{number(bucket)}"', below
        yield "_count", "", below
        yield "_sum", "", self.total


class Metrics:
    """The samples of all families. A series is the label that distinguishes a sample within its family, as text."""

    def __init__(self, model: str, model_len: int) -> None:
        self.born = time.time()
        self.common = ('engine="0"', f'model_name="{model}"')
        self.values: dict[tuple[str, str], float] = {("engine_sleep_state", 'sleep_state="awake"'): 1.0}
        self.histograms: dict[tuple[str, str], Histogram] = {}
        self.handlers: set[str] = set()
        self.routes: set[str] = set()
        for family in families.ENGINE:
            if family.kind == "histogram":
                buckets = to_length(model_len) if family.buckets == families.TO_MODEL_LEN else family.buckets
                self.histograms[family.name, ""] = Histogram(buckets)
        self.histograms[families.HTTP_LATENCY.name, ""] = Histogram(families.WEB)

    def add(self, name: str, amount: float = 1.0, series: str = "") -> None:
        """Add to a counter or gauge."""
        self.values[name, series] = self.values.get((name, series), 0.0) + amount

    def observe(self, name: str, value: float, times: int = 1) -> None:
        """Count a value in a histogram."""
        self.histograms[name, ""].observe(value, times)

    def web(self, method: str, path: str, status: int, sizes: tuple[int, int], seconds: float) -> None:
        """Count one HTTP request; `sizes`: of its body and of the answer's."""
        handler, route = f'handler="{path}"', f'handler="{path}",method="{method}"'
        self.handlers.add(handler)
        self.routes.add(route)
        self.add("http_requests", 1, f'{route},status="{status // 100}xx"')
        for family, size in zip(families.HTTP_SIZES, sizes, strict=True):
            self.add(f"{family.name}_count", 1, handler)
            self.add(f"{family.name}_sum", size, handler)
        self.histograms[families.HTTP_LATENCY.name, ""].observe(seconds)
        duration = families.HTTP_DURATION
        self.histograms.setdefault((duration.name, route), Histogram(duration.buckets)).observe(seconds)

    def render(self) -> str:
        """Return the text of /metrics."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        samples = dict(process_samples(self.born))
        for family in families.PROCESS:
            series = {label: value for (name, label), value in samples.items() if name == family.name}
            yield from self._simple(family, series)
        for family in families.ENGINE:
            yield from self._engine(family)
        yield from self._simple(families.CACHE_CONFIG, {cache_config(): 1.0}, "vllm:")
        yield from self._web()

    def _engine(self, family: Family) -> Iterator[str]:
        common = self.common if family.engine else self.common[1:]
        if family.kind == "histogram":
            yield from self._histogram(family, {"": self.histograms[family.name, ""]}, "vllm:", common)
        else:
            series = {label: self.values.get((family.name, label), 0.0) for label in family.series}
            yield from self._simple(family, series, "vllm:", common)

    def _web(self) -> Iterator[str]:
        named = families.HTTP_REQUESTS.name
        counts = {series: count for (name, series), count in self.values.items() if name == named}
        yield from self._simple(families.HTTP_REQUESTS, counts)
        for family in families.HTTP_SIZES:
            yield from self._summary(family)
        yield from self._histogram(families.HTTP_LATENCY, {"": self.histograms[families.HTTP_LATENCY.name, ""]})
        duration = families.HTTP_DURATION
        routes = {route: self.histograms[duration.name, route] for route in sorted(self.routes)}
        yield from self._histogram(duration, routes)

    def _simple(
        self, family: Family, series: dict[str, float], prefix: str = "", common: Iterable[str] = ()
    ) -> Iterator[str]:
        name = f"{prefix}{family.name}"
        sampled = f"{name}_total" if family.kind == "counter" else name
        yield from _head(sampled, family)
        for label, value in series.items():
            yield f"{sampled}{_labels(label, *common)} {number(value)}"
        yield from self._created(family, name, series, common)

    def _histogram(
        self, family: Family, series: dict[str, Histogram], prefix: str = "", common: Iterable[str] = ()
    ) -> Iterator[str]:
        name = f"{prefix}{family.name}"
        yield from _head(name, family)
        for label, histogram in series.items():
            for suffix, bucket, value in histogram.samples():
                yield f"{name}{suffix}{_labels(label, bucket, *common)} {number(value)}"
        yield from self._created(family, name, series, common)

    def _summary(self, family: Family) -> Iterator[str]:
        yield from _head(family.name, family)
        for handler in sorted(self.handlers):
            for suffix in ("_count", "_sum"):
                name = f"{family.name}{suffix}"
                yield f"{name}{_labels(handler)} {number(self.values[name, handler])}"
        yield from self._created(family, family.name, sorted(self.handlers), ())

    def _created(self, family: Family, name: str, series: Iterable[str], common: Iterable[str]) -> Iterator[str]:
        if family.created:
            yield from _head(f"{name}_created", family._replace(kind="gauge"))
            for label in series:
                yield f"{name}_created{_labels(label, *common)} {number(self.born)}"


def _head(name: str, family: Family) -> Iterator[str]:
    yield f"# HELP {name} {family.text}"
    yield f"# TYPE {name} {family.kind}"


def _labels(*labels: str) -> str:
    joined = ",".join(sorted(part for label in labels if label for part in label.split(",")))
    return f"{{{joined}}}" if joined else ""


def number(value: float) -> str:
    """Return a number in the format of Prometheus' clients: 1.7952202641883447e+09."""
    if math.isinf(value):
        return "+Inf"
    text = repr(float(value))
    dot = text.find(".")
    if value > 0 and dot > 6:
        return f"{text[0]}.{text[1:dot]}{text[dot + 1 :]}".rstrip("0.") + f"e+0{dot - 1}"
    return text


def to_length(model_len: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50, ... up to the model's length."""
    powers = (10**exponent for exponent in range(len(str(model_len))))
    return tuple(step * power for power in powers for step in (1, 2, 5) if step * power <= model_len)


def cache_config() -> str:
    """Return the labels of vllm:cache_config_info."""
    pairs = (pair.split("=", 1) for pair in families.CACHE_LABELS.split())
    return ",".join(f'{key}="{value}"' for key, value in pairs)


def process_samples(born: float) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the samples that Prometheus' client library adds for every Python process."""
    for number_of, stats in enumerate(gc.get_stats()):
        series = f'generation="{number_of}"'
        yield ("python_gc_objects_collected", series), stats["collected"]
        yield ("python_gc_objects_uncollectable", series), stats["uncollectable"]
        yield ("python_gc_collections", series), stats["collections"]
    major, minor, patch = platform.python_version_tuple()
    version = f'major="{major}",minor="{minor}",patchlevel="{patch}",version="{platform.python_version()}"'
    yield ("python_info", f'implementation="CPython",{version}'), 1.0
    virtual, resident = (int(pages) * PAGE for pages in Path("/proc/self/statm").read_text().split()[:2])
    yield ("process_virtual_memory_bytes", ""), virtual
    yield ("process_resident_memory_bytes", ""), resident
    yield ("process_start_time_seconds", ""), born
    yield ("process_cpu_seconds", ""), time.process_time()
    yield ("process_open_fds", ""), sum(1 for _ in Path("/proc/self/fd").iterdir())
    yield ("process_max_fds", ""), resource.getrlimit(resource.RLIMIT_NOFILE)[0]
