"""How long calls take at the median and at the slow end, from the last of them. The library has no such thing."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric

WINDOW = 500  # calls of a tool that are looked back on
QUANTILES = (0.5, 0.95, 0.99)


class Window:
    """The last durations. Observed from one thread, read from any."""

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
        """For reading several as one: this one grows beyond the bound, and should observe nothing after it."""
        self.seconds.extend(other.seconds)

    def quantiles(self) -> Mapping[float, float]:
        """Each the least duration that so large a share of the calls did not exceed."""
        ordered = sorted(self.seconds)
        return {share: ordered[ceil(share * len(ordered)) - 1] for share in QUANTILES} if ordered else {}


def quantile_gauges(windows: Mapping[tuple[str, ...], Window]) -> Metric:
    """By server and tool, which are the keys of `windows`."""
    from prometheus_client.core import GaugeMetricFamily  # only when somebody asks, see `router/observe/metrics.py`

    text = f"Time of a call at quantiles of the last {WINDOW} calls of a tool."
    labels = ["server", "tool", "quantile"]
    family = GaugeMetricFamily("pointsman_call_duration_quantile_seconds", text, labels=labels)
    for names, window in windows.items():
        for share, seconds in window.quantiles().items():
            family.add_metric((*names, f"{share:g}"), seconds)
    return family
