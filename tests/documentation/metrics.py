"""The metrics as tables, from what `/metrics` of the gateway and of the search service serve."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from pointsman.core.model import ServerStatus
from pointsman.providers.cloud.service import CloudStatus
from pointsman.providers.llm.provider import Selected
from pointsman.router.audit.rows import Intent, Outcome
from pointsman.router.observe.metrics import Gauges, Metrics
from pointsman.router.search_api.metrics import ServiceMetrics
from tests.documentation.markdown import code, table


def of_gateway() -> str:
    """Every metric of the gateway. A metric has its labels only once something is counted, so something is."""
    metrics = Metrics()
    metrics.watch(
        Gauges(
            statuses=lambda: {"time": ServerStatus("running", "", 0.0)},
            restarts=lambda: {"time": 1},
            task_restarts=lambda: {"reload": 1},
            cloud=lambda: CloudStatus(0, 0, 0, "closed"),
        )
    )
    called = Intent(1, 0, "r", "execute", tool_key="time:now", server_id="time")
    metrics.finished(called, Outcome(1, "ok", ms=1.0, confirmed="client once"))
    metrics.finished(called, Outcome(1, "error", "rate_limited", ms=1.0))
    metrics.finished(Intent(1, 0, "r", "execute"), Outcome(1, "denied", "unauthorized"))
    metrics.finished(Intent(1, 0, "r", "read", server_id="time", method="resources/read"), Outcome(1, "ok", ms=1.0))
    metrics.finished(Intent(1, 0, "r", "discovery"), Outcome(1, "ok", ms=1.0, provider="bm25"))
    metrics.finished(Intent(1, 0, "r", "change", server_id="time"), Outcome(1, "ok", "definition_changed"))
    return _table(metrics.render())


def of_search_service() -> str:
    metrics = ServiceMetrics(lambda: 0, lambda: 0)
    metrics.answered(200)
    hits = Selected([], [], "llm")
    hits.failure = "timeout"
    metrics.searched(hits, "llm", 1, known_list=True, seconds=0.1)
    return _table(metrics.render())


def _table(exposition: bytes) -> str:
    rows = []
    for family in text_string_to_metric_families(exposition.decode()):
        if family.name.startswith("process_") or family.name.endswith("_created"):
            continue  # of the library, and not the same on every platform
        labels = dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le")
        assert family.samples, family.name
        name = f"{family.name}_total" if family.type == "counter" else family.name
        rows.append((code(name), family.type, ", ".join(map(code, labels)), family.documentation))
    return table(("Metric", "Type", "Labels", "Meaning"), rows)
