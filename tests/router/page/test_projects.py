"""The screen of the projects: who can use what, and what the owner changes there."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pointsman.catalog.rights import RightsIndex
from pointsman.config.loader import load
from pointsman.core.model import Caller
from tests.router.conftest import from_file
from tests.router.page.browser import Screens
from tests.router.page.owner import HOSTILE, Owner, command, running_page
from tests.router.page.rights_config import commented, commented_text

COMMENTS = ("# mine", "# the workshop", "# traced", "# dangerous", "# under the roof", "# empty", "# everything")


@pytest.fixture(scope="module")
async def owner(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Owner]:
    async with commented(tmp_path_factory.mktemp("page")) as signed_in:
        await command(signed_in, "tools", "list")  # has waited for the lists
        yield signed_in


async def test_the_list_has_every_project_and_the_one_without_a_name(owner: Owner) -> None:
    text = (await owner.get("/page/projects")).text
    assert all(f'href="/page/projects/{one}"' in text for one in ("attic", "cellar", "@unassigned"))
    assert "Context Optimization" in text
    assert text.count('value="bm25" data-send checked') == 3


async def test_hostile_names_are_text(owner: Owner) -> None:
    for path in ("/page/projects", "/page/projects/attic"):
        text = (await owner.get(path)).text
        assert "&lt;img src=x" in text
        assert HOSTILE not in text


async def test_the_matrix_is_what_the_rights_decide(owner: Owner) -> None:
    config = load(owner.gateway.config_file, {})
    rights = RightsIndex(config)
    for project in ("attic", "@unassigned"):
        text = (await owner.get(f"/page/projects/{project}")).text
        of_project = None if project == "@unassigned" else project
        members = [name for name in config.tokens if rights.includes(name, of_project)]
        assert _columns(text) == members
        for server, cells in _rows(text).items():
            expected = ["7 of 8" if rights.may_use_server(Caller(one, of_project), server) else "" for one in members]
            assert [cell if " of " in cell else "" for cell in cells] == [
                one.replace("7", "8") if server == "plain" else one for one in expected
            ]
    tools = (await owner.get("/page/projects/attic?server=shop")).text
    assert _columns(tools) == ["test", "guest"]
    for tool, cells in _rows(tools).items():
        allowed = [rights.may_use(Caller(one, "attic"), "shop", tool, "destructive") for one in ("test", "guest")]
        assert [cell == "may use it" for cell in cells] == allowed
    assert set(_rows(tools)) >= {"erase", "colour"}
    assert "forbidden" in tools


async def test_every_form_keeps_the_comments_and_the_commands_agree(tmp_path: Path) -> None:
    async with commented(tmp_path) as owner:
        file, before = owner.gateway.config_file, commented_text(tmp_path)
        made = await owner.confirm("/page/projects", {"id": "den", "name": "The den", "optimization": "off"})
        assert made.headers["location"] == "/page/projects/den", made.text
        for chosen in ("cloud", "bm25", "off"):
            assert (await owner.confirm("/page/projects/den/optimization", {"optimization": chosen})).status_code == 303
            assert (await _listed(owner))["den"]["optimization"] == chosen
        assert (await owner.confirm("/page/projects/den/exposure", {"exposure": "flat"})).status_code == 303
        await owner.confirm("/page/projects/den/patterns", {"tools": "plain:*\n!*:erase"})
        await owner.confirm("/page/projects/den/servers", {"server": "plain", "wanted": "yes"})
        await owner.confirm("/page/projects/den/tokens", {"token": "guest", "wanted": "yes"})
        await owner.confirm("/page/projects/@unassigned/optimization", {"optimization": "off"})
        listed = await _listed(owner)
        assert listed["den"] == {
            "id": "den",
            "name": "The den",
            "optimization": "off",
            "exposure": "flat",
            "tools": ["plain:*", "!*:erase"],
            "servers": ["plain"],
        }
        assert listed[""]["optimization"] == "off"
        assert load(file, {}).tokens["guest"].projects == ("attic", "den")
        assert all(comment in file.read_text() for comment in COMMENTS)
        refused = await owner.post("/page/projects/den/remove")
        assert refused.status_code == 409
        assert "<code>plain</code>" in refused.text
        assert "the token <code>guest</code>" in refused.text
        asked = await owner.post("/page/projects/den/servers", {"server": "plain", "wanted": "no"})
        assert "then belongs to no project" in asked.text
        await owner.confirm("/page/projects/den/servers", {"server": "plain", "wanted": "no"})
        await owner.confirm("/page/projects/den/tokens", {"token": "guest", "wanted": "no"})
        assert (await owner.confirm("/page/projects/den/remove")).headers["location"] == "/page/projects"
        assert "den" not in await _listed(owner)
        left = file.read_text().replace("    projects: []\n", "").replace("\nunassigned:\n  optimization: null\n", "")
        assert left == before
        changes = [(method, code) for client, method, code in await owner.changes() if client == "page"]
        assert ("configuration/add", "projects.den") in changes
        assert ("configuration/remove", "projects.den") in changes
        assert ("configuration/change", "tokens.guest") in changes


async def test_a_tool_is_forbidden_and_allowed(tmp_path: Path) -> None:
    async with commented(tmp_path) as owner:
        await command(owner, "tools", "list")
        await owner.confirm("/page/projects/attic/tools", {"tool": "shop:colour", "allowed": "no"})
        assert 'tool_permissions: {erase: false, "colour": false}  # dangerous' in owner.gateway.config_file.read_text()
        tools = json.loads(await command(owner, "tools", "list", "--json"))["tools"]
        assert {one["toolKey"]: one["allowed"] for one in tools}["shop:colour"] is False
        saved = await owner.confirm("/page/projects/attic/tools", {"tool": "shop:colour", "allowed": "yes"})
        assert saved.headers["location"] == "/page/projects/attic?server=shop"
        tools = json.loads(await command(owner, "tools", "list", "--json"))["tools"]
        assert {one["toolKey"]: one["allowed"] for one in tools}["shop:colour"] is True


@pytest.mark.parametrize(
    ("path", "fields", "status", "said"),
    [
        ("", {"id": ""}, 400, "needs an id"),
        ("", {"id": "attic"}, 400, "already a project"),
        ("", {"id": "two words"}, 400, "was not changed"),
        ("", {"id": "x", "optimization": "magic"}, 409, "one of off"),
        ("", {"id": "x" * 2000}, 400, "at most 64"),
        ("/attic/optimization", {"optimization": ""}, 409, "one of off"),
        ("/attic/optimization", {"optimization": "bm25"}, 409, "has already"),
        ("/attic/patterns", {"tools": ""}, 409, "has already"),
        ("/attic/patterns", {"tools": "erase"}, 409, "needs a server and a tool"),
        ("/attik/optimization", {"optimization": "off"}, 404, "Did you mean"),
        ("/attic/exposure", {"exposure": "x"}, 409, "exposed"),
        ("/attic/servers", {"server": "shopp", "wanted": "yes"}, 404, "Did you mean"),
        ("/attic/tokens", {"token": "nobody", "wanted": "yes"}, 404, "There is no token"),
        ("/attic/tokens", {"token": "test", "wanted": "no"}, 409, "all projects"),
        ("/attic/tools", {"tool": "shop:nothing", "allowed": "no"}, 404, "has listed no tool"),
        ("/attic/tools", {"tool": "x:y", "allowed": "no"}, 404, "There is no server"),
        ("/@unassigned/remove", {}, 409, "cannot be removed"),
    ],
)
async def test_bad_input_is_named(owner: Owner, path: str, fields: dict[str, str], status: int, said: str) -> None:
    before = owner.gateway.config_file.read_text()
    refused = await owner.post(f"/page/projects{path}", fields)
    assert refused.status_code == status, refused.text
    assert said in refused.text
    assert owner.gateway.config_file.read_text() == before


async def test_unknown_addresses_are_not_found(owner: Owner) -> None:
    assert (await owner.get("/page/projects/nothing")).status_code == 404
    assert (await owner.get("/page/projects/attic?server=plain")).status_code == 404


async def test_a_large_catalog_is_paged(tmp_path: Path) -> None:
    tools = [{"name": f"tool{number}", "inputSchema": {"type": "object"}} for number in range(10_000)]
    tokens = {f"t{number}": {"sha256": f"{number:064x}", "projects": ["*"], "servers": ["*"]} for number in range(300)}
    servers: dict[str, Any] = {
        f"s{number}": {"command": "no-such-program", "enabled": False, "projects": ["big"]} for number in range(120)
    }
    servers["many"] = from_file(tmp_path / "many.json", "m", {"tools": tools}, projects=["big"])
    async with running_page(tmp_path, {"projects": {"big": {}}, "tokens": tokens, "servers": servers}) as owner:
        await command(owner, "tools", "list", "--server", "many")
        whole = await owner.get("/page/projects/big")
        assert len(whole.content) < 200_000
        assert len(_rows(whole.text)) == 50
        assert len(_columns(whole.text)) == 8
        last = await owner.get("/page/projects/big?page=3&tokens=38")
        assert _columns(last.text) == [f"t{number}" for number in range(296, 300)]
        assert "10,000 of 10,000" in last.text
        some = await owner.get("/page/projects/big?server=many&q=tool99&page=2")
        assert len(some.content) < 200_000
        assert "111 found" in some.text


def _columns(text: str) -> list[str]:
    return re.findall(r'class="token"><a href="/page/tokens/([^"]+)"', text)


def _rows(text: str) -> dict[str, list[str]]:
    """The cells of the matrix by the name of their row, as they are read aloud."""
    rows = {}
    for row in text.partition('class="table matrix"')[2].partition("</tbody>")[0].split("<tr>")[2:]:
        name = re.search(r'<th scope="row">(?:<code>|<a [^>]*>)([^<]+)<', row)
        assert name is not None, row
        cells = re.findall(r'<td class="cell"[^>]*>(.*?)</td>', row, re.DOTALL)
        rows[name[1]] = [re.sub(r"<[^>]+>|[\u2713\u2013]|\s+", " ", cell).strip() for cell in cells]
    return rows


async def _listed(owner: Owner) -> dict[str, dict[str, Any]]:
    found = json.loads(await command(owner, "project", "list", "--json"))["projects"]
    return {one["id"]: one for one in found}


@pytest.mark.browser
async def test_looks_right_in_a_browser(screens: Screens) -> None:
    await screens.check("projects", "/page/projects")
    await screens.check("project", "/page/projects/attic")
    await screens.check("project-tools", "/page/projects/attic?server=shop")


@pytest.mark.browser
async def test_the_switch_shows_the_diff_at_once(screens: Screens) -> None:
    async with screens.page() as page:
        await page.goto(screens.owner.gateway.base_url + "/page/projects/cellar")
        await page.click("label:has-text('Cloud')")
        await page.wait_for_selector(".diff .add:has-text('optimization: cloud')")
    async with screens.page(script=False) as page:
        await page.goto(screens.owner.gateway.base_url + "/page/projects/cellar")
        await page.click("label:has-text('Off')")
        await page.click("form[action$=optimization] button:has-text('Set')")
        await page.wait_for_selector(".diff .add:has-text('optimization: null')")
