"""What somebody who has signed in may do: by the rule that holds, and by the scope of the access token.

A test whose docstring begins with `MUST` or `SHOULD` is about a demand of the authorization chapters of 2025-11-25 and
2026-07-28.
"""

from __future__ import annotations

import json
import re

from tests.router.auth.issuer import PUBLIC_URL
from tests.router.auth.shop import META, Shop, challenge_of, error_of, structured


async def test_an_account_without_a_rule_is_forbidden_everything(shop: Shop) -> None:
    """MUST: 403 for insufficient permissions."""
    async with shop.nothing_executed():
        refused = await shop.execute(shop.token(groups=["strangers"]), "shop:look")
    assert refused.status_code == 403
    assert "no rule of `auth`" in error_of(refused)
    assert "www-authenticate" not in refused.headers  # to sign in again would not help
    assert (await shop.last_row("denied"))["outcome"] == "denied"


async def test_a_token_without_our_scope_is_told_all_that_it_needs(shop: Shop) -> None:
    """SHOULD: 403 with insufficient_scope, the scopes and the metadata in one challenge."""
    async with shop.nothing_executed():
        refused = await shop.execute(shop.token(scope="openid email"), "shop:look")
    assert refused.status_code == 403
    expected = {"error": "insufficient_scope", "scope": "mcp", "resource_metadata": f"{PUBLIC_URL}{META}/mcp"}
    assert challenge_of(refused) == expected
    assert refused.json()["error"]["data"] == {"code": "insufficient_scope"}
    assert (await shop.last_row("insufficient_scope"))["outcome"] == "denied"


async def test_a_tool_beyond_the_scope_names_all_scopes_at_once(shop: Shop) -> None:
    """SHOULD: all scopes of the operation in a single challenge, with those that the token has."""
    token = shop.token(scope="mcp:read")
    assert (await shop.execute(token, "shop:look")).status_code == 200
    async with shop.nothing_executed():
        refused = await shop.execute(token, "shop:note")
        assert refused.status_code == 403
        assert challenge_of(refused)["scope"] == "mcp:read mcp:write"
        refused = await shop.execute(token, "shop:erase", "/projects/demo/mcp")
        assert (refused.status_code, "www-authenticate" in refused.headers) == (200, False)  # no tool of that project
        refused = await shop.execute(token, "demo:erase", "/projects/demo/mcp")
        assert challenge_of(refused)["scope"] == "mcp:read mcp:destructive"
        assert challenge_of(refused)["resource_metadata"] == f"{PUBLIC_URL}{META}/projects/demo/mcp"
    stepped_up = shop.token(scope="mcp:read mcp:write")
    assert (await shop.execute(stepped_up, "shop:note")).status_code == 200


async def test_a_flat_tool_beyond_the_scope_is_challenged_too(shop: Shop) -> None:
    token, path = shop.token(scope="mcp:read"), "/projects/flat/mcp"
    listed = await shop.send(shop.token(), "tools/list", path=path)
    assert "flat__note" in listed.text
    refused = await shop.send(token, "tools/call", {"name": "flat__note", "arguments": {}}, path)
    assert challenge_of(refused)["scope"] == "mcp:read mcp:write"


async def test_reads_beyond_the_scope_are_challenged(shop: Shop) -> None:
    refused = await shop.send(shop.token(scope="mcp:write"), "resources/list")
    assert refused.status_code == 403
    assert challenge_of(refused)["scope"] == "mcp:read mcp:write"
    assert (await shop.send(shop.token(scope="mcp:read"), "resources/list")).status_code == 200


async def test_a_broader_scope_implies_the_narrower_ones(shop: Shop) -> None:
    """MUST: account for scope hierarchies."""
    for tool in ("shop:look", "shop:note", "shop:erase"):
        assert structured(await shop.execute(shop.token(scope="mcp"), tool))["coats"] == 1


async def test_what_the_rule_itself_does_not_allow_does_not_exist(shop: Shop) -> None:
    """No challenge: no scope would help."""
    token = shop.token(groups=["readers"])
    assert (await shop.execute(token, "shop:look")).status_code == 200
    async with shop.nothing_executed():
        refused = structured(await shop.execute(token, "shop:erase"))
        missing = structured(await shop.execute(shop.token(scope="mcp:read"), "shop:no_such_tool"))
    assert refused["error"]["code"] == missing["error"]["code"] == "unknown_tool"


async def test_a_token_for_a_project_works_there_only(shop: Shop) -> None:
    """MUST: only tokens that are valid for the resource."""
    token = shop.token(aud=f"{PUBLIC_URL}/projects/demo/mcp")
    assert structured(await shop.execute(token, "demo:look", "/projects/demo/mcp"))["coats"] == 1
    async with shop.nothing_executed():
        elsewhere = await shop.execute(token, "shop:look", "/projects/other/mcp")
        assert elsewhere.status_code == 403
        assert "The operator's rule in `auth` gives your account its projects" in elsewhere.text
        assert "token create" not in elsewhere.text
        # On the general address it acts for its one project, in which that server is not.
        assert structured(await shop.execute(token, "shop:look"))["error"]["code"] == "unknown_tool"


async def test_rates_count_a_person_whichever_token_it_sends(shop: Shop) -> None:
    who = {"sub": "busy", "groups": ["limited"]}
    first, second = shop.token(**who), shop.token(**who, scope="mcp:read")
    for token in (first, second):
        assert structured(await shop.execute(token, "shop:look"))["coats"] == 1
    async with shop.nothing_executed():
        refused = structured(await shop.execute(first, "shop:look"))
    assert refused["error"]["code"] == "rate_limited"
    assert "auth.claims.limited.rates.calls_per_minute" in json.dumps(refused)
    other = shop.token(sub="calm", groups=["limited"])
    assert structured(await shop.execute(other, "shop:look"))["coats"] == 1


async def test_a_rule_can_ask_for_a_persons_yes(shop: Shop) -> None:
    token = shop.token(groups=["careful"])
    assert structured(await shop.execute(token, "shop:look"))["coats"] == 1
    async with shop.nothing_executed():
        refused = structured(await shop.execute(token, "shop:erase"))
    assert refused["error"]["code"] == "confirmation_required"


async def test_metrics_have_no_label_for_a_person(shop: Shop) -> None:
    """Their number must not grow with those who sign in."""
    for number in range(5):
        await shop.execute(shop.token(sub=f"person-{number}"), "shop:look")
    headers = {"Authorization": f"Bearer {shop.gateway.token}"}
    answer = await shop.http.get(f"{shop.gateway.base_url}/metrics", headers=headers)
    assert "person-" not in answer.text
    assert "@sso" not in answer.text


async def test_large_results_belong_to_the_person(shop: Shop) -> None:
    """A preview's rest is read with the same identity, also with a renewed token, and with no other."""
    stored = await shop.execute(shop.token(), "shop:break", text="x" * 60_000)
    handle = re.search(r"[0-9a-f]{32}", stored.json()["result"]["content"][0]["text"])
    assert handle is not None, stored.text[:500]
    for token, found in (
        (shop.token(jti="new"), True),
        (shop.token(sub="mallory"), False),
        (shop.gateway.token, False),
    ):
        read = await shop.execute(token, "pointsman:result", handle=handle[0])
        assert ("unknown_result" not in read.text) is found, read.text[:300]
