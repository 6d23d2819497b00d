"""The metrics of the search service. No label comes from a request."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from pointsman import __version__
from pointsman.providers.base import SearchHits
from pointsman.providers.llm.provider import Selected
from pointsman.router.observe.exposition import BUCKETS_S

_PREFIX = "pointsman_search_api"


class ServiceMetrics:
    def __init__(self, slots_taken: Callable[[], int], tools_cached: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self._answers = self._counter("answers", "Responses to searches by HTTP status.", "status")
        self._searches = self._counter(
            "searches", "Searches by the provider that ranked the tools.", "provider", "fallback"
        )
        self._lists = self._counter("lists", "Tool lists received; known: already cached.", "known")
        self._tools = self._counter("tools", "Tools searched.")
        self._llm_failures = self._counter("llm_failures", "Failures of the language model by reason.", "reason")
        self._llm_invented = self._counter(
            "llm_invented_tools", "Tools that the language model named but was not given."
        )
        self._seconds = Histogram(
            f"{_PREFIX}_search_duration_seconds",
            "Duration of a search, from the complete body to the ranking.",
            ["provider"],
            buckets=BUCKETS_S,
            registry=self._registry,
        )
        self._gauge("places_taken", "Searches in progress.").set_function(slots_taken)
        self._gauge("tools_known", "Tools cached in memory.").set_function(tools_cached)
        build = Gauge("pointsman_build_info", "Version of the running service.", ["version"], registry=self._registry)
        build.labels(__version__).set(1)
        ProcessCollector(registry=self._registry)

    def answered(self, status: int) -> None:
        self._answers.labels(str(status)).inc()

    def searched(self, hits: SearchHits, provider: str, tools: int, known_list: bool, seconds: float) -> None:
        failure = hits.failure if isinstance(hits, Selected) else None
        self._searches.labels(provider, "true" if failure else "false").inc()
        self._seconds.labels(provider).observe(seconds)
        self._lists.labels("true" if known_list else "false").inc()
        self._tools.inc(tools)
        if failure:
            self._llm_failures.labels(failure).inc()
        if isinstance(hits, Selected):
            self._llm_invented.inc(hits.invented)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", text, registry=self._registry)
