"""Resources and templates of all servers: URIs that lead back, both eras on both sides, and nobody sees too much."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.raw_client import ERAS, WAIT_S, Era, Speaker, speaker

LIBRARY = Path(__file__).parents[2] / "servers" / "library.py"
OLD, NEW, BARE = "pointsman+old+book://shelf/1", "pointsman+new.5fone+book://shelf/1", "book://shelf/1"


def library(tag: str, era: Era = "legacy", *options: str, **settings: Any) -> dict[str, Any]:
    args = ["-S", str(LIBRARY), "--tag", tag, "--era", era, *options]
    return {"command": sys.executable, "args": args, "era": era, "pin": "off", **settings}


def mortal(folder: Path, server_id: str, **settings: Any) -> dict[str, Any]:
    """A library that `take_away` can end for good."""
    launcher = folder / server_id
    program = shlex.join([sys.executable, "-S", str(LIBRARY), "--tag", server_id])
    launcher.write_text(f"#!/bin/sh\necho $$ > {shlex.quote(f'{launcher}.pid')}\nexec {program}\n")
    launcher.chmod(0o700)
    return {"command": str(launcher), "era": "legacy", "pin": "off", **settings}


async def take_away(folder: Path, client: Speaker, server_id: str) -> None:
    """Kill it, leave nothing that could be started again, and wait until the gateway has seen it."""
    launcher = folder / server_id
    launcher.unlink()
    os.kill(int(Path(f"{launcher}.pid").read_text()), signal.SIGKILL)
    async with asyncio.timeout(WAIT_S):
        while "result" in await client.message("resources/read", {"uri": f"pointsman+{server_id}+book://shelf/1"}):
            await asyncio.sleep(0.02)


def assert_names_the_absent(error: dict[str, Any], server_id: str) -> None:
    assert (error["code"], error["data"]) == (-32603, {"code": "server_unavailable"})
    assert f"`{server_id}`" in error["message"]


def config(**more: Any) -> dict[str, Any]:
    return {
        "projects": {"closed": {}, "bare": {}},
        "servers": {
            "old": library("the old library"),
            "new_one": library("the new library", "modern", "--ttl-ms", "60000"),
            "secret": library("the secret library", projects=["closed"]),
            "bare-a": library("bare a", prefix="", projects=["bare"]),
            "bare-b": library("bare b", "modern", prefix="", projects=["bare"]),
            **more,
        },
    }


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    async with gateway_process(tmp_path_factory.mktemp("gateway"), config()) as process:
        yield process


async def text_of(client: Speaker, uri: str) -> str:
    [part] = (await client.result("resources/read", {"uri": uri}))["contents"]
    assert part["uri"] == uri
    text: str = part["text"]
    return text


@pytest.mark.parametrize("era", ERAS)
async def test_resources_of_all_servers_are_listed_and_read_under_uris_that_lead_back(
    gateway: GatewayProcess, era: Era
) -> None:
    async with speaker(gateway, era) as client:
        uris = [one["uri"] for one in await client.every("resources/list", "resources")]
        assert uris == [
            *(f"pointsman+old+book://shelf/{number}" for number in (1, 2, 3)),
            *(f"pointsman+new.5fone+book://shelf/{number}" for number in (1, 2, 3)),
        ]
        assert await text_of(client, OLD) == "the old library has book://shelf/1"
        assert await text_of(client, NEW) == "the new library has book://shelf/1"


@pytest.mark.parametrize("era", ERAS)
async def test_a_template_expands_to_a_uri_that_can_be_read(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era) as client:
        templates = [one["uriTemplate"] for one in await client.every("resources/templates/list", "resourceTemplates")]
        assert templates[:2] == ["pointsman+old+book://shelf/{number}{?edition}", "pointsman+old+note://{+path}"]
        expanded = templates[0].replace("{number}", "a%20b%2F7").replace("{?edition}", "?edition=2")
        assert await text_of(client, expanded) == "the old library has book://shelf/a%20b%2F7?edition=2"


async def test_uris_survive_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        async with gateway_process(tmp_path, config()) as gateway, speaker(gateway, "modern") as client:
            assert await text_of(client, NEW) == "the new library has book://shelf/1"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    "uri", ["pointsman+secret+book://shelf/1", "pointsman+none+book://shelf/1", "nothing://here", "", "\u00e4 b"]
)
async def test_what_may_not_be_read_looks_like_what_does_not_exist(gateway: GatewayProcess, era: Era, uri: str) -> None:
    async with speaker(gateway, era) as client:
        refused = await client.error("resources/read", {"uri": uri})
        unknown = await client.error("resources/read", {"uri": "no://such"})
    assert refused["code"] == unknown["code"] == (-32002 if era == "legacy" else -32602)
    assert refused["message"] == unknown["message"]
    assert refused["data"] == {"uri": uri}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("server", ["old", "new.5fone"])
async def test_not_found_has_the_code_of_the_clients_era(gateway: GatewayProcess, era: Era, server: str) -> None:
    uri = f"pointsman+{server}+missing://thing"
    async with speaker(gateway, era) as client:
        error = await client.error("resources/read", {"uri": uri})
    assert error == {
        "code": -32002 if era == "legacy" else -32602,
        "message": "Resource not found",
        "data": {"uri": uri},
    }


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_prefix_uris_are_the_servers_own_and_the_first_one_wins(
    gateway: GatewayProcess, era: Era
) -> None:
    async with speaker(gateway, era, project="bare") as client:
        listed = await client.every("resources/list", "resources")
        assert [one["uri"] for one in listed] == [f"book://shelf/{number}" for number in (1, 2, 3)]
        assert {one["description"] for one in listed} == {"bare a"}
        assert await text_of(client, BARE) == "bare a has book://shelf/1"
        assert (await client.error("resources/read", {"uri": "missing://thing"}))["data"] == {"uri": "missing://thing"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_link_in_a_result_passes_unchanged_and_can_be_followed(gateway: GatewayProcess, era: Era) -> None:
    async with speaker(gateway, era) as client:
        for key, tag in (("new_one:media", "the new library"), ("old:media", "the old library")):
            answer = await client.call("tool_execute", {"toolKey": key})
            link = answer["content"][-1]
            assert link["uri"] == "note://hidden"
            assert await text_of(client, link["uri"]) == f"{tag} has note://hidden"


async def test_a_link_of_another_caller_leads_to_no_forbidden_server(gateway: GatewayProcess) -> None:
    async with speaker(gateway, "modern", project="closed") as insider:
        await insider.call("tool_execute", {"toolKey": "secret:media"})
        assert await text_of(insider, "note://hidden") == "the secret library has note://hidden"
    async with speaker(gateway, "modern") as client:
        assert await text_of(client, "note://hidden") == "the old library has note://hidden"


async def test_hints_for_caching_are_private_and_the_smallest_of_the_parts(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, config()) as gateway, speaker(gateway, "modern") as client:
        both = await client.result("resources/list")
        assert (both["ttlMs"], both["cacheScope"]) == (0, "private")  # the old one says nothing
        read = await client.result("resources/read", {"uri": NEW})
        assert (read["ttlMs"], read["cacheScope"]) == (1234, "private")
        gateway.write_config(config(old=library("the old library", enabled=False)))
        async with asyncio.timeout(WAIT_S):
            while (alone := await client.result("resources/list"))["ttlMs"] == 0:
                await asyncio.sleep(0.02)
        assert 0 < alone["ttlMs"] <= 60_000
        assert alone["cacheScope"] == "private"


async def test_legacy_clients_see_no_modern_fields(gateway: GatewayProcess) -> None:
    async with speaker(gateway, "legacy") as client:
        for answer in (await client.result("resources/list"), await client.result("resources/read", {"uri": NEW})):
            assert not answer.keys() & {"ttlMs", "cacheScope", "resultType"}


async def test_rights_that_are_taken_away_hold_in_open_sessions(tmp_path: Path) -> None:
    async with gateway_process(tmp_path, config()) as gateway, speaker(gateway, "legacy") as client:
        assert await text_of(client, NEW)
        gateway.write_config(config(new_one=library("the new library", "modern", projects=["closed"])))
        async with asyncio.timeout(WAIT_S):
            while "result" in (answer := await client.message("resources/read", {"uri": NEW})):
                await asyncio.sleep(0.02)
        assert answer["error"]["code"] == -32002
        uris = [one["uri"] for one in await client.every("resources/list", "resources")]
        assert uris
        assert not [uri for uri in uris if uri.startswith("pointsman+new")]


async def test_a_server_that_is_away_costs_only_its_own(tmp_path: Path) -> None:
    entries = config(gone={"command": "no-such-program-anywhere"})
    async with gateway_process(tmp_path, entries) as gateway, speaker(gateway, "modern") as client:
        assert len(await client.every("resources/list", "resources")) == 6
        error = await client.error("resources/read", {"uri": "pointsman+gone+book://shelf/1"})
        assert (error["code"], error["data"]) == (-32603, {"code": "server_unavailable"})
        assert "`gone`" in error["message"]


async def test_a_uri_never_goes_over_to_another_server_while_its_own_is_away(tmp_path: Path) -> None:
    entries = {"servers": {one: mortal(tmp_path, one, prefix="") for one in ("f1", "f2")}}
    async with gateway_process(tmp_path, entries) as gateway, speaker(gateway, "modern") as client:
        template = {"type": "ref/resource", "uri": "note://{+path}"}
        completion = {"ref": template, "argument": {"name": "path", "value": "A"}}
        assert await text_of(client, BARE) == "f1 has book://shelf/1"
        assert await text_of(client, "note://by/template") == "f1 has note://by/template"
        await client.call("tool_execute", {"toolKey": "f2:add_book", "arguments": {"uri": "book://only-here"}})
        async with asyncio.timeout(WAIT_S):
            while len(await client.every("resources/list", "resources")) < 4:
                await asyncio.sleep(0.02)
        await take_away(tmp_path, client, "f1")
        for uri in (BARE, "note://by/template"):
            assert_names_the_absent(await client.error("resources/read", {"uri": uri}), "f1")
        assert_names_the_absent(await client.error("completion/complete", completion), "f1")
        listed = await client.every("resources/list", "resources")
        assert [one["uri"] for one in listed] == ["book://only-here"]
        assert not await client.every("resources/templates/list", "resourceTemplates")


async def test_the_uris_of_those_that_are_there_are_read_while_another_is_away(tmp_path: Path) -> None:
    entries = {"servers": {one: mortal(tmp_path, one, prefix="") for one in ("f1", "f2")}}
    async with gateway_process(tmp_path, entries) as gateway, speaker(gateway, "modern") as client:
        assert await text_of(client, BARE) == "f1 has book://shelf/1"
        await take_away(tmp_path, client, "f2")
        assert await text_of(client, BARE) == "f1 has book://shelf/1"
        assert await text_of(client, "note://by/template") == "f1 has note://by/template"


@pytest.mark.parametrize("era", ERAS)
async def test_long_lists_come_in_pages_with_cursors_of_our_own(tmp_path: Path, era: Era) -> None:
    entries = {
        "servers": {
            "one": library("one", "legacy", "--books", "700", "--page", "50"),
            "two": library("two", "modern", "--books", "700", "--page", "99"),
        }
    }
    async with gateway_process(tmp_path, entries) as gateway, speaker(gateway, era) as client:
        first = await client.result("resources/list")
        assert len(first["resources"]) == 500
        everything = await client.every("resources/list", "resources")
        assert len({one["uri"] for one in everything}) == len(everything) == 1400
        second = await client.result("resources/list", {"cursor": first["nextCursor"]})
        assert second["resources"] == everything[500:1000]
        good = first["nextCursor"]
        changed = good[:20] + ("A" if good[20] != "A" else "B") + good[21:]
        for cursor in ("50", "", changed, good[:-4], "x" * 5000, second["nextCursor"] + "="):
            assert (await client.error("resources/list", {"cursor": cursor}))["code"] == -32602
        of_another_list = await client.error("prompts/list", {"cursor": first["nextCursor"]})
        assert of_another_list["code"] == -32602


async def test_a_cursor_serves_only_the_caller_that_got_it(tmp_path: Path) -> None:
    many = library("one", "legacy", "--books", "700", projects=["a", "b"])
    entries = {"projects": {"a": {}, "b": {}}, "servers": {"one": many}}
    async with (
        gateway_process(tmp_path, entries) as gateway,
        speaker(gateway, "modern", project="a") as mine,
        speaker(gateway, "modern", project="b") as other,
    ):
        cursor = (await mine.result("resources/list"))["nextCursor"]
        assert len((await mine.result("resources/list", {"cursor": cursor}))["resources"]) == 200
        assert (await other.error("resources/list", {"cursor": cursor}))["code"] == -32602
