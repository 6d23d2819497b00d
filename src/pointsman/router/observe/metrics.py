"""What `/metrics` says, counted by the code that writes the audit rows.

Counting is a few additions to plain objects. prometheus-client puts them into its text format, and is imported only
when somebody asks: it costs 14 MB.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar, get_args

from pointsman import __version__
from pointsman.core.errors import BUNDLED_CODES
from pointsman.core.model import ServerState, ServerStatus, ToolKey
from pointsman.providers.cloud.service import CloudStatus
from pointsman.router.audit.rows import Intent, Outcome
from pointsman.router.observe.cloud_metrics import cloud_families
from pointsman.router.observe.quantiles import Window, quantile_gauges

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OTHER = "other"
MAX_SERVERS = 500
MAX_TOOLS = 1000
MAX_TOOLS_OF_A_SERVER = 200
MAX_CODES = 64
MAX_PROVIDERS = 16
_SAID_BY_TOOLS = BUNDLED_CODES - {"rate_limited"}  # which may also mean that no server was asked
_STATES: tuple[ServerState, ...] = get_args(ServerState)

Labels = tuple[str, ...]
MaySee = Callable[[str], bool]  # whether the reader may know of a server by its id


def everything(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Gauges:
    """What is looked up when somebody asks, in place of being counted."""

    statuses: Callable[[], Mapping[str, ServerStatus]] = dict
    restarts: Callable[[], Mapping[str, int]] = dict
    sessions: Callable[[], int] = int
    cloud: Callable[[], CloudStatus | None] = lambda: None
    task_restarts: Callable[[], Mapping[str, int]] = dict
    databases_set_aside: Callable[[], int] = int
    requests: Callable[[], int] = int
    queued: Callable[[], int] = int
    unread_bytes: Callable[[], int] = int
    in_flight_bytes: Callable[[], int] = int


class Metrics:
    """An observer of the audit log. Counted from one thread; rendered from any."""

    def __init__(self) -> None:
        self._gauges = Gauges()
        self._names = _Names()
        self._series: dict[_Called, _Series] = {}
        self._calls: dict[Labels, _Counter] = {}
        self._call_seconds: dict[Labels, _Histogram] = {}
        self._last_calls: dict[Labels, Window] = {}
        self._reads: dict[Labels, _Counter] = {}
        self._read_seconds: dict[Labels, _Histogram] = {}
        self._discoveries: dict[Labels, _Counter] = {}
        self._discovery_seconds: dict[Labels, _Histogram] = {}
        self._refused: dict[Labels, _Counter] = {}
        self._rate_limited: dict[Labels, _Counter] = {}
        self._tool_changes: dict[Labels, _Counter] = {}
        self._journal_failures = _Counter()

    def watch(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def finished(self, intent: Intent, outcome: Outcome) -> None:
        if outcome.outcome == "denied":
            _counter(self._refused, (intent.kind, self._names.code(outcome.code))).count += 1
        elif intent.kind == "discovery":
            self._discovered(outcome)
        elif intent.kind == "read":
            self._read(intent, outcome)
        elif intent.kind == "change":
            _counter(self._tool_changes, (self._names.server(intent.server_id),)).count += 1
        else:
            self._called(intent, outcome)

    def journal_failed(self) -> None:
        self._journal_failures.count += 1

    def render(self, may_see: MaySee = everything) -> bytes:
        """The text format; servers that the reader may not see are lumped together.

        Takes about 5 µs a line, so a busy event loop uses `scrape`.
        """
        return self._render(self._look(), may_see)

    async def scrape(self, may_see: MaySee = everything) -> bytes:
        """Like `render`, but only the gauges are looked up here; the text is made in a thread."""
        return await asyncio.to_thread(self._render, self._look(), may_see)

    def _called(self, intent: Intent, outcome: Outcome) -> None:
        key = (intent.server_id, intent.tool_key, outcome.outcome, outcome.code)
        counter, histogram, last = self._series.get(key) or self._new_series(key)
        counter.count += 1
        seconds = (outcome.ms or 0.0) / 1000
        histogram.observe(seconds)
        last.observe(seconds)
        if outcome.code == "rate_limited":
            _counter(self._rate_limited, (self._names.server(intent.server_id),)).count += 1

    def _new_series(self, key: _Called) -> _Series:
        server_id, tool_key, ending, code = key
        server = self._names.server(server_id, checked=code != "unknown_tool")
        tool = self._names.tool(server, tool_key, checked=_was_asked(ending, code))
        labels = (server, tool, ending, self._names.code(code))
        histogram = self._call_seconds.setdefault((server, tool), _Histogram())
        series = _counter(self._calls, labels), histogram, self._last_calls.setdefault((server, tool), Window())
        if OTHER not in labels:  # what is lumped together has no bound of its own
            self._series[key] = series
        return series

    def _read(self, intent: Intent, outcome: Outcome) -> None:
        """By method, of which there are five; names and URIs are whatever a caller likes to send."""
        server = self._names.server(intent.server_id)
        labels = (server, intent.method, outcome.outcome, self._names.code(outcome.code))
        _counter(self._reads, labels).count += 1
        self._read_seconds.setdefault((server, intent.method), _Histogram()).observe((outcome.ms or 0.0) / 1000)

    def _discovered(self, outcome: Outcome) -> None:
        provider = self._names.provider(outcome.provider)
        fallback = "true" if outcome.fallback else "false"
        labels = (provider, fallback, outcome.outcome, self._names.code(outcome.code))
        _counter(self._discoveries, labels).count += 1
        self._discovery_seconds.setdefault((provider,), _Histogram()).observe((outcome.ms or 0.0) / 1000)

    def _look(self) -> _Seen:
        gauges = self._gauges
        return _Seen(
            dict(gauges.statuses()),
            dict(gauges.restarts()),
            gauges.sessions(),
            gauges.cloud(),
            dict(gauges.task_restarts()),
            gauges.databases_set_aside(),
            gauges.requests(),
            gauges.queued(),
            gauges.unread_bytes(),
            gauges.in_flight_bytes(),
        )

    def _render(self, seen: _Seen, may_see: MaySee) -> bytes:
        from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

        registry = CollectorRegistry()
        registry.register(_Collector(self._families(seen, may_see)))
        ProcessCollector(registry=registry)
        return generate_latest(registry)

    def _families(self, seen: _Seen, may_see: MaySee) -> Iterator[Metric]:
        calls = _lumped(self._calls, may_see, names=2)
        yield _counters("calls", "Calls of tools.", ("server", "tool", "outcome", "code"), calls)
        seconds = _lumped(self._call_seconds, may_see, names=2)
        yield _histograms("call_duration_seconds", "Time of a call.", ("server", "tool"), seconds)
        yield quantile_gauges(_lumped(self._last_calls, may_see, names=2))
        reads = _lumped(self._reads, may_see, names=1)
        yield _counters("reads", "Reads by MCP method.", ("server", "method", "outcome", "code"), reads)
        read_seconds = _lumped(self._read_seconds, may_see, names=1)
        yield _histograms("read_duration_seconds", "Time of a read.", ("server", "method"), read_seconds)
        labels = ("provider", "fallback", "outcome", "code")
        yield _counters("discoveries", "Discoveries by the provider that answered.", labels, self._discoveries)
        duration = "discovery_duration_seconds"
        yield _histograms(duration, "Time of a discovery.", ("provider",), self._discovery_seconds)
        yield _counters("refused", "Requests that were refused.", ("kind", "code"), self._refused)
        yield _counters(
            "rate_limited", "Calls over a rate limit.", ("server",), _lumped(self._rate_limited, may_see, names=1)
        )
        changes = _lumped(self._tool_changes, may_see, names=1)
        yield _counters("tool_changes", "Changed definitions of known tools.", ("server",), changes)
        failures: dict[Labels, _Counter] = {(): self._journal_failures}
        yield _counters("audit_journal_failures", "Failed writes to the audit journal.", (), failures)
        yield from _looked_up(seen, may_see)
        if seen.cloud is not None:
            yield from cloud_families(seen.cloud)


_Called = tuple[str | None, str | None, str, str | None]  # server, tool key, outcome, code


@dataclass(slots=True)
class _Counter:
    count: int = 0

    def add(self, other: _Counter) -> None:
        self.count += other.count


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total += seconds

    def add(self, other: _Histogram) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, list(other.counts), strict=True)]
        self.total += other.total


_Series = tuple[_Counter, _Histogram, Window]


@dataclass(frozen=True, slots=True)
class _Seen:
    statuses: Mapping[str, ServerStatus]
    restarts: Mapping[str, int]
    sessions: int
    cloud: CloudStatus | None
    task_restarts: Mapping[str, int]
    databases_set_aside: int
    requests: int
    queued: int
    unread_bytes: int
    in_flight_bytes: int


class _Names:
    """Label values, bounded: whoever comes when a place is full is `other`."""

    def __init__(self) -> None:
        self._servers: set[str] = set()
        self._tools: dict[str, set[str]] = {}
        self._tool_count = 0
        self._codes: set[str] = set()
        self._providers: set[str] = set()

    def server(self, server_id: str | None, *, checked: bool = True) -> str:
        return _bounded(self._servers, server_id, MAX_SERVERS if checked else 0)

    def code(self, code: str | None) -> str:
        """Codes of foreign servers are numbers of any kind, and must not use up the places of those we know."""
        return code if code in BUNDLED_CODES else _bounded(self._codes, code, MAX_CODES)

    def provider(self, provider: str | None) -> str:
        return _bounded(self._providers, provider, MAX_PROVIDERS)

    def tool(self, server: str, tool_key: str | None, *, checked: bool) -> str:
        key = ToolKey.parse(tool_key) if tool_key else None
        if key is None:
            return ""
        known = self._tools.setdefault(server, set())
        if key.tool_name in known:
            return key.tool_name
        full = len(known) >= MAX_TOOLS_OF_A_SERVER or self._tool_count >= MAX_TOOLS
        if full or not checked or server in ("", OTHER):
            return OTHER
        known.add(key.tool_name)
        self._tool_count += 1
        return key.tool_name


class _Collector:
    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families


def _bounded(known: set[str], name: str | None, limit: int) -> str:
    if not name or name in known:
        return name or ""
    if len(known) >= limit:
        return OTHER
    known.add(name)
    return name


def _was_asked(ending: str, code: str | None) -> bool:
    """Whether the call got as far as its server, so that the name of the tool was found in the server's list.

    Until then it is whatever a caller likes to send.
    """
    if ending in ("ok", "input_required", "timeout"):
        return True
    if ending != "error" or code is None:
        return False
    return code == "tool_error" or code in _SAID_BY_TOOLS or code.lstrip("-").isdigit()


def _counter(counters: dict[Labels, _Counter], labels: Labels) -> _Counter:
    return counters.get(labels) or counters.setdefault(labels, _Counter())


Tally = TypeVar("Tally", _Counter, _Histogram, Window)


def _lumped(tallies: Mapping[Labels, Tally], may_see: MaySee, *, names: int) -> dict[Labels, Tally]:
    """Servers that the reader may not see become one, `other`. The first `names` labels are server and tool."""
    lumped: dict[Labels, Tally] = {}
    for labels, tally in list(tallies.items()):  # the event loop may add to it meanwhile
        if not may_see(labels[0]):
            labels = (OTHER,) * names + labels[names:]
        lumped.setdefault(labels, type(tally)()).add(tally)
    return lumped


def _counters(name: str, text: str, names: Labels, counters: Mapping[Labels, _Counter]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"pointsman_{name}", text, labels=names)
    for labels, counter in list(counters.items()):  # the event loop may add to it meanwhile
        family.add_metric(labels, counter.count)
    return family


def _histograms(name: str, text: str, names: Labels, histograms: Mapping[Labels, _Histogram]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(f"pointsman_{name}", text, labels=names)
    bounds = (*map(str, BUCKETS_S), "+Inf")
    for labels, histogram in list(histograms.items()):
        buckets = list(zip(bounds, map(float, accumulate(list(histogram.counts))), strict=True))
        family.add_metric(labels, buckets, sum_value=histogram.total)
    return family


def _looked_up(seen: _Seen, may_see: MaySee) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    states = GaugeMetricFamily(
        "pointsman_server_state", "1 for the state that a server is in.", labels=["server", "state"]
    )
    for server_id, status in filter(lambda item: may_see(item[0]), seen.statuses.items()):
        for state in _STATES:
            states.add_metric([server_id, state], float(status.state == state))
    yield states
    restarts = CounterMetricFamily("pointsman_server_restarts", "Restarts of a server.", labels=["server"])
    for server_id, count in filter(lambda item: may_see(item[0]), seen.restarts.items()):
        restarts.add_metric([server_id], count)
    yield restarts
    tasks = CounterMetricFamily("pointsman_task_restarts", "Restarts of a background task.", labels=["task"])
    for name, count in seen.task_restarts.items():
        tasks.add_metric([name], count)
    yield tasks
    aside = "Broken state databases that lie in the state folder."
    yield GaugeMetricFamily("pointsman_audit_databases_set_aside", aside, value=seen.databases_set_aside)
    yield GaugeMetricFamily("pointsman_sessions", "Open sessions of clients.", value=seen.sessions)
    yield GaugeMetricFamily("pointsman_requests_under_way", "Requests under way.", value=seen.requests)
    yield GaugeMetricFamily("pointsman_requests_queued", "Requests that wait for a server's slot.", value=seen.queued)
    yield GaugeMetricFamily("pointsman_unread_bytes", "Answers that clients have not read.", value=seen.unread_bytes)
    in_flight = "Reserved for large messages that are read and decoded."
    yield GaugeMetricFamily("pointsman_in_flight_bytes", in_flight, value=seen.in_flight_bytes)
    build = GaugeMetricFamily("pointsman_build_info", "The version that runs.", labels=["version"])
    build.add_metric([__version__], 1)
    yield build
