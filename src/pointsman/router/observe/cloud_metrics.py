"""What `/metrics` says of the search service, as far as the discoveries' own counters do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, get_args

from pointsman.providers.cloud.breaker import BreakerState
from pointsman.providers.cloud.service import CloudStatus

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def cloud_families(status: CloudStatus) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    states = GaugeMetricFamily(
        "pointsman_cloud_search_state", "1 for the state that the breaker of cloud search is in.", labels=["state"]
    )
    for state in get_args(BreakerState):
        states.add_metric([state], float(status.state == state))
    yield states
    yield GaugeMetricFamily(
        "pointsman_cloud_search_refused_projects", "Projects that the service refuses.", value=status.refused_projects
    )
    opened, invented = "pointsman_cloud_search_opened", "pointsman_cloud_search_invented"
    yield CounterMetricFamily(opened, "How often the breaker of cloud search opened.", value=status.opened)
    yield CounterMetricFamily(invented, "Results that named a tool which was not sent.", value=status.invented)
