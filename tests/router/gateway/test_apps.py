"""MCP Apps (SEP-1865): pages of several servers under `ui://<server id>/...`, in lists, reads, results and updates."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import from_file
from tests.router.gateway.test_instructions import STUCK_IF
from tests.router.raw_client import ERAS, Era, Speaker, speaker
from tests.servers.pages import PAGE, SETTINGS, TYPE

Json = dict[str, Any]

PROGRAM = Path(__file__).parents[2] / "servers" / "pages.py"
EXTENSION = "io.modelcontextprotocol/ui"
APPS: Json = {"extensions": {EXTENSION: {"mimeTypes": [TYPE]}}}
SERVERS = ("sales", "stock")  # the same page, of a legacy server and of a modern one without a prefix
NARROW = "ptm_narrow-token-that-includes-one-server"
NOTE = "pointsman+sales+note://sales"
# Of a server that has a tool for its page whatever the client declares. A model may see all but the first.
TOOLS = [
    {"name": f"repaint_{place}", "description": "Repaint the canvas", "inputSchema": {"type": "object"}, "_meta": meta}
    for place, meta in enumerate(
        [
            {"ui": {"visibility": ["app"]}},
            {"ui": {"visibility": ["app", "model"]}},
            {"ui": {"visibility": "app"}},
            {"ui": {"visibility": []}},
            {"ui": ["visibility", "app"]},
            "ui",
        ]
    )
]


def pages(folder: Path, server_id: str, era: Era, take: tuple[str, ...] = (), **settings: Any) -> Json:
    taken = [part for uri in take for part in ("--take", uri)]
    args = ["-S", str(PROGRAM), "--era", era, "--tag", server_id, "--trace", str(folder / f"{server_id}.trace"), *taken]
    return {"command": sys.executable, "args": args, "era": era, **settings}


def config(folder: Path) -> Json:
    def token(secret: str, servers: list[str]) -> Json:
        return {"sha256": hashlib.sha256(secret.encode()).hexdigest(), "projects": ["*"], "servers": servers}

    return {
        "unassigned": {"exposure": "flat"},
        "projects": {"two-tools": {}},
        "tokens": {"test": token("ptm_" + "t" * 43, ["*"]), "narrow": token(NARROW, ["hostile"])},
        "servers": {
            "sales": pages(folder, "sales", "legacy"),
            "stock": pages(folder, "stock", "modern", prefix=""),
            "hostile": pages(
                folder, "hostile", "legacy", ("ui://sales/app/view", "UI://sales/app/view", NOTE), prefix=""
            ),
            "asked": pages(folder, "asked", "modern", projects=["two-tools"]),
            "old": pages(folder, "old", "legacy", projects=["two-tools"]),
            "always": from_file(folder / "always.json", "always", {"tools": TOOLS}, projects=["two-tools"]),
        },
    }


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    async with gateway_process(folder, config(folder), token="ptm_" + "t" * 43) as process:
        yield process


def requests(gateway: GatewayProcess, server_id: str, *methods: str) -> list[Json]:
    trace = gateway.config_file.with_name(f"{server_id}.trace")
    return [one for one in map(json.loads, trace.read_text().splitlines()) if one["method"] in methods]


async def read(client: Speaker, uri: str) -> Json:
    page: Json = (await client.result("resources/read", {"uri": uri}))["contents"][0]
    return page


async def tools_of(client: Speaker) -> dict[str, Json]:
    return {tool["name"]: tool for tool in await client.every("tools/list", "tools")}


@pytest.mark.parametrize("era", ERAS)
async def test_two_servers_with_the_same_page_do_not_meet(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era, capabilities=APPS) as client:
        tools = await tools_of(client)
        resources = {one["uri"]: one for one in await client.every("resources/list", "resources")}
        templates = [one["uriTemplate"] for one in await client.every("resources/templates/list", "resourceTemplates")]
        assert PAGE not in resources
        for server_id, name in zip(SERVERS, ("sales__chart", "chart"), strict=True):
            uri = f"ui://{server_id}/app/view"
            ui = {"resourceUri": uri, "visibility": ["model", "app"]}
            assert tools[name]["_meta"] == {"ui": ui, "ui/resourceUri": uri, "vendor/x": PAGE}
            assert resources[uri]["_meta"] == {"ui": SETTINGS}
            assert f"ui://{server_id}/app/{{name}}" in templates
            page = await read(client, uri)
            assert (page["uri"], page["mimeType"], page["_meta"]) == (uri, TYPE, {"ui": SETTINGS})
            assert page["text"] == f"<html>{server_id} has {PAGE}</html>"
            assert (await read(client, f"ui://{server_id}/app/other"))["text"].endswith("has ui://app/other</html>")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("server_id", "name"), [("sales", "sales__chart"), ("stock", "chart")])
async def test_links_in_results_and_prompts_lead_to_the_page(
    gateway: GatewayProcess, era: Era, server_id: str, name: str
) -> None:
    uri, prompt = f"ui://{server_id}/app/view", name.replace("chart", "show")
    async with speaker(gateway, era, capabilities=APPS) as client:
        result = await client.call(name)
        prompted = await client.result("prompts/get", {"name": prompt})
        page = await read(client, uri)
    for text, link, embedded in (result["content"], [message["content"] for message in prompted["messages"]]):
        assert text["text"] == PAGE  # text is never changed
        assert (link["uri"], embedded["resource"]["uri"]) == (uri, uri)
        assert embedded["resource"]["text"] == server_id
    assert result["_meta"]["ui"] == {"resourceUri": uri}
    assert result["_meta"]["vendor/x"] == PAGE
    assert page["text"].startswith(f"<html>{server_id} ")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("server_id", SERVERS)
async def test_updates_and_completions_use_the_same_uris(gateway: GatewayProcess, era: Era, server_id: str) -> None:
    name = "sales__touch" if server_id == "sales" else "touch"
    async with speaker(gateway, era, capabilities=APPS) as client:
        async with client.stream(f"ui://{server_id}/app/view") as changes:
            await client.call(name, {"uri": PAGE})
            updated = await changes.next("notifications/resources/updated")
        assert updated["uri"] == f"ui://{server_id}/app/view"
        ref = {"type": "ref/resource", "uri": f"ui://{server_id}/app/{{name}}"}
        completed = await client.result("completion/complete", {"ref": ref, "argument": {"name": "name", "value": ""}})
    assert completed["completion"]["values"] == ["ui://app/{name}"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_part_of_another_resource_has_the_pages_uri(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era) as client:
        contents = (await client.result("resources/read", {"uri": "note://stock"}))["contents"]
    assert [part["uri"] for part in contents] == ["note://stock", "ui://stock/app/view"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_server_cannot_take_over_the_page_of_another(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era, capabilities=APPS) as client:
        tools = await tools_of(client)
        listed = [one["uri"] for one in await client.every("resources/list", "resources")]
        assert {"ui://hostile/sales/app/view", "UI://hostile/sales/app/view"} <= {*listed}
        assert "UI://sales/app/view" not in listed
        assert listed.count("ui://sales/app/view") == listed.count(NOTE) == 1
        assert tools["claim0"]["_meta"]["ui"]["resourceUri"] == "ui://hostile/sales/app/view"
        assert tools["claim1"]["_meta"]["ui/resourceUri"] == "UI://hostile/sales/app/view"
        assert tools["claim2"]["_meta"] == {"ui": {}}  # no page, but the note of another server
        assert (await read(client, "ui://sales/app/view"))["text"] == f"<html>sales has {PAGE}</html>"
        own = await read(client, "ui://hostile/sales/app/view")
        assert own["text"] == "<html>hostile has ui://sales/app/view</html>"
        assert own["uri"] == "ui://hostile/sales/app/view"


@pytest.mark.parametrize("era", ERAS)
async def test_a_token_without_the_server_cannot_read_its_page(gateway: GatewayProcess, era: Era) -> None:
    """Not even from a server that lists a page of that URI and has no prefix."""
    async with speaker(gateway, era, token=NARROW, capabilities=APPS) as client:
        listed = [one["uri"] for one in await client.every("resources/list", "resources")]
        assert not [uri for uri in listed if uri.lower().startswith(("ui://sales", "ui://stock"))]
        for uri in ("ui://sales/app/view", "ui://stock/app/view", "UI://sales/app/view", PAGE, "ui://", "ui://hostile"):
            error = await client.error("resources/read", {"uri": uri})
            assert error["code"] == (-32002 if era == "legacy" else -32602)
            assert "error" in await client.message("resources/subscribe", {"uri": uri})
    assert not [one for one in requests(gateway, "hostile", "resources/read") if one["uri"] == PAGE]


@pytest.mark.parametrize("era", ERAS)
async def test_only_clients_that_show_pages_get_the_tools_of_pages(gateway: GatewayProcess, era: Era) -> None:
    for able, shown in (({}, False), ({"extensions": {EXTENSION: {}}}, False), (APPS, True)):
        async with speaker(gateway, era, capabilities=able) as client:
            tools = await tools_of(client)
        assert "sales__chart" in tools
        assert ("sales__refresh" in tools) is shown


async def test_a_client_that_shows_pages_may_call_the_tools_of_pages(gateway: GatewayProcess) -> None:
    async with speaker(gateway, "modern", capabilities=APPS) as client:
        assert (await client.call("sales__refresh"))["content"]
        await client.call("chart")
    [*_, sent] = requests(gateway, "stock", "tools/call")
    assert sent["_meta"]["io.modelcontextprotocol/clientCapabilities"] == APPS


async def test_servers_are_told_of_pages_only_where_their_tools_are_exposed_by_name(gateway: GatewayProcess) -> None:
    async with speaker(gateway, "modern") as flat, speaker(gateway, "modern", project="two-tools") as meta:
        await tools_of(flat)
        await meta.call("tool_discovery", {"query": "draw a chart"})
    key = "io.modelcontextprotocol/clientCapabilities"
    for server_id, declared in (("sales", APPS["extensions"]), ("old", None)):
        [shaken] = requests(gateway, server_id, "initialize")
        assert shaken["capabilities"].get("extensions") == declared
    for server_id, declared in (("stock", APPS), ("asked", {})):
        sent = requests(gateway, server_id, "server/discover", "tools/list")
        assert {one["method"] for one in sent} == {"server/discover", "tools/list"}
        assert all(one["_meta"][key] == declared for one in sent)


@pytest.mark.parametrize("era", ERAS)
async def test_links_in_answers_of_tool_execute_lead_to_the_page(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era, project="two-tools") as client:
        for server_id in ("asked", "old"):
            result = await client.call("tool_execute", {"toolKey": f"{server_id}:chart", "arguments": {}})
            uri = result["content"][1]["uri"]
            assert uri == result["_meta"]["ui"]["resourceUri"] == f"ui://{server_id}/app/view"
            assert (await read(client, uri))["text"] == f"<html>{server_id} has {PAGE}</html>"


@pytest.mark.parametrize("era", ERAS)
async def test_discovery_does_not_show_tools_for_pages_only(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era, project="two-tools") as client:
        found = await client.call("tool_discovery", {"query": "repaint the canvas", "maxResults": 10})
    keys = {result["toolKey"] for result in found["structuredContent"]["results"]}
    assert {key for key in keys if key.startswith("always:")} == {f"always:repaint_{place}" for place in range(1, 6)}


@pytest.mark.parametrize("key", ["always:repaint_0", "always__repaint_0", "repaint_0"])
async def test_tool_execute_answers_for_a_tool_of_pages_as_for_one_that_does_not_exist(
    gateway: GatewayProcess, key: str
) -> None:
    async with speaker(gateway, "modern", project="two-tools") as client:
        await client.call("tool_discovery", {"query": "repaint the canvas"})
        answers = [
            await client.call("tool_execute", {"toolKey": named, "arguments": {}})
            for named in (key, key.replace("repaint_0", "repaint_9"))
        ]
        shown = await client.call("tool_execute", {"toolKey": "repaint_1", "arguments": {}})
    hidden, missing = (answer["structuredContent"]["error"] for answer in answers)
    assert hidden["code"] == "unknown_tool"
    assert hidden["message"].replace(key, "X") == missing["message"].replace(key.replace("_0", "_9"), "X")
    assert "`always:repaint_1`" in hidden["message"]
    assert "always:repaint_0" not in hidden["message"].partition(". ")[2]
    assert not shown.get("isError")


async def test_tools_of_pages_stay_hidden_while_a_server_that_was_listed_in_the_last_run_starts(tmp_path: Path) -> None:
    tools = [{**TOOLS[0], "name": "redraw_canvas"}, {**TOOLS[1], "name": "paint_board"}]
    server = from_file(tmp_path / "board.json", "board", {"tools": tools}, timeouts={"connect_s": 3600})
    stuck = tmp_path / "stuck"
    server["args"] = ["-S", "-c", STUCK_IF, str(stuck), *server["args"][1:]]
    config = {"servers": {"board": server}, "limits": {"first_list_s": 0.1}}

    async def told(running: GatewayProcess) -> tuple[str, list[str | None]]:
        async with speaker(running, "modern") as client:
            await client.call("tool_discovery", {"query": "paint"})
            instructions: str = (await client.result("server/discover"))["instructions"]
            keys = ("board:redraw_canvas", "redraw_canvas", "board:paint_board")
            answers = [await client.call("tool_execute", {"toolKey": key, "arguments": {}}) for key in keys]
        return instructions, [answer["structuredContent"].get("error", {}).get("code") for answer in answers]

    async with gateway_process(tmp_path, config) as running:
        first = await told(running)
    stuck.touch()
    async with gateway_process(tmp_path, config, without=["board"]) as running:
        second = await told(running)
    assert first[0] == second[0]
    assert first[0].endswith("Servers: board (paint).")
    assert first[1] == ["unknown_tool", "unknown_tool", None]
    assert second[1] == ["unknown_tool", "unknown_tool", "server_unavailable"]


async def test_the_owner_may_call_a_tool_of_pages(tmp_path: Path) -> None:
    server = from_file(tmp_path / "board.json", "board", {"tools": TOOLS})
    async with gateway_process(tmp_path, {"servers": {"board": server}}) as running:
        command = ("tools", "call", "board:repaint_0", "--json", "--state-dir", str(running.state_dir))
        ran = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "pointsman", *command, stdout=asyncio.subprocess.PIPE, cwd=tmp_path
        )
        output, _ = await ran.communicate()
    assert ran.returncode == 0
    assert b"repaint_0" in output


async def test_apps_are_declared_to_clients_that_can_use_some(tmp_path: Path) -> None:
    async def declared(project: str | None = None) -> Json | None:
        async with speaker(running, "modern", project=project) as client:
            await client.every("tools/list", "tools")
            found: Json = (await client.result("server/discover"))["capabilities"]["extensions"]
            return found.get(EXTENSION)

    sales = pages(tmp_path, "sales", "legacy")
    plain = {"projects": {"p": {"exposure": "flat"}}, "servers": {"sales": {**sales, "tool_permissions": {"*": False}}}}
    async with gateway_process(tmp_path, {**plain, "unassigned": {"exposure": "flat"}}) as running:
        assert await declared() is None  # no tool with a page that it may use
        assert await declared("p") is None  # no server
        running.write_config({"servers": {"sales": sales}, "unassigned": {"exposure": "flat"}})
        await running.until_logged("configuration reloaded")
        assert await declared() == {"mimeTypes": [TYPE]}
        running.write_config({"servers": {"sales": sales}})
        async with speaker(running, "modern") as client:
            while "tool_discovery" not in await tools_of(client):
                await asyncio.sleep(0.02)
            assert await declared() is None
            while len(requests(running, "sales", "initialize")) < 2:  # it is told at once that its pages are not shown
                await client.result("resources/list")
    first, second = requests(running, "sales", "initialize")
    assert first["capabilities"]["extensions"] == APPS["extensions"]
    assert "extensions" not in second["capabilities"]
