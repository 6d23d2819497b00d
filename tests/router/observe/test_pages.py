"""`/health` and `/metrics` of a whole gateway: open to strangers, but silent about what is behind."""

from __future__ import annotations

import re
from pathlib import Path

from tests.router.conftest import Shop


async def test_strangers_learn_only_whether_it_is_ready(shop: Shop) -> None:
    page = await shop.http.get(shop.gateway.base_url + "/health")
    assert (page.status_code, page.json()) == (200, {"ready": True})


async def test_a_caller_sees_the_state_and_the_reason_of_each_of_its_servers(shop: Shop) -> None:
    page = await shop.http.get(shop.gateway.base_url + "/health", headers=shop.gateway.headers)
    servers = page.json()["servers"]
    assert servers.keys() == {"shop", "gone"}  # the other one belongs to a project that was not named
    assert servers["shop"]["state"] == "running"
    assert servers["gone"]["state"] == "failed"
    assert "no-such-program-anywhere" in servers["gone"]["reason"]
    in_project = await shop.http.get(
        shop.gateway.base_url + "/health", headers=shop.gateway.headers | {"X-Pointsman-Project": "attic"}
    )
    assert in_project.json()["servers"].keys() == {"attic"}


async def test_a_token_that_does_not_hold_is_refused_where_none_is_needed(shop: Shop) -> None:
    for path in ("/health", "/metrics"):
        page = await shop.http.get(shop.gateway.base_url + path, headers={"Authorization": "Bearer ptm_wrong"})
        assert (page.status_code, page.json()["error"]["data"]["code"]) == (401, "unauthorized")
        foreign = await shop.http.get(shop.gateway.base_url + path, headers={"Host": "evil.example"})
        assert foreign.status_code == 421


async def test_metrics_count_what_the_audit_wrote_and_name_servers_only_to_who_may_use_them(shop: Shop) -> None:
    await shop.execute("shop:paint", {"object": "door"})
    await shop.execute("shop:paint", {"object": "door"})
    await shop.execute("shop:no_such_tool")
    await shop.search_prepared()
    await shop.call("tool_discovery", {"query": ["paint"]})
    seen = (await shop.http.get(shop.gateway.base_url + "/metrics", headers=shop.gateway.headers)).text
    assert 'pointsman_calls_total{code="",outcome="ok",server="shop",tool="paint"} 2.0' in seen
    assert 'pointsman_server_state{server="gone",state="failed"} 1.0' in seen
    assert 'pointsman_refused_total{code="unknown_tool",kind="execute"} 1.0' in seen
    assert 'pointsman_discoveries_total{code="",fallback="false",outcome="ok",provider="bm25+static"} 1.0' in seen
    assert "no_such_tool" not in seen
    blind = (await shop.http.get(shop.gateway.base_url + "/metrics")).text
    assert 'pointsman_calls_total{code="",outcome="ok",server="other",tool="other"} 2.0' in blind
    assert "shop" not in blind
    assert "paint" not in blind


async def test_a_scrape_without_a_project_shows_all_projects_of_its_token(shop: Shop) -> None:
    url, headers = shop.gateway.base_url + "/metrics", shop.gateway.headers
    in_project = {"X-Pointsman-Project": "attic"}
    await shop.call("tool_execute", {"toolKey": "attic:paint", "arguments": {"object": "beam"}}, in_project)
    seen = (await shop.http.get(url, headers=headers)).text
    assert 'pointsman_calls_total{code="",outcome="ok",project="attic",server="attic",tool="paint"}' in seen
    assert 'pointsman_server_state{server="attic",state="running"} 1.0' in seen
    assert 'pointsman_server_state{server="shop",state="running"} 1.0' in seen
    named = (await shop.http.get(url, headers=headers | in_project)).text
    assert 'pointsman_calls_total{code="",outcome="ok",server="attic",tool="paint"}' in named
    assert "project=" not in named
    assert 'server="shop"' not in named
    refused = await shop.http.get(url, headers=headers | {"X-Pointsman-Project": "none"})
    assert refused.status_code == 403


async def test_there_is_no_other_page(shop: Shop) -> None:
    for path in ("/mcp/", "/docs", "/config", "/servers", "/projects/attic", "/openapi.json"):
        page = await shop.http.get(shop.gateway.base_url + path, headers=shop.gateway.headers)
        assert page.status_code == 404, path
        assert "location" not in page.headers


async def test_every_metric_is_documented(shop: Shop) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    seen = (await shop.http.get(shop.gateway.base_url + "/metrics")).text
    for name in re.findall(r"^# TYPE (pointsman_\w+)", seen, re.MULTILINE):
        assert f"`{name}`" in page, name
