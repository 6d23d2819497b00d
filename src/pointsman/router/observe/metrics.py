"""Counts calls, reads and discoveries for `/metrics`, as an observer of the audit log.

Counting is a few additions to plain objects. `exposition.py` renders them with prometheus-client, which is imported
only at the first scrape: it costs 14 MB.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from math import ceil
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field

from pointsman.core.errors import BUNDLED_CODES
from pointsman.core.model import Json, ServerStatus, ToolKey
from pointsman.router.audit.rows import Intent, Outcome
from pointsman.router.observe import exposition
from pointsman.router.observe.exposition import BUCKETS_S, WINDOW

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from pointsman.providers.cloud.service import CloudStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES = (0.5, 0.95, 0.99)
OTHER = "other"
MAX_SERVERS = 500
MAX_TOOLS = 1000
MAX_TOOLS_OF_A_SERVER = 200
MAX_CODES = 64
MAX_PROVIDERS = 16
MAX_PROJECTS = 200
MAX_IN_PROJECTS = 4000  # tools, methods and providers, each counted once for each project
MAX_REFUSALS = 20  # clients and reasons that the page names
_TOOL_CODES = BUNDLED_CODES - {"rate_limited"}  # which may also mean that nothing was sent to a server

_ERRORS = frozenset({"error", "timeout", "interrupted"})

Labels = tuple[str, ...]
MaySee = Callable[[str], bool]  # whether the reader may see the server, or the project, with that id
MayUse = Callable[[str, str], bool]  # whether the reader may use the tool of that server and name


def everything(*_: str) -> bool:
    return True


class Gauges(Struct, frozen=True):
    """Figures that are looked up at a scrape instead of being counted."""

    statuses: Callable[[], Mapping[str, ServerStatus]] = dict
    restarts: Callable[[], Mapping[str, int]] = dict
    sessions: Callable[[], int] = int
    cloud: Callable[[], CloudStatus | None] = lambda: None
    task_restarts: Callable[[], Mapping[str, int]] = dict
    tools_not_encoded: Callable[[], int] = int
    databases_set_aside: Callable[[], int] = int
    requests: Callable[[], int] = int
    queued: Callable[[], int] = int
    unread_bytes: Callable[[], int] = int
    in_flight_bytes: Callable[[], int] = int


class Metrics:
    """Fits `audit.log.Observer`. Counts in one thread; renders in any."""

    def __init__(self) -> None:
        self._gauges = Gauges()
        self._names = _Names()
        self._series: dict[_Called, _Series] = {}
        # The last label of the following is the project.
        self._calls: dict[Labels, Count] = {}
        self._call_seconds: dict[Labels, Histogram] = {}
        self._last_calls: dict[Labels, Window] = {}
        self._reads: dict[Labels, Count] = {}
        self._read_seconds: dict[Labels, Histogram] = {}
        self._discoveries: dict[Labels, Count] = {}
        self._discovery_seconds: dict[Labels, Histogram] = {}
        self._refused: dict[Labels, Count] = {}
        self._rate_limited: dict[Labels, Count] = {}
        self._confirmations: dict[Labels, Count] = {}
        self._tool_changes: dict[Labels, Count] = {}
        self.refusals: dict[tuple[str, str | None, str | None], Refusal] = {}  # by client, token and code; latest last
        self._journal_failures = Count()

    def watch(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def finished(self, intent: Intent, outcome: Outcome) -> None:
        if outcome.confirmed is not None:  # one of some fifteen texts of the gate
            _counter(self._confirmations, (outcome.confirmed, self._names.project(intent.project))).count += 1
        if outcome.outcome == "denied" or intent.kind != "execute":
            self._finished_other(intent, outcome)
            return
        key = (intent.server_id, intent.tool_key, outcome.outcome, outcome.code, intent.project)
        counter, histogram, last = self._series.get(key) or self._new_series(key)
        counter.count += 1
        seconds = (outcome.ms or 0.0) / 1000
        histogram.observe(seconds)
        last.observe(seconds)
        if outcome.code == "rate_limited":
            server = self._names.server(intent.server_id)
            _counter(self._rate_limited, (server, self._names.project(intent.project, server))).count += 1

    def journal_failed(self) -> None:
        self._journal_failures.count += 1

    async def figures(self) -> CallFigures:
        """Return calls, errors and quantiles of all servers, for `pointsman status`."""
        return await asyncio.to_thread(self._figures)

    def render(
        self, may_see: MaySee = everything, may_use: MayUse = everything, projects: MaySee | None = None
    ) -> bytes:
        """Return the text format; servers and tools that the reader may not see are aggregated as `other`.

        With `projects`, figures are divided by project, and those that the reader may not see are `other` as well.
        Takes about 5 µs a line, so a busy event loop uses `scrape`.
        """
        return exposition.render(self._families(self._read_gauges(), may_see, may_use, projects))

    async def scrape(
        self, may_see: MaySee = everything, may_use: MayUse = everything, projects: MaySee | None = None
    ) -> bytes:
        """Like `render`, but only reads the gauges in this thread and renders in another."""
        families = self._families(self._read_gauges(), may_see, may_use, projects)
        return await asyncio.to_thread(exposition.render, families)

    async def collected(
        self, may_see: MaySee = everything, may_use: MayUse = everything, projects: MaySee | None = None
    ) -> list[Json]:
        """Like `scrape`, but as plain data for `exposition.render_workers`."""
        families = self._families(self._read_gauges(), may_see, may_use, projects)
        return await asyncio.to_thread(exposition.collected, families)

    def _figures(self) -> CallFigures:
        total, by_server = _Sum(), dict[str, _Sum]()
        for (server, _, ending, *_), counted in list(self._calls.items()):
            for figures in (total, by_server.setdefault(server, _Sum())):
                figures.calls += counted.count if ending != "input_required" else 0
                figures.errors += counted.count if ending in _ERRORS else 0
        for (server, *_), window in list(self._last_calls.items()):
            for figures in (total, by_server.setdefault(server, _Sum())):
                figures.window.add(window)
        refused = sum(count.count for count in list(self._refused.values()))
        discoveries = sum(count.count for count in list(self._discoveries.values()))
        servers = {server: figures.shown() for server, figures in by_server.items() if server}
        return CallFigures(total.shown(), servers, refused, discoveries)

    def _finished_other(self, intent: Intent, outcome: Outcome) -> None:
        """Count a refusal, a discovery, a read or a change."""
        if outcome.outcome == "denied":
            code = self._names.code(outcome.code)
            _counter(self._refused, (intent.kind, code, self._names.project(intent.project))).count += 1
            self._remember_refusal(intent, outcome)
        elif intent.kind == "discovery":
            self._discovered(intent, outcome)
        elif intent.kind == "read":
            self._read(intent, outcome)
        else:
            _counter(self._tool_changes, (self._names.server(intent.server_id),)).count += 1

    def _remember_refusal(self, intent: Intent, outcome: Outcome) -> None:
        key = (intent.client, intent.token, outcome.code)
        before = self.refusals.pop(key, None)
        self.refusals[key] = Refusal(intent.time_ms, intent.method, before.count + 1 if before else 1)
        if len(self.refusals) > MAX_REFUSALS:
            del self.refusals[next(iter(self.refusals))]

    def _new_series(self, key: _Called) -> _Series:
        server_id, tool_key, ending, code, project_id = key
        server = self._names.server(server_id, checked=code != "unknown_tool")
        tool = self._names.tool(server, tool_key, checked=_was_sent(ending, code))
        project = self._names.project(project_id, server, tool)
        labels, names = (server, tool, ending, self._names.code(code), project), (server, tool, project)
        histogram = self._call_seconds.setdefault(names, Histogram())
        series = _counter(self._calls, labels), histogram, self._last_calls.setdefault(names, Window())
        if OTHER not in labels:  # the keys that are aggregated are unbounded
            self._series[key] = series
        return series

    def _read(self, intent: Intent, outcome: Outcome) -> None:
        """Count by method, of which there are five; names and URIs are chosen by callers."""
        server = self._names.server(intent.server_id)
        project = self._names.project(intent.project, server, intent.method)
        labels = (server, intent.method, outcome.outcome, self._names.code(outcome.code), project)
        _counter(self._reads, labels).count += 1
        seconds = self._read_seconds.setdefault((server, intent.method, project), Histogram())
        seconds.observe((outcome.ms or 0.0) / 1000)

    def _discovered(self, intent: Intent, outcome: Outcome) -> None:
        provider = self._names.provider(outcome.provider)
        project = self._names.project(intent.project, provider)
        fallback = "true" if outcome.fallback else "false"
        labels = (provider, fallback, outcome.outcome, self._names.code(outcome.code), project)
        _counter(self._discoveries, labels).count += 1
        seconds = self._discovery_seconds.setdefault((provider, project), Histogram())
        seconds.observe((outcome.ms or 0.0) / 1000)

    def _read_gauges(self) -> GaugeValues:
        gauges = self._gauges
        return GaugeValues(
            dict(gauges.statuses()),
            dict(gauges.restarts()),
            gauges.sessions(),
            gauges.cloud(),
            dict(gauges.task_restarts()),
            gauges.tools_not_encoded(),
            gauges.databases_set_aside(),
            gauges.requests(),
            gauges.queued(),
            gauges.unread_bytes(),
            gauges.in_flight_bytes(),
        )

    def _families(
        self, gauges: GaugeValues, may_see: MaySee, may_use: MayUse, projects: MaySee | None
    ) -> Iterator[Metric]:
        project = () if projects is None else ("project",)
        calls = _visible_tools(_by_project(self._calls, projects), may_see, may_use)
        yield exposition.counter_family("calls", "Tool calls.", ("server", "tool", "outcome", "code", *project), calls)
        seconds = _visible_tools(_by_project(self._call_seconds, projects), may_see, may_use)
        yield exposition.histogram_family(
            "call_duration_seconds", "Duration of tool calls.", ("server", "tool", *project), seconds
        )
        last_calls = _visible_tools(_by_project(self._last_calls, projects), may_see, may_use)
        yield exposition.quantile_family(("server", "tool", *project), last_calls)
        reads = _visible(_by_project(self._reads, projects), may_see)
        yield exposition.counter_family(
            "reads",
            "Reads such as resources/read and prompts/get, by MCP method.",
            ("server", "method", "outcome", "code", *project),
            reads,
        )
        read_seconds = _visible(_by_project(self._read_seconds, projects), may_see)
        yield exposition.histogram_family(
            "read_duration_seconds", "Duration of reads.", ("server", "method", *project), read_seconds
        )
        yield exposition.counter_family(
            "discoveries",
            "Tool discoveries, by the search provider that answered.",
            ("provider", "fallback", "outcome", "code", *project),
            _by_project(self._discoveries, projects),
        )
        discovery_seconds = _by_project(self._discovery_seconds, projects)
        yield exposition.histogram_family(
            "discovery_duration_seconds",
            "Duration of tool discoveries.",
            ("provider", *project),
            discovery_seconds,
        )
        refused = _by_project(self._refused, projects)
        yield exposition.counter_family("refused", "Rejected requests.", ("kind", "code", *project), refused)
        yield exposition.counter_family(
            "rate_limited",
            "Calls rejected by a rate limit.",
            ("server", *project),
            _visible(_by_project(self._rate_limited, projects), may_see),
        )
        yield exposition.counter_family(
            "confirmations",
            "Calls that needed a person's yes, by how it was given or why it was not.",
            ("answer", *project),
            _by_project(self._confirmations, projects),
        )
        changes = _visible(self._tool_changes, may_see)
        yield exposition.counter_family(
            "tool_changes", "Tools whose definition changed while the gateway ran.", ("server",), changes
        )
        failures: dict[Labels, Count] = {(): self._journal_failures}
        yield exposition.counter_family("audit_journal_failures", "Failed writes to the audit journal.", (), failures)
        yield from exposition.gauge_families(gauges, may_see)
        if gauges.cloud is not None:
            yield from exposition.cloud_families(gauges.cloud)


class Refusal(Struct, frozen=True):
    """The last refusal of one client for one reason, and how many there were."""

    time_ms: int
    method: str
    count: int


class Figures(Struct, frozen=True):
    calls: int
    errors: int
    quantiles: Mapping[float, float]  # in seconds, of the latest calls


class CallFigures(Struct, frozen=True):
    """Since the start of the daemon. A call that asked its client something counts once."""

    total: Figures
    servers: Mapping[str, Figures]
    refused: int  # requests of any kind
    discoveries: int


class _Sum(Struct):
    calls: int = 0
    errors: int = 0
    window: Window = field(default_factory=lambda: Window())

    def shown(self) -> Figures:
        return Figures(self.calls, self.errors, self.window.quantiles())


_Called = tuple[str | None, str | None, str, str | None, str | None]  # server, tool key, outcome, code, project


class Count(Struct):
    count: int = 0

    def add(self, other: Count) -> None:
        self.count += other.count


class Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BUCKETS_S, seconds)] += 1
        self.total += seconds

    def add(self, other: Histogram) -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, list(other.counts), strict=True)]
        self.total += other.total


class Window:
    """The latest durations, for quantiles. Written by one thread, read by any."""

    __slots__ = ("_oldest", "seconds")

    def __init__(self) -> None:
        self.seconds = array("d")
        self._oldest = 0

    def observe(self, seconds: float) -> None:
        if len(self.seconds) < WINDOW:
            self.seconds.append(seconds)
            return
        self.seconds[self._oldest] = seconds
        self._oldest = (self._oldest + 1) % WINDOW

    def add(self, other: Window) -> None:
        """Merge for reading: this window then exceeds its size and must not observe any more."""
        self.seconds.extend(other.seconds)

    def quantiles(self) -> Mapping[float, float]:
        """Return for each quantile the smallest duration that this share of the calls did not exceed."""
        ordered = sorted(self.seconds)
        return {share: ordered[ceil(share * len(ordered)) - 1] for share in QUANTILES} if ordered else {}


_Series = tuple[Count, Histogram, Window]


class GaugeValues(Struct, frozen=True):
    statuses: Mapping[str, ServerStatus]
    restarts: Mapping[str, int]
    sessions: int
    cloud: CloudStatus | None
    task_restarts: Mapping[str, int]
    tools_not_encoded: int
    databases_set_aside: int
    requests: int
    queued: int
    unread_bytes: int
    in_flight_bytes: int


class _Names:
    """Bounds the number of label values: further ones become `other`."""

    def __init__(self) -> None:
        self._servers: set[str] = set()
        self._tools: dict[str, set[str]] = {}
        self._tool_count = 0
        self._codes: set[str] = set()
        self._providers: set[str] = set()
        self._projects: set[str] = set()
        self._in_projects: set[Labels] = set()

    def server(self, server_id: str | None, *, checked: bool = True) -> str:
        return _bounded(self._servers, server_id, MAX_SERVERS if checked else 0)

    def code(self, code: str | None) -> str:
        """Known codes do not count: other servers may use any number of codes of their own."""
        return code if code in BUNDLED_CODES else _bounded(self._codes, code, MAX_CODES)

    def provider(self, provider: str | None) -> str:
        return _bounded(self._providers, provider, MAX_PROVIDERS)

    def project(self, project_id: str | None, *counted: str) -> str:
        """The project, empty for none. `counted` is what is counted in it: the two together are bounded as well."""
        project = _bounded(self._projects, project_id, MAX_PROJECTS)
        pair = (project, *counted)
        if not project or pair in self._in_projects:
            return project
        if len(self._in_projects) >= MAX_IN_PROJECTS:
            return OTHER
        self._in_projects.add(pair)
        return project

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


def _bounded(known: set[str], name: str | None, limit: int) -> str:
    if not name or name in known:
        return name or ""
    if len(known) >= limit:
        return OTHER
    known.add(name)
    return name


def _was_sent(ending: str, code: str | None) -> bool:
    """Return whether the call was sent to its server, so that the tool's name is from the server's list.

    Otherwise the name is whatever the caller sent.
    """
    if ending in ("ok", "input_required", "timeout"):
        return True
    if ending != "error" or code is None:
        return False
    return code == "tool_error" or code in _TOOL_CODES or code.lstrip("-").isdigit()


def _counter(counters: dict[Labels, Count], labels: Labels) -> Count:
    return counters.get(labels) or counters.setdefault(labels, Count())


Tally = TypeVar("Tally", Count, Histogram, Window)


def _by_project(tallies: Mapping[Labels, Tally], projects: MaySee | None) -> dict[Labels, Tally]:
    """Aggregate projects that the reader may not see as `other`; None: do not divide by project at all."""
    shown: dict[Labels, Tally] = {}
    for (*labels, project), tally in list(tallies.items()):  # the event loop may add to it meanwhile
        if projects is not None:
            labels.append(project if not project or projects(project) else OTHER)
        shown.setdefault(tuple(labels), type(tally)()).add(tally)
    return shown


def _visible(tallies: Mapping[Labels, Tally], may_see: MaySee) -> dict[Labels, Tally]:
    """Aggregate servers that the reader may not see as `other`. The first label is the server."""
    return _aggregated(tallies, lambda labels: labels if may_see(labels[0]) else (OTHER, *labels[1:]))


def _visible_tools(tallies: Mapping[Labels, Tally], may_see: MaySee, may_use: MayUse) -> dict[Labels, Tally]:
    """Aggregate servers and tools that the reader may not see as `other`. The first two labels name them."""

    def shown(labels: Labels) -> Labels:
        server, tool, *rest = labels
        if not may_see(server):
            return (OTHER, OTHER, *rest)
        return labels if tool in ("", OTHER) or may_use(server, tool) else (server, OTHER, *rest)

    return _aggregated(tallies, shown)


def _aggregated(tallies: Mapping[Labels, Tally], shown: Callable[[Labels], Labels]) -> dict[Labels, Tally]:
    visible: dict[Labels, Tally] = {}
    for labels, tally in list(tallies.items()):  # the event loop may add to it meanwhile
        visible.setdefault(shown(labels), type(tally)()).add(tally)
    return visible
