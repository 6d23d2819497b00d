"""Renders metrics in Prometheus's text format. prometheus-client is imported by the first scrape, see `metrics.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, get_args

from pointsman import __version__
from pointsman.core.model import ServerState
from pointsman.providers.cloud.breaker import BreakerState

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

    from pointsman.core.model import Json
    from pointsman.providers.cloud.service import CloudStatus
    from pointsman.router.observe.metrics import Count, GaugeValues, Histogram, Labels, MaySee, Window

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
WINDOW = 500  # latest calls of a tool from which quantiles are computed
WORKER_UP = "Whether a worker answered this scrape."
_STATES: tuple[ServerState, ...] = get_args(ServerState)


def render(families: Iterator[Metric]) -> bytes:
    from prometheus_client import generate_latest

    return generate_latest(_registry(families))


def collected(families: Iterator[Metric]) -> list[Json]:
    """The same as plain data, which one worker sends to another."""
    return [
        {
            "name": family.name,
            "help": family.documentation,
            "type": family.type,
            "samples": [[sample.name, sample.labels, sample.value] for sample in family.samples],
        }
        for family in _registry(families).collect()
    ]


def render_workers(told: Mapping[int, list[Json] | None]) -> bytes:
    """Return what all workers have `collected`, with their numbers as a label; None: a worker did not answer."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import GaugeMetricFamily, Metric

    merged: dict[str, Metric] = {}
    up = GaugeMetricFamily("pointsman_worker_up", WORKER_UP, labels=["worker"])
    for number, families in told.items():
        up.add_metric([str(number)], float(families is not None))
        for one in families or ():
            family = merged.setdefault(one["name"], Metric(one["name"], one["help"], one["type"]))
            for name, labels, value in one["samples"]:
                family.add_sample(name, labels | {"worker": str(number)}, value)
    registry = CollectorRegistry()
    registry.register(_Collector(iter((up, *merged.values()))))
    return generate_latest(registry)


def _registry(families: Iterator[Metric]) -> CollectorRegistry:
    from prometheus_client import CollectorRegistry, ProcessCollector

    registry = CollectorRegistry()
    registry.register(_Collector(families))
    ProcessCollector(registry=registry)
    return registry


class _Collector:
    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return map(_without_empty_project, self._families)


def _without_empty_project(family: Metric) -> Metric:
    """Leave out an empty label `project`, which Prometheus does not tell from none."""
    for index, sample in enumerate(family.samples):
        if sample.labels.get("project") == "":
            labels = {name: value for name, value in sample.labels.items() if name != "project"}
            family.samples[index] = sample._replace(labels=labels)
    return family


def counter_family(name: str, text: str, names: Labels, counters: Mapping[Labels, Count]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    family = CounterMetricFamily(f"pointsman_{name}", text, labels=names)
    for labels, counter in list(counters.items()):  # the event loop may add to it meanwhile
        family.add_metric(labels, counter.count)
    return family


def histogram_family(name: str, text: str, names: Labels, histograms: Mapping[Labels, Histogram]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(f"pointsman_{name}", text, labels=names)
    bounds = (*map(str, BUCKETS_S), "+Inf")
    for labels, histogram in list(histograms.items()):
        buckets = list(zip(bounds, map(float, accumulate(list(histogram.counts))), strict=True))
        family.add_metric(labels, buckets, sum_value=histogram.total)
    return family


def gauge_families(gauges: GaugeValues, may_see: MaySee) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    states = GaugeMetricFamily(
        "pointsman_server_state",
        "Current state of a server: 1 for that state, 0 for the others.",
        labels=["server", "state"],
    )
    for server_id, status in filter(lambda item: may_see(item[0]), gauges.statuses.items()):
        for state in _STATES:
            states.add_metric([server_id, state], float(status.state == state))
    yield states
    restarts = CounterMetricFamily("pointsman_server_restarts", "Server restarts.", labels=["server"])
    for server_id, count in filter(lambda item: may_see(item[0]), gauges.restarts.items()):
        restarts.add_metric([server_id], count)
    yield restarts
    tasks = CounterMetricFamily("pointsman_task_restarts", "Background task restarts.", labels=["task"])
    for name, count in gauges.task_restarts.items():
        tasks.add_metric([name], count)
    yield tasks
    waiting = "Tools that wait for a vector of the sentence encoder (`search.semantic`)."
    yield GaugeMetricFamily("pointsman_search_tools_not_encoded", waiting, value=gauges.tools_not_encoded)
    aside = "Corrupt state databases kept in the state folder."
    yield GaugeMetricFamily("pointsman_audit_databases_set_aside", aside, value=gauges.databases_set_aside)
    yield GaugeMetricFamily("pointsman_sessions", "Open legacy sessions.", value=gauges.sessions)
    yield GaugeMetricFamily("pointsman_requests_under_way", "Requests in progress.", value=gauges.requests)
    yield GaugeMetricFamily("pointsman_requests_queued", "Requests queued for a busy server.", value=gauges.queued)
    yield GaugeMetricFamily(
        "pointsman_unread_bytes", "Bytes of answers that clients have not read yet.", value=gauges.unread_bytes
    )
    in_flight = "Bytes reserved for large messages while they are read and decoded."
    yield GaugeMetricFamily("pointsman_in_flight_bytes", in_flight, value=gauges.in_flight_bytes)
    build = GaugeMetricFamily("pointsman_build_info", "The running version, as a label.", labels=["version"])
    build.add_metric([__version__], 1)
    yield build


def quantile_family(names: Labels, windows: Mapping[Labels, Window]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    text = f"p50, p95 and p99 of the duration of a tool's last {WINDOW} calls in each project."
    family = GaugeMetricFamily("pointsman_call_duration_quantile_seconds", text, labels=(*names, "quantile"))
    for labels, window in windows.items():
        for share, seconds in window.quantiles().items():
            family.add_metric((*labels, f"{share:g}"), seconds)
    return family


def cloud_families(status: CloudStatus) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    states = GaugeMetricFamily(
        "pointsman_cloud_search_state",
        "Current state of the cloud search circuit breaker: 1 for that state, 0 for the others.",
        labels=["state"],
    )
    for state in get_args(BreakerState):
        states.add_metric([state], float(status.state == state))
    yield states
    yield GaugeMetricFamily(
        "pointsman_cloud_search_refused_projects",
        "Projects that the search service rejects.",
        value=status.refused_projects,
    )
    opened, invented = "pointsman_cloud_search_opened", "pointsman_cloud_search_invented"
    yield CounterMetricFamily(opened, "Times that the cloud search circuit breaker opened.", value=status.opened)
    yield CounterMetricFamily(invented, "Tools that the search service named but was not sent.", value=status.invented)
