"""What `/metrics` counts, and what it never takes for a label."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pointsman.core.errors import AuditUnavailableError
from pointsman.core.model import ServerStatus
from pointsman.providers.cloud.service import CloudStatus
from pointsman.router.audit.rows import Ending, Intent, Outcome
from pointsman.router.observe.exposition import WINDOW
from pointsman.router.observe.metrics import (
    MAX_CODES,
    MAX_IN_PROJECTS,
    MAX_SERVERS,
    MAX_TOOLS,
    MAX_TOOLS_OF_A_SERVER,
    Gauges,
    Metrics,
)
from tests.router.audit.samples import open_log, request


def samples(metrics: Metrics, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """All samples of that name, by their labels. Only their lines are parsed: there may be 20,000 others."""
    wanted = (f"pointsman_{name}{{", f"pointsman_{name} ", "#")
    lines = [line for line in metrics.render().decode().splitlines(keepends=True) if line.startswith(wanted)]
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families("".join(lines))
        for sample in family.samples
    }


def called(
    metrics: Metrics,
    tool_key: str,
    ending: Ending = "ok",
    code: str | None = None,
    ms: float = 1.0,
    project: str | None = None,
) -> None:
    server_id = tool_key.partition(":")[0]
    intent = Intent(1, 0, "r", "execute", tool_key=tool_key, server_id=server_id, project=project)
    metrics.finished(intent, Outcome(1, ending, code, ms))


def quantiles(metrics: Metrics) -> dict[tuple[tuple[str, str], ...], float]:
    return samples(metrics, "call_duration_quantile_seconds")


def tools(metrics: Metrics) -> set[str]:
    return {dict(labels)["tool"] for labels in samples(metrics, "calls_total")}


def named(counted: Iterable[tuple[tuple[str, str], ...]], *names: str) -> set[tuple[str, ...]]:
    """The values of these labels that are in use, `other` left out."""
    values = {tuple(dict(labels)[name] for name in names) for labels in counted}
    return {value for value in values if "other" not in value}


def test_calls_are_counted_by_server_tool_outcome_and_code() -> None:
    metrics = Metrics()
    called(metrics, "time:now")
    called(metrics, "time:now")
    called(metrics, "time:now", "timeout", "timeout")
    assert samples(metrics, "calls_total") == {
        (("code", ""), ("outcome", "ok"), ("server", "time"), ("tool", "now")): 2,
        (("code", "timeout"), ("outcome", "timeout"), ("server", "time"), ("tool", "now")): 1,
    }


def test_durations_fall_into_their_buckets() -> None:
    metrics = Metrics()
    for ms in (0.5, 1.0, 40.0, 70_000.0):
        called(metrics, "time:now", ms=ms)
    buckets = {dict(labels)["le"]: value for labels, value in samples(metrics, "call_duration_seconds_bucket").items()}
    assert (buckets["0.001"], buckets["0.025"], buckets["0.05"], buckets["60.0"], buckets["+Inf"]) == (2, 2, 3, 3, 4)
    (total,) = samples(metrics, "call_duration_seconds_sum").values()
    assert total == pytest.approx(70.0415)


def test_discoveries_are_counted_by_provider_and_fallback() -> None:
    metrics = Metrics()
    intent = Intent(1, 0, "r", "discovery", queries=["q"])
    metrics.finished(intent, Outcome(1, "ok", None, 3.0, provider="bm25", fallback=True))
    labels = (("code", ""), ("fallback", "true"), ("outcome", "ok"), ("provider", "bm25"))
    assert samples(metrics, "discoveries_total") == {labels: 1}
    assert samples(metrics, "discovery_duration_seconds_count") == {(("provider", "bm25"),): 1}


def test_confirmations_are_counted_by_answer(tmp_path: Path) -> None:
    metrics = Metrics()
    log = open_log(tmp_path, observers=[metrics])
    rows: list[tuple[str | None, Ending]] = [
        ("client once", "ok"),
        ("client once", "error"),
        ("timeout", "denied"),
        (None, "ok"),
    ]
    for answer, ending in rows:
        record = log.begin(request(), "execute", tool_key="time:now", server_id="time")
        record.confirmed = answer
        record.finish(ending)
    assert samples(metrics, "confirmations_total") == {
        (("answer", "client once"),): 2,
        (("answer", "timeout"),): 1,
    }


def test_the_audit_log_feeds_it(tmp_path: Path) -> None:
    metrics = Metrics()
    log = open_log(tmp_path, observers=[metrics])
    log.begin(request(), "execute", tool_key="time:now", server_id="time").finish("error", "rate_limited")
    log.record_refusal("unknown_tool", kind="execute", method="tools/call", token_id="laptop", tool_key="a:b")
    log.record_refusal("unauthorized", kind="discovery", method="tools/call", token_id=None)
    assert sum(samples(metrics, "calls_total").values()) == 1
    assert samples(metrics, "rate_limited_total") == {(("server", "time"),): 1}
    assert samples(metrics, "refused_total") == {
        (("code", "unknown_tool"), ("kind", "execute")): 1,
        (("code", "unauthorized"), ("kind", "discovery")): 1,
    }


def test_journal_failures_are_counted(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("in the way")
    metrics = Metrics()
    log = open_log(tmp_path, observers=[metrics])
    with pytest.raises(AuditUnavailableError):
        log.begin(request(), "execute")
    assert samples(metrics, "audit_journal_failures_total") == {(): 1}


def test_states_restarts_and_sessions_are_looked_up_when_asked() -> None:
    metrics = Metrics()
    state = {"time": ServerStatus("starting", "", 0.0)}
    metrics.watch(Gauges(statuses=lambda: state, restarts=lambda: {"time": 3}, sessions=lambda: 7))
    state["time"] = ServerStatus("failed", "it died", 1.0)
    assert samples(metrics, "server_state") == {
        (("server", "time"), ("state", name)): float(name == "failed")
        for name in ("starting", "running", "failed", "stopped")
    }
    assert samples(metrics, "server_restarts_total") == {(("server", "time"),): 3}
    assert samples(metrics, "sessions") == {(): 7}


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("error", "unknown_tool"),
        ("error", "server_unavailable"),
        ("error", "rate_limited"),
        ("error", "invalid_arguments"),
        ("error", "internal"),
        ("cancelled", None),
    ],
)
def test_a_tool_that_nobody_checked_is_never_a_label(ending: Ending, code: str | None) -> None:
    metrics = Metrics()
    called(metrics, 'time:anything"\n at all', ending, code)
    assert tools(metrics) == {"other"}
    called(metrics, "time:now")
    called(metrics, "time:now", ending, code)  # known by now
    assert tools(metrics) == {"other", "now"}


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("timeout", "timeout"),
        ("error", "tool_error"),
        ("error", "-32602"),
        ("error", "file_not_found"),
        ("error", "timeout"),
    ],
)
def test_a_tool_that_its_server_was_asked_for_is_a_label_though_it_failed(ending: Ending, code: str) -> None:
    metrics = Metrics()
    called(metrics, "time:now", ending, code)
    assert tools(metrics) == {"now"}


def test_a_server_that_nobody_knows_is_never_a_label() -> None:
    metrics = Metrics()
    called(metrics, "invented:tool", "error", "unknown_tool")
    assert {dict(labels)["server"] for labels in samples(metrics, "calls_total")} == {"other"}


def test_codes_of_foreign_servers_do_not_take_the_places_of_those_we_know() -> None:
    metrics = Metrics()
    for number in range(2 * MAX_CODES):
        called(metrics, "foreign:tool", "error", f"-{number}")
    called(metrics, "archive:read_file", "error", "file_not_found")
    assert "file_not_found" in {dict(labels)["code"] for labels in samples(metrics, "calls_total")}


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    for number in range(MAX_TOOLS_OF_A_SERVER + 50):
        called(metrics, f"big:tool{number}")
    assert len(tools(metrics)) == MAX_TOOLS_OF_A_SERVER + 1
    for number in range(2 * MAX_TOOLS):
        called(metrics, f"server{number % 300}:tool{number}", "error", f"-{number}")
    assert len(named(samples(metrics, "calls_total"), "server", "tool")) == MAX_TOOLS
    for number in range(2 * MAX_SERVERS):
        called(metrics, f"another{number}:tool")
    counted = samples(metrics, "calls_total")
    assert len(named(counted, "server")) == MAX_SERVERS
    assert len(named(counted, "code")) == MAX_CODES + 1  # none is one, too
    assert sum(counted.values()) == MAX_TOOLS_OF_A_SERVER + 50 + 2 * MAX_TOOLS + 2 * MAX_SERVERS


def test_servers_that_the_reader_may_not_see_are_lumped_together() -> None:
    metrics = Metrics()
    metrics.watch(
        Gauges(statuses=lambda: {"a": ServerStatus("running", "", 0.0), "b": ServerStatus("failed", "", 0.0)})
    )
    for tool_key in ("a:x", "b:y", "c:z"):
        called(metrics, tool_key, ms=5)
    text = metrics.render(lambda server_id: server_id == "a").decode()
    assert 'pointsman_calls_total{code="",outcome="ok",server="a",tool="x"} 1.0' in text
    assert 'pointsman_calls_total{code="",outcome="ok",server="other",tool="other"} 2.0' in text
    assert 'pointsman_call_duration_seconds_count{server="other",tool="other"} 2.0' in text
    assert '"b"' not in text
    assert '"y"' not in text
    assert sum(samples(metrics, "calls_total").values()) == 3  # lumping counts nothing twice


def test_tools_that_the_reader_may_not_use_are_lumped_together_for_each_server() -> None:
    metrics = Metrics()
    for tool_key in ("a:read", "a:erase", "a:format"):
        called(metrics, tool_key, ms=5)
    text = metrics.render(may_use=lambda server_id, tool: (server_id, tool) == ("a", "read")).decode()
    assert 'pointsman_calls_total{code="",outcome="ok",server="a",tool="read"} 1.0' in text
    assert 'pointsman_calls_total{code="",outcome="ok",server="a",tool="other"} 2.0' in text
    assert "erase" not in text
    assert "format" not in text


def test_a_reader_of_all_projects_sees_its_own_by_name() -> None:
    metrics = Metrics()
    for project in (None, "shop", "shop", "attic"):
        called(metrics, "time:now", project=project)
    metrics.finished(Intent(1, 0, "r", "discovery", project="shop"), Outcome(1, "ok", provider="bm25"))
    metrics.finished(
        Intent(1, 0, "r", "read", project="shop", server_id="time", method="prompts/get"), Outcome(1, "ok")
    )
    metrics.finished(Intent(1, 0, "r", "read", project="shop"), Outcome(1, "denied", "unknown_prompt"))
    text = metrics.render(projects=lambda project: project == "shop").decode()
    same = 'code="",outcome="ok"'
    assert f'pointsman_calls_total{{{same},server="time",tool="now"}} 1.0' in text
    assert f'pointsman_calls_total{{{same},project="shop",server="time",tool="now"}} 2.0' in text
    assert f'pointsman_calls_total{{{same},project="other",server="time",tool="now"}} 1.0' in text
    assert 'pointsman_call_duration_seconds_count{project="shop",server="time",tool="now"} 2.0' in text
    assert 'pointsman_call_duration_quantile_seconds{project="shop",quantile="0.5",server="time",tool="now"}' in text
    assert (
        'pointsman_discoveries_total{code="",fallback="false",outcome="ok",project="shop",provider="bm25"} 1.0' in text
    )
    assert 'pointsman_reads_total{code="",method="prompts/get",outcome="ok",project="shop",server="time"} 1.0' in text
    assert 'pointsman_refused_total{code="unknown_prompt",kind="read",project="shop"} 1.0' in text
    assert "attic" not in text
    together = metrics.render().decode()
    assert f'pointsman_calls_total{{{same},server="time",tool="now"}} 4.0' in together
    assert "project=" not in together


def test_projects_multiply_labels_up_to_a_bound() -> None:
    metrics = Metrics()
    for number in range(MAX_IN_PROJECTS + 300):
        called(metrics, f"time:tool{number % 199}", project=f"p{number // 199}")
    counted = [line for line in metrics.render(projects=lambda _: True).decode().splitlines() if "calls_total{" in line]
    assert len([line for line in counted if 'project="other"' not in line]) == MAX_IN_PROJECTS
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == MAX_IN_PROJECTS + 300


async def test_a_scrape_says_the_same_as_a_render() -> None:
    metrics = Metrics()
    called(metrics, "time:now")

    def ours(text: bytes) -> list[bytes]:
        return [line for line in text.splitlines() if line.startswith(b"pointsman_")]

    scraped = await metrics.scrape()
    assert ours(scraped) == ours(metrics.render())
    families = list(text_string_to_metric_families(scraped.decode()))  # all of it is in the format
    assert sum(sample.name.startswith("pointsman_") for family in families for sample in family.samples) == len(
        ours(scraped)
    )


def test_counting_does_not_load_the_library() -> None:
    script = (
        "import sys\n"
        "from pointsman.router.audit.rows import Intent, Outcome\n"
        "from pointsman.router.observe.metrics import Metrics\n"
        "Metrics().finished(Intent(1, 0, 'r', 'execute'), Outcome(1, 'ok'))\n"
        "sys.exit('prometheus_client' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_the_search_service_has_its_own_figures_where_there_is_one() -> None:
    metrics = Metrics()
    assert samples(metrics, "cloud_search_state") == {}
    metrics.watch(Gauges(cloud=lambda: CloudStatus(opened=2, invented=7, refused_projects=1, state="half-open")))
    assert samples(metrics, "cloud_search_state") == {
        (("state", "closed"),): 0,
        (("state", "open"),): 0,
        (("state", "half-open"),): 1,
    }
    assert samples(metrics, "cloud_search_opened_total") == {(): 2}
    assert samples(metrics, "cloud_search_invented_total") == {(): 7}
    assert samples(metrics, "cloud_search_refused_projects") == {(): 1}


def test_quantiles_are_those_of_the_last_calls_of_a_tool() -> None:
    metrics = Metrics()
    for _ in range(WINDOW):
        called(metrics, "archive:read_file", ms=60_000.0)  # long ago: pushed out by what follows
    for ms in range(1, WINDOW + 1):
        called(metrics, "archive:read_file", "ok" if ms % 2 else "error", None if ms % 2 else "tool_error", ms=ms)
    shown = {dict(labels)["quantile"]: value for labels, value in quantiles(metrics).items()}
    assert shown == pytest.approx({"0.5": WINDOW / 2000, "0.95": 0.95 * WINDOW / 1000, "0.99": 0.99 * WINDOW / 1000})
    assert {dict(labels)["tool"] for labels in quantiles(metrics)} == {"read_file"}


def test_one_call_is_all_quantiles_at_once() -> None:
    metrics = Metrics()
    called(metrics, "archive:read_file", ms=7.0)
    assert set(quantiles(metrics).values()) == {0.007}


def test_quantiles_of_servers_that_the_reader_may_not_see_are_lumped_together() -> None:
    metrics = Metrics()
    for tool_key, ms in (("a:x", 1.0), ("b:y", 10.0), ("c:z", 30.0)):
        called(metrics, tool_key, ms=ms)
    text = metrics.render(lambda server_id: server_id == "a").decode()
    name = "pointsman_call_duration_quantile_seconds"
    assert f'{name}{{quantile="0.5",server="other",tool="other"}} 0.01' in text
    assert f'{name}{{quantile="0.99",server="other",tool="other"}} 0.03' in text
    assert f'{name}{{quantile="0.99",server="a",tool="x"}} 0.001' in text
