"""Rates of tokens, servers and tools: counted once, in one place, before anything is sent."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from pointsman.catalog.rights import OWNER_ID
from pointsman.config.model import GatewayConfig, Listen, Token
from pointsman.config.sections.rates import TokenRates
from pointsman.core.errors import RateLimitedError
from pointsman.core.model import Caller, ToolKey
from pointsman.core.seams import COUNTED_ROUND
from pointsman.router.gateway.rates import MAX_OPEN_ROUNDS, MAX_ROUNDS, Rates, Rounds, rules_of
from pointsman.router.state import rate_counters
from pointsman.router.state.key_values import KeyValues
from pointsman.router.state.rate_windows import decode
from pointsman.router.state.sqlite_values import SqliteKeyValues
from tests.e2e.test_eras import stdio_asker
from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows
from tests.router.gateway.gated import FORM, executing
from tests.router.raw_client import ERAS, Era, Json, speaker
from tests.servers import http_mcp

SECRETS = {name: f"ptm_{name * 20}" for name in ("anna", "ben", "cleo", "dora", "emil")}
RATES: dict[str, dict[str, int | None]] = {
    "anna": {"calls_per_minute": 2},
    "ben": {"discoveries_per_minute": 2, "reads_per_minute": 1},
    "cleo": {"calls_per_day": 3},
    "dora": {},
    "emil": {"calls_per_day": None},
}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "rare", "free")]
Open = Callable[[], KeyValues]


def entry(name: str, **settings: Any) -> dict[str, Any]:
    digest = hashlib.sha256(SECRETS[name].encode()).hexdigest()
    return {"sha256": digest, "projects": ["*"], "servers": ["*"], **settings}


def config_of(**rates: Any) -> GatewayConfig:
    tokens = {name: entry(name, rates=rates.get(name, {})) for name in SECRETS}
    servers = {"s": {"url": "http://127.0.0.1:9", "rates": rates.get("s", {}), "tool_rates": rates.get("tools", {})}}
    return GatewayConfig.model_validate({"tokens": tokens, "servers": servers, "rates": rates.get("all", {})})


async def admitted(rates: Rates, number: int, token: str = "anna", tool: str = "echo") -> int:
    """How many of some calls at once are admitted."""
    calls = (rates.count("calls", Caller(token, None), "s", tool) for _ in range(number))
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(each is None or isinstance(each, RateLimitedError) for each in ended), ended
    return sum(each is None for each in ended)


async def test_what_the_owner_does_is_neither_counted_nor_refused() -> None:
    rates = Rates()
    await rates.configure(config_of(s={"calls_per_minute": 2}))
    assert await admitted(rates, 5, OWNER_ID) == 5
    assert await admitted(rates, 5) == 2
    assert await admitted(rates, 1, OWNER_ID) == 1


async def test_a_refusal_names_the_key_that_sets_the_limit() -> None:
    rates = Rates()
    await rates.configure(config_of(all={"calls_per_minute": 1}, anna={"calls_per_minute": 1}))
    for token, key in (("anna", "tokens.anna.rates.calls_per_minute"), ("ben", "rates.calls_per_minute")):
        assert await admitted(rates, 1, token) == 1
        with pytest.raises(RateLimitedError, match=f"`{key}`"):
            await rates.count("calls", Caller(token, None), "s", "echo")
    await rates.configure(config_of(tools={"forecast": {"calls_per_day": 1}}))
    assert await admitted(rates, 1, tool="forecast") == 1
    with pytest.raises(RateLimitedError, match=r"`servers\.s\.tool_rates\.forecast\.calls_per_day`"):
        await rates.count("calls", Caller("anna", None), "s", "forecast")


# --- the gateway


@pytest.fixture(scope="module")
async def limited(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[GatewayProcess, http_mcp.HttpMcp]]:
    async with http_mcp.serving("modern") as server:
        server.tools = TOOLS
        config = {
            "tokens": {name: entry(name, rates=RATES[name]) for name in SECRETS},
            "servers": {"s": {"url": server.url, "tool_rates": {"rare": {"calls_per_minute": 1}}}},
        }
        folder = tmp_path_factory.mktemp("rates")
        async with gateway_process(folder, config, token=SECRETS["dora"]) as gateway:
            yield gateway, server


async def execute(gateway: GatewayProcess, name: str, tool: str = "echo", era: Era = "modern") -> Json:
    async with speaker(gateway, era, token=SECRETS[name]) as one:
        return await one.call("tool_execute", {"toolKey": f"s:{tool}"})


def refusal(answer: Json) -> Json | None:
    return answer["structuredContent"]["error"] if answer.get("isError") else None


async def test_a_token_at_its_rate_is_refused_with_when_to_come_back_and_nothing_is_sent(
    limited: tuple[GatewayProcess, http_mcp.HttpMcp],
) -> None:
    gateway, server = limited
    before = server.count("tools/call")
    answers = [refusal(await execute(gateway, "anna", era=era)) for era in (*ERAS, *ERAS)]
    assert answers[:2] == [None, None]
    for error in answers[2:]:
        assert error is not None
        assert error["code"] == "rate_limited"
        assert 1 <= error["retryAfterS"] <= 61
        assert f"Try again in {error['retryAfterS']} s" in error["message"]
        assert "2 calls a minute" in error["message"]
    assert server.count("tools/call") == before + 2
    rows = [row for row in await audit_rows(gateway.state_dir) if row["token"] == "anna"]
    assert [(row["outcome"], row["code"]) for row in rows] == [("ok", None)] * 2 + [("denied", "rate_limited")] * 2
    assert refusal(await execute(gateway, "dora")) is None, "others are not concerned"


async def test_a_tool_has_a_rate_of_its_own_for_all_tokens_together(
    limited: tuple[GatewayProcess, http_mcp.HttpMcp],
) -> None:
    gateway, _ = limited
    assert refusal(await execute(gateway, "dora", "rare")) is None
    error = refusal(await execute(gateway, "emil", "rare"))
    assert error is not None
    assert "Tool `s:rare`" in error["message"]
    assert refusal(await execute(gateway, "emil", "free")) is None


async def test_discoveries_and_reads_have_rates_of_their_own(
    limited: tuple[GatewayProcess, http_mcp.HttpMcp],
) -> None:
    gateway, _ = limited
    async with speaker(gateway, "modern", token=SECRETS["ben"]) as ben:
        assert refusal(await ben.call("tool_discovery", {"query": ["echo"]})) is None
        await ben.result("resources/list")
        error = refusal(await ben.call("tool_discovery", {"query": ["echo"]}))
        assert error is not None
        assert error["code"] == "rate_limited"
        assert (await ben.error("prompts/list"))["data"]["code"] == "rate_limited"
        assert refusal(await ben.call("tool_execute", {"toolKey": "s:echo"})) is None
        reads = [await ben.error("resources/read", {"uri": "pointsman+s+note://a"}) for _ in range(2)]
        assert "code" not in (reads[0].get("data") or {})
        assert (reads[1]["data"]["code"], reads[1]["data"]["retryAfterS"] >= 1) == ("rate_limited", True)
        assert len((await ben.result("tools/list"))["tools"]) == 2, "the two tools are not a list of servers"
    rows = [row for row in await audit_rows(gateway.state_dir) if row["token"] == "ben"]
    refused = [(row["kind"], row["method"]) for row in rows if row["code"] == "rate_limited"]
    assert refused == [("discovery", "tools/call"), ("discovery", "prompts/list"), ("read", "resources/read")]


async def test_the_counts_of_a_day_survive_a_kill(tmp_path: Path) -> None:
    async with http_mcp.serving("modern") as server:
        server.tools = TOOLS
        config = {
            "tokens": {"cleo": entry("cleo", rates=RATES["cleo"])},
            "servers": {"s": {"url": server.url}},
        }
        async with gateway_process(tmp_path, config, token=SECRETS["cleo"]) as gateway:
            assert [refusal(await execute(gateway, "cleo")) for _ in range(3)] == [None] * 3
            async with asyncio.timeout(30):
                while await asyncio.to_thread(_saved, gateway.state_dir) < 3:
                    await asyncio.sleep(0.05)
            await gateway.stop(signal.SIGKILL)
        async with gateway_process(tmp_path, config, token=SECRETS["cleo"]) as gateway:
            error = refusal(await execute(gateway, "cleo"))
            assert error is not None
            assert "3 calls a day" in error["message"]
            assert 60 < error["retryAfterS"] <= 86_400 + 900
            gateway.write_config(config | {"tokens": {"cleo": entry("cleo", rates={"calls_per_day": 4})}})
            async with asyncio.timeout(30):
                while refusal(await execute(gateway, "cleo")) is not None:
                    await asyncio.sleep(0.05)
            assert refusal(await execute(gateway, "cleo")) is not None, "a raised limit goes on with its count"


def _saved(state_dir: Path) -> int:
    store = SqliteKeyValues(state_dir)
    try:
        windows = [decode(entry.value) for entry in store.list(rate_counters.PREFIX).values()]
        return sum(count for window in windows for _, count in window)
    finally:
        store.close()


# --- without a gateway


async def test_gateways_on_one_store_admit_together_what_one_admits(open_values: Open) -> None:
    limits = config_of(anna={"calls_per_minute": 30}, s={"calls_per_day": 1000}, tools={"echo": {"calls_per_day": 900}})
    three = [Rates(open_values(), shared=True) for _ in range(3)]
    for rates in three:
        await rates.configure(limits)
    assert sum(await asyncio.gather(*(admitted(rates, 15) for rates in three))) == 30
    assert await admitted(three[0], 1, "ben") == 1
    for rates in three:
        await rates.close()


async def test_a_gateway_whose_shared_store_is_away_counts_by_itself_from_what_it_has_seen(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    rates = Rates(store := SqliteKeyValues(folder), shared=True)
    await rates.configure(config_of(anna={"calls_per_minute": 5}))
    assert await admitted(rates, 3) == 3
    store.close()
    folder.rename(tmp_path / "away")
    assert await admitted(rates, 5) == 2
    await rates.close()


def test_a_word_for_a_round_is_good_once_for_its_caller_and_tool_and_for_a_bounded_number_of_rounds() -> None:
    rounds, anna, tool = Rounds(), Caller("anna", None), ToolKey("s", "echo")
    word = rounds.open(anna, tool, 0)[COUNTED_ROUND]
    assert rounds.use(word, Caller("ben", None), tool) == 0
    assert rounds.use(word, anna, ToolKey("s", "rare")) == 0
    assert rounds.use("made up", anna, tool) == 0
    assert rounds.use(None, anna, tool) == 0
    assert rounds.use(word, anna, tool) == 1
    assert rounds.use(word, anna, tool) == 0
    assert rounds.open(anna, tool, MAX_ROUNDS) == {}
    words = [rounds.open(anna, tool, 0)[COUNTED_ROUND] for _ in range(MAX_OPEN_ROUNDS + 1)]
    assert [rounds.use(word, anna, tool) for word in (words[0], words[1])] == [0, 1]


async def test_the_rounds_of_a_modern_call_count_once_and_what_is_made_up_or_repeated_counts(tmp_path: Path) -> None:
    server = stdio_asker("modern", tmp_path / "trace", rates={"calls_per_day": 3})
    async with (
        gateway_process(tmp_path, {"servers": {"new": server}}) as gateway,
        speaker(gateway, "modern", capabilities=FORM) as one,
    ):
        asked = await one.result("tools/call", executing("new:twice", "a"))
        assert COUNTED_ROUND not in asked
        again = await one.result("tools/call", executing("new:twice", "a", asked, name="ada"))
        last = executing("new:twice", "a", again, name="ada")
        assert (await one.result("tools/call", last))["content"][0]["text"] == "ada ada"  # 1
        assert not (await one.result("tools/call", last)).get("isError")  # 2: sent once more
        for state in ("v1." + "A" * 80, "pointsmanRound"):
            assert "error" in await one.message("tools/call", last | {"requestState": state})
        assert not (await one.result("tools/call", executing("new:plain", "b"))).get("isError")  # 3
        over = await one.result("tools/call", executing("new:plain", "c"))
        assert over["structuredContent"]["error"]["code"] == "rate_limited"


async def test_a_million_tokens_and_tools_leave_no_window(tmp_path: Path) -> None:
    rates = Rates(SqliteKeyValues(tmp_path))
    await rates.configure(config_of(all={"calls_per_day": 10}, tools={"echo": {"calls_per_minute": 10}}))
    for number in range(1_000_000):
        await rates.count("calls", Caller(f"t{number}", None), "s", f"tool{number}")
    assert rates.local.windows == {}
    for number in range(1_000):
        assert await admitted(rates, 1, "anna", f"tool{number}") == (number < 10)
    assert len(rates.local.windows) == 1


async def test_a_reload_forgets_the_windows_of_rates_that_are_gone(tmp_path: Path) -> None:
    rates = Rates(SqliteKeyValues(tmp_path))
    await rates.configure(config_of(anna={"calls_per_minute": 5, "calls_per_day": 5}))
    assert await admitted(rates, 4) == 4
    await rates.configure(config_of(anna={"calls_per_day": 5}))
    assert len(rates.local.windows) == 1
    await rates.close()
    await rates.configure(config_of())
    assert (rates.rules, rates.local.windows) == (None, {})
    await rates.configure(config_of(anna={"calls_per_day": 5}))
    assert await admitted(rates, 4) == 1, "the counts of the day were kept"


def test_what_is_absent_is_taken_from_the_top_level_and_null_lifts_it() -> None:
    rules = rules_of(config_of(all={"calls_per_day": 9, "reads_per_minute": 7}, **RATES))
    assert rules is not None
    assert {name: [each.most for each in rules.of("calls", name, None)] for name in SECRETS} == {
        "anna": [2, 9],
        "ben": [9],
        "cleo": [3],
        "dora": [9],
        "emil": [],
    }
    assert [limit.most for limit in rules.of("reads", "ben", None)] == [1]
    assert rules_of(config_of(emil={"calls_per_day": None})) is None


def signed_in(**rates: int) -> Token:
    return Token(sha256="0" * 64, projects=("*",), servers=("*",), rates=TokenRates(**rates))


async def test_a_person_who_signed_in_has_one_window_for_all_of_its_tokens() -> None:
    rates = Rates()
    rates.rights_of = lambda identity_id: signed_in(calls_per_minute=3)
    config = config_of().model_copy(update={"listen": Listen(public_url="https://mcp.example.com")})
    await rates.configure(config)
    assert await admitted(rates, 2, "@sso/anna#staff") == 2
    assert await admitted(rates, 5, "@sso/anna#staff:read@demo") == 1
    assert await admitted(rates, 5, "@sso/ben#staff") == 3
    assert await admitted(rates, 5, "anna") == 5  # of the YAML, without a rate
    await rates.configure(config)  # a reload does not give it a new window
    assert await admitted(rates, 5, "@sso/anna#staff") == 0
    with pytest.raises(RateLimitedError, match=r"auth\.claims\.staff\.rates\.calls_per_minute"):
        await rates.count("calls", Caller("@sso/anna#staff", None), "s", "echo")


async def test_rates_of_the_top_level_hold_for_those_who_sign_in() -> None:
    rates = Rates()
    rates.rights_of = lambda identity_id: signed_in()
    config = config_of(all={"calls_per_minute": 1}).model_copy(update={"tokens": {}})
    await rates.configure(config.model_copy(update={"listen": Listen(public_url="https://mcp.example.com")}))
    assert await admitted(rates, 3, "@sso/anna#staff") == 1


async def test_the_day_of_a_person_survives_a_restart(tmp_path: Path) -> None:
    config = config_of().model_copy(update={"listen": Listen(public_url="https://mcp.example.com")})
    for expected in (2, 0):
        rates = Rates(SqliteKeyValues(tmp_path))
        rates.rights_of = lambda identity_id: signed_in(calls_per_day=2)
        await rates.configure(config)
        assert await admitted(rates, 3, "@sso/anna#staff") == expected
        await rates.close()


async def test_windows_of_persons_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_counters, "MAX_WINDOWS", 20)
    rates = Rates()
    rates.rights_of = lambda identity_id: signed_in(calls_per_minute=3)
    config = config_of(anna={"calls_per_minute": 3})
    await rates.configure(config.model_copy(update={"listen": Listen(public_url="https://mcp.example.com")}))
    assert await admitted(rates, 3, "anna") == 3
    for number in range(100):
        assert await admitted(rates, 1, f"@sso/person{number}#staff") == 1
    assert len(rates.local.windows) <= 20
    assert await admitted(rates, 1, "anna") == 0  # those of the YAML are never evicted
