"""Every error and every empty answer says why, and what to do next."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import httpx2
import pytest

from pointsman.catalog.lists.list_cache import Gap
from pointsman.catalog.lists.pages import MAX_ITEMS
from pointsman.catalog.results import gap_notices
from pointsman.core.errors import (
    ConfirmationRefusedError,
    GatewayError,
    RefusedError,
    SignInRequiredError,
    SkillMismatchError,
)
from tests.gateway_process import gateway_process
from tests.router.audit.test_audit_of_reads import full_disk
from tests.router.conftest import Shop, from_file, workshop

LONG_S = 60.0  # against hanging
OFF_HERE = "tool_discovery is switched off here."
PROJECTS = {
    "all": ["*"],
    "one": ["red"],
    "two": ["red", "blue"],
    "none": [],
    "idle": ["red", "blue"],
    "shut": ["red", "blue"],
}
SECRETS = {name: f"ptm_{name * 10}" for name in PROJECTS}
SERVERS: dict[str, list[str]] = {"idle": []}
TOOLS = {"shut": ["!*"]}

# For each code: why, and what to do next.
SAID = {
    "unknown_tool": ("No tool `shop:nothing`", "Call tool_discovery"),
    "invalid_arguments": ("object", "inputSchema"),
    "server_unavailable": ("Server `gone` is not available: ", "use another tool"),
    "timeout": ("did not answer within 1 s", "check before you repeat it"),
    "rate_limited": ("1 requests in progress", "Wait for some of them to end, then retry"),
    "audit_unavailable": ("could not be recorded", "The operator finds the reason in the gateway's log"),
    "unknown_result": ("No stored result `none`", "If the tool only reads, call it again"),
    "confirmation_required": ("needs a person's confirmation", "`pointsman approve"),
    "confirmation_refused": ("a person was asked to confirm it and did not", "Do not repeat it unless the person asks"),
    "sign_in_required": ("Server `shop` was not used: ", "to get a link at which the person signs in"),
    "skill_mismatch": ("is not what the skill's entry says", "Read the entry again with `skills/get`"),
    "unauthorized": ("Unknown token", "`pointsman token create"),
    "denied": ("This token needs a project", "connect to `/projects/<project>/mcp`"),
}

# Those of access tokens are in tests/router/auth, that of a server's question in tests/e2e/test_forbidden_questions.py.
ELSEWHERE = {"insufficient_scope", "sign_in_unavailable", "question_refused"}

# For each reason why tools of a server are missing or not current: what is said of it, and what to do next.
GAPS: dict[str, tuple[str, str]] = {
    "starting": ("still starting, so their tools are missing: `shop`", "Ask again in a few seconds"),
    "failed": ("do not work at the moment, so their tools are missing: `shop`", "Use other tools; the operator"),
    "timeout": (
        "did not list their tools in time, so their tools are missing: `shop`",
        "Ask again later; the operator",
    ),
    "restarting": ("restarting, and their tools are those of the last list: `shop`", "Call a tool as usual"),
    "sign-in": ("need sign-in, so their tools are missing: `shop`", "Use other tools; the operator"),
    "cut": ("more tools than the gateway lists, so only the first of them were searched: `shop`", "use other tools"),
    "unreadable": ("invisible characters, which are left out: `shop`", "Use other tools; the operator finds the names"),
}
MANY = [{"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(MAX_ITEMS + 1)]
HIDDEN = [{"name": "gauge\U000e0073", "inputSchema": {"type": "object"}}]


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("gateway")
    tokens = {
        name: {
            "sha256": hashlib.sha256(secret.encode()).hexdigest(),
            "projects": PROJECTS[name],
            "servers": SERVERS.get(name, ["*"]),
            "tools": TOOLS.get(name),
        }
        for name, secret in SECRETS.items()
    }
    config: dict[str, Any] = {
        "tokens": tokens,
        "limits": {"token_calls": 1},
        "projects": {
            "red": {},
            "blue": {},
            "empty": {},
            "broken": {},
            "bare": {},
            "sole": {},
            "odd": {},
            "off": {"optimization": None},
        },
        "servers": {
            "shop": workshop(folder / "trace", projects=["red", "blue"], timeouts={"call_s": 1}),
            "patient": workshop(folder / "patience", projects=["blue"]),
            "guarded": workshop(folder / "guarded", projects=["red"], confirm="destructive"),
            "gone": {"command": "no-such-program-anywhere", "projects": ["red", "broken"]},
            "bare": from_file(folder / "bare.json", "bare", {"tools": []}, projects=["bare", "sole"]),
            "many": from_file(folder / "many.json", "many", {"tools": MANY}, projects=["odd"]),
            "hidden": from_file(folder / "hidden.json", "hidden", {"tools": HIDDEN}, projects=["odd"]),
            "closed": workshop(folder / "closed", projects=["bare"], tool_permissions={"*": False}),
        },
    }
    async with (
        gateway_process(folder, config, token=SECRETS["all"]) as gateway,
        httpx2.AsyncClient(timeout=LONG_S) as http,
    ):
        yield Shop(gateway, http, folder / "trace")


def project(name: str, token: str = "all") -> dict[str, str]:
    return {"X-Pointsman-Project": name, "Authorization": f"Bearer {SECRETS[token]}"}


async def error_of(shop: Shop, headers: dict[str, str], tool_key: str | None, arguments: Any) -> dict[str, Any]:
    answer = await shop.call("tool_execute", {"toolKey": tool_key, "arguments": arguments}, headers)
    assert answer.json()["result"]["isError"] is True
    error: dict[str, Any] = answer.json()["result"]["structuredContent"]["error"]
    return error


async def while_another_call_runs(shop: Shop) -> dict[str, Any]:
    """An error of a token whose share is used up."""
    ready = shop.trace.with_name("ready")
    patience = shop.trace.with_name("patience")
    call = {"toolKey": "patient:wait", "arguments": {"object": str(ready)}}
    waiting = asyncio.create_task(shop.call("tool_execute", call, project("blue")))
    async with asyncio.timeout(LONG_S):
        while not patience.exists():
            await asyncio.sleep(0.02)
    error = await error_of(shop, project("blue"), "shop:colour", {})
    ready.touch()
    await waiting
    return error


async def each_error(shop: Shop) -> dict[str, str]:
    """One text for each code."""
    red = project("red")
    errors = [
        await error_of(shop, red, "shop:nothing", {}),
        await error_of(shop, red, "shop:paint", {"coats": 0}),
        await error_of(shop, red, "guarded:colour", {}),
        await error_of(shop, red, "gone:anything", {}),
        await error_of(shop, red, "shop:hang", {}),
        await error_of(shop, red, "pointsman:result", {"handle": "none", "offset": 0}),
        await while_another_call_runs(shop),
    ]
    with full_disk(shop.gateway.pid):
        errors.append(await error_of(shop, red, "shop:colour", {}))
    said = {error["code"]: error["message"] for error in errors}
    said["skill_mismatch"] = str(
        SkillMismatchError("shop", "another digest")
    )  # test_skills.py has servers that cause it
    said["sign_in_required"] = str(SignInRequiredError("shop", "it wants an account"))  # router/accounts causes it
    said["confirmation_refused"] = str(ConfirmationRefusedError("guarded:colour"))  # test_confirmation.py causes it
    stranger = await shop.call("tool_discovery", {"query": ["a"]}, {"Authorization": "Bearer ptm_nobody"})
    assert stranger.status_code == 401
    undecided = await shop.call("tool_discovery", {"query": ["a"]}, {"Authorization": f"Bearer {SECRETS['two']}"})
    assert undecided.status_code == 403
    return said | {"unauthorized": stranger.text, "denied": undecided.text}


async def test_every_error_says_why_and_what_to_do(shop: Shop) -> None:
    said = await each_error(shop)
    known = {error.code for base in (GatewayError, RefusedError) for error in base.__subclasses__()}
    assert said.keys() == SAID.keys() == known - ELSEWHERE
    for code, (reason, step) in SAID.items():
        assert reason in said[code], code
        assert step in said[code], code


async def discovery(shop: Shop, headers: dict[str, str], query: str = "anything") -> dict[str, Any]:
    answer = await shop.call("tool_discovery", {"query": [query]}, headers)
    found: dict[str, Any] = answer.json()["result"]["structuredContent"]
    return found


@pytest.mark.parametrize(
    ("where", "reason", "step"),
    [
        ("empty", "your token may use no server in project `empty`", "connect there"),
        ("", "your token may use no server without a project", "`/projects/red/mcp`"),
        ("broken", "These servers do not work at the moment, so their tools are missing: `gone`", "`pointsman doctor`"),
        ("bare", "`bare`, `closed` list none that are open to you", "The operator checks `tool_permissions`"),
        ("sole", "`bare` lists none that are open to you", "The operator checks `tool_permissions`"),
        ("off", "switched off in project `off` (`optimization: null`)", "`optimization: bm25`"),
    ],
)
async def test_an_empty_discovery_says_why_and_what_to_do(shop: Shop, where: str, reason: str, step: str) -> None:
    headers = {"Authorization": f"Bearer {SECRETS['all']}"} | ({"X-Pointsman-Project": where} if where else {})
    answer = await discovery(shop, headers)
    assert answer["results"] == []
    assert reason in answer["notice"]
    assert step in answer["notice"]


async def test_while_all_servers_start_or_fail_nothing_else_is_said(shop: Shop, tmp_path: Path) -> None:
    broken = (await discovery(shop, project("broken")))["notice"]
    assert "do not work at the moment" in broken
    assert "open to you" not in broken
    asleep = {"command": sys.executable, "args": ["-S", "-c", "import sys; sys.stdin.read()"]}
    config = {"servers": {"asleep": asleep}, "limits": {"first_list_s": 0.1}}
    async with gateway_process(tmp_path, config, without=["asleep"]) as gateway:
        starting = await discovery(Shop(gateway, shop.http, shop.trace), gateway.headers)
    assert starting["notice"].startswith("These servers are still starting")
    for other in ("open to you", "tool_permissions", "connect there", "No tool seems to fit"):
        assert other not in starting["notice"]


@pytest.mark.parametrize("tool_key", ["shop:nothing", "tool_discovery", "mcp__pointsman__tool_execute", "", None])
async def test_where_discovery_is_switched_off_no_error_advises_it(shop: Shop, tool_key: str | None) -> None:
    error = await error_of(shop, project("off"), tool_key, {})
    assert error["code"] == ("unknown_tool" if tool_key else "invalid_arguments")
    assert "sk the operator for the keys" in error["message"]
    assert "tool_discovery" not in error["message"].replace(f"No tool `{tool_key}`.", "").replace(OFF_HERE, "")


async def test_where_discovery_is_switched_off_a_wrong_method_call_does_not_advise_it(shop: Shop) -> None:
    refused = {where: (await shop.call("paint", {}, project(where))).json()["error"] for where in ("red", "off")}
    assert "Find it with tool_discovery" in refused["red"]["message"]
    assert "sk the operator for the keys" in refused["off"]["message"]
    assert "tool_discovery" not in refused["off"]["message"].replace(OFF_HERE, "")


async def test_a_call_whose_server_died_says_that_it_may_have_run(shop: Shop) -> None:
    error = await error_of(shop, project("blue"), "shop:crash", {})
    assert error["code"] == "server_unavailable"
    assert "may have run: check before you repeat it" in error["message"]
    assert "Try again" not in error["message"]


async def test_a_thin_discovery_says_why_and_what_to_do(shop: Shop) -> None:
    answer = await discovery(shop, project("red"), "zyxwv qqqq flurb")
    assert all(result["relevance"] < 0.2 for result in answer["results"])
    assert "No tool seems to fit. Try other words" in answer["notice"]
    assert "`gone`. Use other tools" in answer["notice"]


@pytest.mark.parametrize("gap", get_args(Gap))
def test_every_gap_in_the_lists_says_why_and_what_to_do(gap: Gap) -> None:
    reason, step = GAPS[gap]
    [notice] = gap_notices({"shop": gap})
    assert reason in notice
    assert step in notice.partition("`shop`")[2]


async def test_a_list_that_is_too_long_or_unreadable_is_told_of(shop: Shop) -> None:
    notice = (await discovery(shop, project("odd")))["notice"]
    for gap, server in (("cut", "many"), ("unreadable", "hidden")):
        reason, step = GAPS[gap]
        assert reason.replace("`shop`", f"`{server}`") in notice
        assert step in notice


async def test_a_token_hears_only_of_projects_that_it_has(shop: Shop) -> None:
    two = await shop.call("tool_discovery", {"query": ["a"]}, {"Authorization": f"Bearer {SECRETS['two']}"})
    assert "`red`, `blue`" in two.text
    assert "empty" not in two.text
    none = await shop.call("tool_discovery", {"query": ["a"]}, {"Authorization": f"Bearer {SECRETS['none']}"})
    assert none.status_code == 403
    assert "includes no project" in none.text
    assert "The operator must give it one, in `projects` of the token" in none.text
    assert "/projects/" not in none.text
    assert "red" not in none.text.replace("refused", "")


async def test_a_token_without_servers_hears_of_its_projects_and_what_the_operator_must_do(shop: Shop) -> None:
    answer = await discovery(shop, project("red", "idle"))
    assert answer["results"] == []
    assert "your token may use no server in project `red`" in answer["notice"]
    assert "Its projects are `red`, `blue`, and it may use no tool in any of them" in answer["notice"]
    assert "The operator must name servers in `servers` of the token" in answer["notice"]
    assert "connect there" not in answer["notice"]
    assert "empty" not in answer["notice"]


async def test_a_token_without_tools_is_not_sent_to_projects_where_it_has_none_either(shop: Shop) -> None:
    answer = await discovery(shop, project("red", "shut"))
    assert answer["results"] == []
    assert "none that are open to you" in answer["notice"]
    assert "The operator checks `tool_permissions`, `tools`" in answer["notice"]
    assert "connect there" not in answer["notice"]


async def test_a_token_with_one_project_gets_it_without_naming_it(shop: Shop) -> None:
    answer = await discovery(shop, {"Authorization": f"Bearer {SECRETS['one']}"}, "paint something")
    assert answer["results"][0]["toolKey"] == "shop:paint"
    unwanted = {"Authorization": f"Bearer {SECRETS['one']}", "X-Pointsman-Project": "__unassigned__"}
    assert (await shop.call("tool_discovery", {"query": ["a"]}, unwanted)).status_code == 403
    rows = await shop.rows("--project", "red")
    assert any(row["token"] == "one" for row in rows)
