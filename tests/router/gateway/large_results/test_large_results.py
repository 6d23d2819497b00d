"""Large results: a preview in place of the whole, slices with `pointsman:result`, and who may read them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows
from tests.router.raw_client import ERAS, Era, Speaker, speaker

ANSWERS = Path(__file__).parents[3] / "servers" / "answers.py"
RESULT = "pointsman:result"
IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "note://x", "name": "x"}
ROWS = [{"id": number, "name": f"row {number}", "note": "word " * 20} for number in range(1_000)]
SECRETS = {"laptop": "laptop-secret", "phone": "phone-secret"}


def config(**limits: int) -> dict[str, Any]:
    answers = {"command": sys.executable, "args": ["-S", str(ANSWERS)], "era": "legacy"}
    tokens = {
        name: {"sha256": hashlib.sha256(secret.encode()).hexdigest(), "projects": ["*"], "servers": ["*"]}
        for name, secret in SECRETS.items()
    }
    return {
        "projects": {"flat": {"exposure": "flat"}, "b": {}},
        "servers": {
            "notes": answers,
            "notes-b": {**answers, "projects": ["b"]},
            "notes-flat": {**answers, "projects": ["flat"]},
        },
        "tokens": tokens,
        "limits": limits,
    }


@pytest.fixture(scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayProcess]:
    async with storing_gateway(tmp_path_factory.mktemp("gateway")) as process:
        yield process


@asynccontextmanager
async def storing_gateway(folder: Path, **limits: int) -> AsyncIterator[GatewayProcess]:
    """A gateway that has loaded its encryption, which takes seconds on a busy machine: until then answers are whole."""
    async with gateway_process(folder, config(**limits), token=SECRETS["laptop"]) as process:
        async with speaker(process, "modern", project="b") as client, asyncio.timeout(120):
            while True:
                first = await answer(client, folder, text("x" * 50_000), "notes-b:answer")
                if "handle" in first.get("structuredContent", {}):
                    break
        yield process


async def answer(
    client: Speaker, folder: Path, result: dict[str, Any], tool_key: str = "notes:answer", meta: Any = None
) -> dict[str, Any]:
    """What `tool_execute` makes of a server's result."""
    file = folder / "answer.json"
    file.write_text(json.dumps(result))
    client.meta = meta or {}
    return await client.call("tool_execute", {"toolKey": tool_key, "arguments": {"file": str(file)}})


async def read(client: Speaker, handle: str, **arguments: Any) -> dict[str, Any]:
    return await client.call("tool_execute", {"toolKey": RESULT, "arguments": {"handle": handle, **arguments}})


def text(*texts: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": one} for one in texts]}


def error_code(result: dict[str, Any]) -> str | None:
    code: str | None = result["structuredContent"].get("error", {}).get("code") if result.get("isError") else None
    return code


@pytest.mark.parametrize("era", ERAS)
async def test_a_large_text_becomes_a_preview_whose_slices_make_the_whole(
    gateway: GatewayProcess, tmp_path: Path, era: Era
) -> None:
    whole = "".join(f"line {number} \u00e4\U0001f600\n" for number in range(8_000))
    async with speaker(gateway, era) as client:
        cut = await answer(client, tmp_path, text(whole))
        preview, handle = cut["content"][0]["text"], cut["structuredContent"]["handle"]
        assert cut["structuredContent"] == {"result": preview, "handle": handle}
        assert len(preview) < 10_000
        assert whole[:1_000] in preview
        assert f"{len(whole):,} characters" in preview
        slices: list[str] = []
        offset: int | None = 0
        while offset is not None:
            part = await read(client, handle, offset=offset)
            assert len(part["content"][0]["text"]) <= 20_000
            assert part["content"][0]["text"] == part["structuredContent"]["result"]
            slices.append(part["content"][0]["text"])
            offset = part["structuredContent"].get("nextOffset")
    assert "".join(slices) == whole


async def test_the_call_in_the_preview_can_be_made_as_it_is_written(gateway: GatewayProcess, tmp_path: Path) -> None:
    async with speaker(gateway, "modern") as client:
        cut = await answer(client, tmp_path, {"content": [], "structuredContent": {"rows": ROWS}})
        preview = cut["content"][0]["text"]
        found = re.search(r'tool_execute (\{"toolKey": .*?), \.\.\.\}\}', preview)
        assert found is not None
        call = json.loads(found[1] + "}}")
        offset = re.search(r'"offset": (\d+)', preview)
        path = re.search(r'"select": "(.+?)"', preview)
        assert offset is not None
        assert path is not None
        for more in ({"offset": int(offset[1])}, {"select": path[1]}, {"search": "row 77"}):
            given = {**call, "arguments": {**call["arguments"], **more}}
            assert not (await client.call("tool_execute", given)).get("isError"), more


async def test_fields_and_lines_of_structured_content(gateway: GatewayProcess, tmp_path: Path) -> None:
    sent = {"content": [{"type": "text", "text": "a summary"}], "structuredContent": {"total": 1_000, "rows": ROWS}}
    async with speaker(gateway, "modern") as client:
        cut = await answer(client, tmp_path, sent)
        handle = cut["structuredContent"]["handle"]
        assert "{total: number, rows: [1,000 x {id: number, name: string, note: string}]}" in cut["content"][0]["text"]
        assert (await read(client, handle))["content"][0]["text"] == "a summary"
        spaced = await read(client, f" {handle}\n")
        assert (spaced["content"][0]["text"], spaced["structuredContent"]["handle"]) == ("a summary", handle)
        assert (await read(client, handle, select="rows[999].name"))["content"][0]["text"] == "row 999"
        names = (await read(client, handle, select="rows[*].name"))["content"][0]["text"]
        assert json.loads(names) == [row["name"] for row in ROWS]
        found = (await read(client, handle, select="rows[*].name", search="row 99"))["structuredContent"]
        assert "row 99" in found["result"][0]["text"]
        pages, offset = "", 0
        while offset is not None:
            page = (await read(client, handle, select="$", offset=offset))["structuredContent"]
            pages, offset = pages + page["result"], page.get("nextOffset")
        assert json.loads(pages) == sent["structuredContent"]
        missing = await read(client, handle, select="rows[*].price")
    assert error_code(missing) == "invalid_arguments"
    assert "{id: number, name: string, note: string}" in missing["content"][0]["text"]


async def test_search_names_lines_and_offsets(gateway: GatewayProcess, tmp_path: Path) -> None:
    whole = "\n".join(f"entry {number}: {'ERROR disk' if number % 1000 == 7 else 'fine'}" for number in range(5_000))
    async with speaker(gateway, "modern") as client:
        cut = await answer(client, tmp_path, text(whole))
        handle = cut["structuredContent"]["handle"]
        found = await read(client, handle, search="error DISK")
        none = await read(client, handle, search="no such words")
    matches = found["structuredContent"]["result"]
    assert [match["line"] for match in matches] == [8, 1008, 2008, 3008, 4008]
    assert all(whole[match["offset"] :].startswith(match["text"]) for match in matches)
    assert "line 1008, offset" in found["content"][0]["text"]
    assert none["structuredContent"]["result"] == []
    assert "No line" in none["content"][0]["text"]


async def test_text_and_structured_content_count_together(gateway: GatewayProcess, tmp_path: Path) -> None:
    half, bit_more = "x" * 19_990, "x" * 20_010
    async with speaker(gateway, "modern") as client:
        small = await answer(client, tmp_path, {**text(half), "structuredContent": {"a": half}})
        assert small["content"] == text(half)["content"]
        assert small["structuredContent"] == {"result": {"a": half}}
        large = await answer(client, tmp_path, {**text(bit_more), "structuredContent": {"a": bit_more}})
        assert "handle" in large["structuredContent"]
        assert len(json.dumps(large)) < 25_000
        exact = await answer(client, tmp_path, text("\u4e16" * 20_000, "\u4e16" * 20_000))  # bytes do not count
        assert len(exact["content"]) == 2
        over = await answer(client, tmp_path, text("\u4e16" * 20_000, "\u4e16" * 20_001))
        assert "handle" in over["structuredContent"]


async def test_other_blocks_and_marks_pass_unchanged(gateway: GatewayProcess, tmp_path: Path) -> None:
    long = {"type": "text", "text": "x" * 50_000}
    picture = {**IMAGE, "data": "A" * 400_000}
    async with speaker(gateway, "modern") as client:
        sent = {"content": [IMAGE, long, LINK, long, IMAGE], "isError": True, "_meta": {"vendor/a": 1}}
        cut = await answer(client, tmp_path, sent)
        only = await answer(client, tmp_path, {"content": [picture]})
    assert [block["type"] for block in cut["content"]] == ["image", "text", "resource_link", "image"]
    assert (cut["content"][0], cut["content"][2], cut["content"][3]) == (IMAGE, LINK, IMAGE)
    assert (cut["isError"], cut["_meta"]["vendor/a"]) == (True, 1)
    assert only["content"] == [picture]
    assert "structuredContent" not in only


@pytest.mark.parametrize("era", ERAS)
async def test_a_request_for_the_whole_and_flat_exposure_get_everything(
    gateway: GatewayProcess, tmp_path: Path, era: Era
) -> None:
    sent = {**text("x" * 50_000), "structuredContent": {"rows": ROWS}}
    async with speaker(gateway, era) as client, speaker(gateway, era, project="flat") as flat:
        whole = await answer(client, tmp_path, sent, meta={"pointsman/whole": True})
        assert whole["content"] == sent["content"]
        assert whole["structuredContent"] == {"result": sent["structuredContent"]}
        cut = await answer(client, tmp_path, sent, meta={"pointsman/whole": "yes"})
        assert "handle" in cut["structuredContent"]
        named = await flat.call("notes-flat__answer", {"file": str(tmp_path / "answer.json")})
    assert (named["content"], named["structuredContent"]) == (sent["content"], sent["structuredContent"])


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"handle": 5},
        {"handle": ""},
        {"handle": "a" * 32, "offset": -1},
        {"handle": "a" * 32, "offset": "five"},
        {"handle": "a" * 32, "offset": "9" * 1_000},
        {"handle": "a" * 32, "offset": True},
        {"handle": "a" * 32, "search": ""},
        {"handle": "a" * 32, "search": "x" * 201},
        {"handle": "a" * 32, "select": ["a"]},
        {"handle": "a" * 32, "select": "x" * 501},
        {"handle": "a" * 32, "limit": 5},
    ],
)
async def test_arguments_that_do_not_fit_are_explained(gateway: GatewayProcess, arguments: dict[str, Any]) -> None:
    async with speaker(gateway, "modern") as client:
        refused = await client.call("tool_execute", {"toolKey": RESULT, "arguments": arguments})
    assert error_code(refused) == "invalid_arguments"
    assert "`" in refused["content"][0]["text"]


async def test_an_offset_behind_the_end_and_an_unknown_handle(gateway: GatewayProcess, tmp_path: Path) -> None:
    async with speaker(gateway, "modern") as client:
        cut = await answer(client, tmp_path, text("x" * 50_000))
        behind = await read(client, cut["structuredContent"]["handle"], offset=50_000)
        unknown = [await read(client, handle) for handle in ("a" * 32, "../../request.key", "x" * 100_000)]
    assert error_code(behind) == "invalid_arguments"
    assert "50,000 characters" in behind["content"][0]["text"]
    assert [error_code(one) for one in unknown] == ["unknown_result"] * 3
    assert all("If the tool only reads, call it again" in one["content"][0]["text"] for one in unknown)
    assert len(unknown[2]["content"][0]["text"]) < 500


async def test_only_the_same_token_and_project_read_a_result(gateway: GatewayProcess, tmp_path: Path) -> None:
    async with (
        speaker(gateway, "modern") as laptop,
        speaker(gateway, "modern", project="b") as laptop_b,
        speaker(gateway, "modern", token=SECRETS["phone"]) as phone,
    ):
        cut = await answer(laptop, tmp_path, text("x" * 50_000))
        handle = cut["structuredContent"]["handle"]
        assert error_code(await read(phone, handle)) == "unknown_result"
        assert error_code(await read(laptop_b, handle)) == "unknown_result"
        assert error_code(await read(laptop, handle)) is None


async def test_the_tool_is_never_discovered_and_reading_is_a_row(gateway: GatewayProcess, tmp_path: Path) -> None:
    async with speaker(gateway, "modern") as client:
        found = await client.call("tool_discovery", {"query": ["pointsman result", "read a stored result"]})
        assert RESULT not in json.dumps(found)
        cut = await answer(client, tmp_path, text("x" * 50_000))
        await read(client, cut["structuredContent"]["handle"], search="y")
        await read(client, "a" * 32)
        other = await client.call("tool_execute", {"toolKey": "pointsman:other"})
    assert error_code(other) == "unknown_tool"
    rows = await audit_rows(gateway.state_dir, "--tool", RESULT)
    assert {row["kind"] for row in rows} == {"execute"}
    assert [(row["outcome"], row.get("code")) for row in rows[-2:]] == [("ok", None), ("error", "unknown_result")]
    [made] = (await audit_rows(gateway.state_dir, "--tool", "notes:answer"))[-1:]
    assert made["bytes"] > 50_000


async def test_rights_and_tokens_that_go_take_the_results_with_them(tmp_path: Path) -> None:
    async with (
        storing_gateway(tmp_path) as gateway,
        speaker(gateway, "modern") as laptop,
        speaker(gateway, "modern", token=SECRETS["phone"]) as phone,
    ):
        handle = (await answer(laptop, tmp_path, text("x" * 50_000)))["structuredContent"]["handle"]
        await answer(phone, tmp_path, text("x" * 50_000))
        folder = gateway.state_dir / "results"
        assert len(list(folder.iterdir())) == 2
        forbidden = config()
        forbidden["servers"]["notes"] = {**forbidden["servers"]["notes"], "tool_permissions": {"answer": False}}
        gateway.write_config(forbidden)
        async with asyncio.timeout(30):
            while error_code(await read(laptop, handle)) != "unknown_result":
                await asyncio.sleep(0.05)
        gateway.write_config(config())
        async with asyncio.timeout(30):
            while error_code(await read(laptop, handle)) is not None:
                await asyncio.sleep(0.05)
        without_phone = config()
        del without_phone["tokens"]["phone"]
        gateway.write_config(without_phone)
        async with asyncio.timeout(30):
            while len(list(folder.iterdir())) != 1:
                await asyncio.sleep(0.05)
        assert error_code(await read(laptop, handle)) is None
        disabled = config()
        disabled["servers"]["notes"] = {**disabled["servers"]["notes"], "enabled": False}
        gateway.write_config(disabled)
        async with asyncio.timeout(30):
            while error_code(await read(laptop, handle)) != "unknown_result":
                await asyncio.sleep(0.05)


async def test_results_survive_a_restart(tmp_path: Path) -> None:
    async with (
        storing_gateway(tmp_path) as gateway,
        speaker(gateway, "modern") as client,
    ):
        handle = (await answer(client, tmp_path, text("x" * 50_000)))["structuredContent"]["handle"]
    async with (
        storing_gateway(tmp_path) as gateway,
        speaker(gateway, "modern") as client,
    ):
        assert (await read(client, handle))["content"][0]["text"] == "x" * 20_000
        for file in (gateway.state_dir / "results").rglob("*"):
            assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("limits", [{"result_preview_chars": 0}, {"result_store_bytes": 1}])
async def test_without_previews_or_room_every_answer_is_whole(tmp_path: Path, limits: dict[str, int]) -> None:
    async with (
        gateway_process(tmp_path, config(**limits), token=SECRETS["laptop"]) as gateway,
        speaker(gateway, "modern") as client,
    ):
        whole = await answer(client, tmp_path, text("x" * 500_000))
        assert whole["content"] == text("x" * 500_000)["content"]
        assert not (gateway.state_dir / "results").exists()


async def test_a_small_limit_cuts_only_what_becomes_shorter(tmp_path: Path) -> None:
    async with (
        storing_gateway(tmp_path, result_preview_chars=100) as gateway,
        speaker(gateway, "modern") as client,
    ):
        short = await answer(client, tmp_path, text("x" * 900))
        assert short["content"] == text("x" * 900)["content"]
        cut = await answer(client, tmp_path, text("x" * 5_000))
        assert len(json.dumps(cut)) < 5_000
        assert len((await read(client, cut["structuredContent"]["handle"]))["content"][0]["text"]) == 1_000


async def test_many_large_answers_and_reads_at_once_all_end(tmp_path: Path) -> None:
    nested = json.dumps([[]] * 100_000)
    sent = text(nested, "y" * 2_000_000)
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(sent))
    call = {"toolKey": "notes:answer", "arguments": {"file": str(file)}}
    async with (
        storing_gateway(tmp_path) as gateway,
        speaker(gateway, "modern") as client,
        speaker(gateway, "modern", token=SECRETS["phone"]) as phone,
        asyncio.timeout(120),
    ):
        handle = (await client.call("tool_execute", call))["structuredContent"]["handle"]
        reads = [read(client, handle, search="z" * 200) for _ in range(8)]
        calls = [client.call("tool_execute", call) for _ in range(3)]
        cut, *answers = await asyncio.gather(answer(phone, tmp_path, text("x" * 50_000)), *reads, *calls)
    assert "handle" in cut["structuredContent"]
    for one in answers:
        assert error_code(one) in (None, "rate_limited")


@pytest.mark.parametrize(
    ("tool_key", "form"),
    [
        *((key, "qualified_name") for key in ("pointsman__result", "mcp__pointsman__result", "pointsman.result")),
        ("mcp__pointsman__pointsman:result", "qualified_name"),
        ("mcp__gateway__pointsman:result", "qualified_name"),
        ("`pointsman:result`", "trimmed"),
        ("result", "bare_name"),
    ],
)
async def test_the_tool_is_read_in_other_forms(
    gateway: GatewayProcess, tmp_path: Path, tool_key: str, form: str
) -> None:
    async with speaker(gateway, "modern") as client:
        cut = await answer(client, tmp_path, text("0123456789" * 5_000))
        asked = {"handle": cut["structuredContent"]["handle"], "offset": "5"}
        for given in (
            {"toolKey": tool_key, "arguments": asked},
            {"toolKey": tool_key, **asked},
            {"toolKey": tool_key, "arguments": json.dumps(asked)},
        ):
            read = await client.call("tool_execute", given)
            assert read["structuredContent"]["result"].startswith("56789"), given
        row = (await audit_rows(gateway.state_dir, "--tool", RESULT))[-1]
        assert row["readAs"] == f"json_text+{form}"


@pytest.mark.parametrize("inner", [{"toolKey": RESULT}, {"toolKey": "pointsman__result"}, {}])
async def test_a_repeated_call_of_the_tool_is_unwrapped(
    gateway: GatewayProcess, tmp_path: Path, inner: dict[str, str]
) -> None:
    async with speaker(gateway, "modern") as client:
        cut = await answer(client, tmp_path, text("0123456789" * 5_000))
        asked = {"handle": cut["structuredContent"]["handle"], "offset": 5.0}
        read = await client.call("tool_execute", {"toolKey": RESULT, "arguments": inner | {"arguments": asked}})
        assert read["structuredContent"]["result"].startswith("56789")
        assert (await audit_rows(gateway.state_dir, "--tool", RESULT))[-1]["readAs"] == "envelope"


async def test_a_search_behind_the_end_is_refused(gateway: GatewayProcess, tmp_path: Path) -> None:
    async with speaker(gateway, "modern") as client:
        cut = await answer(client, tmp_path, text("x" * 50_000))
        behind = await read(client, cut["structuredContent"]["handle"], search="x", offset=50_001)
        assert error_code(behind) == "invalid_arguments"
        assert "behind the end" in behind["content"][0]["text"]
