"""Reads leave rows as calls do: resources, prompts, completions and subscriptions, in both eras, however they end."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.gateway_process import GatewayProcess, gateway_process
from tests.router.conftest import audit_rows
from tests.router.gateway.test_resources import library
from tests.router.raw_client import ERAS, WAIT_S, Era, Speaker, speaker

BOOK = "pointsman+lib+book://shelf/1"
READS = frozenset(
    {"resources/read", "resources/subscribe", "resources/unsubscribe", "prompts/get", "completion/complete"}
)
GREET = {"name": "lib__greet", "arguments": {"who": "Ada Lovelace"}}
COMPLETE = {"ref": {"type": "ref/prompt", "name": "lib__greet"}, "argument": {"name": "who", "value": "Ada Lovelace"}}


@dataclass(frozen=True)
class Place:
    gateway: GatewayProcess
    client: Speaker
    trace: Path

    def asked(self) -> list[str]:
        """The reads that reached the library, and the cancellations."""
        methods = [json.loads(line)["method"] for line in self.trace.read_text().splitlines()]
        return [one for one in methods if one in READS or one == "cancelled"]

    async def rows(self, *options: str) -> list[dict[str, Any]]:
        return await audit_rows(self.gateway.state_dir, *options)

    async def until_rows(self, count: int) -> list[dict[str, Any]]:
        async with asyncio.timeout(WAIT_S):
            while len(rows := [row for row in await self.rows() if row["outcome"]]) < count:
                await asyncio.sleep(0.05)
        return rows


@asynccontextmanager
async def a_library(
    folder: Path, era: Era, *, server_era: Era = "legacy", capabilities: Any = None, **config: Any
) -> AsyncIterator[Place]:
    trace = folder / "trace"
    lib = library("the library", server_era, "--trace", str(trace), timeouts={"call_s": 1})
    servers = {"lib": lib, **config.pop("servers", {})}
    async with (
        gateway_process(folder, {"servers": servers, **config}) as gateway,
        speaker(gateway, era, capabilities=capabilities) as client,
    ):
        yield Place(gateway, client, trace)


def said(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


@pytest.mark.parametrize("era", ERAS)
async def test_each_kind_of_read_has_its_row(tmp_path: Path, era: Era) -> None:
    gone = {"gone": {"command": "no-such-program-anywhere"}}
    async with a_library(tmp_path, era, servers=gone) as place:
        client = place.client
        await client.result("resources/read", {"uri": BOOK})
        await client.result("prompts/get", GREET)
        await client.result("completion/complete", COMPLETE)
        template = {"type": "ref/resource", "uri": "pointsman+lib+note://secret-place/{+path}", "name": "greet"}
        await client.result("completion/complete", {**COMPLETE, "ref": template})
        await client.error("resources/read", {"uri": "pointsman+lib+missing://secret-place"})
        await client.error("prompts/get", {"name": "lib__nothing"})
        await client.error("resources/read", {"uri": "pointsman+lib+note://hang"})
        await client.error("resources/read", {"uri": "pointsman+gone+note://here"})
        await client.error("resources/read", {"uri": "no://secret-place"})
        await client.error("prompts/get", {"name": "nobody__greet"})
        await client.error("resources/read", {"uri": "pointsman+lib+note://crash"})
        rows = await place.rows("--kind", "read")
    not_found = "-32002"  # as the server says it, whatever the client's era
    assert said(rows, "method", "outcome", "code", "serverId", "toolKey") == [
        ("resources/read", "ok", None, "lib", None),
        ("prompts/get", "ok", None, "lib", "lib:greet"),
        ("completion/complete", "ok", None, "lib", "lib:greet"),
        ("completion/complete", "ok", None, "lib", None),
        ("resources/read", "error", not_found, "lib", None),
        ("prompts/get", "error", "-32602", "lib", "lib:nothing"),
        ("resources/read", "timeout", "timeout", "lib", None),
        ("resources/read", "error", "server_unavailable", "gone", None),
        ("resources/read", "denied", "unknown_resource", None, None),
        ("prompts/get", "denied", "unknown_prompt", None, "nobody__greet"),
        ("resources/read", "error", "server_unavailable", "lib", None),
    ]
    assert {(row["token"], row["project"], row["client"]) for row in rows} == {("test", None, "speaker")}
    assert all(row["bytes"] > 20 for row in rows if row["outcome"] == "ok")
    assert "secret-place" not in str(rows)  # a URI may hold a secret
    assert "Lovelace" not in str(rows)  # arguments are recorded only if the configuration says so


@pytest.mark.parametrize("server_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_subscription_has_a_row_when_it_begins_and_when_it_ends(
    tmp_path: Path, era: Era, server_era: Era
) -> None:
    async with a_library(tmp_path, era, server_era=server_era) as place:
        async with place.client.stream(BOOK):
            pass
        if era == "legacy":
            await place.client.result("resources/unsubscribe", {"uri": BOOK})
        rows = await place.until_rows(2)
    assert said(rows, "kind", "method", "outcome", "serverId", "toolKey") == [
        ("read", "resources/subscribe", "ok", "lib", None),
        ("read", "resources/unsubscribe", "ok", "lib", None),
    ]


async def test_each_server_that_is_asked_for_a_resource_has_a_row(tmp_path: Path) -> None:
    servers = {name: library(name, prefix="") for name in ("first", "second")}
    async with (
        gateway_process(tmp_path, {"servers": servers}) as gateway,
        speaker(gateway, "modern") as client,
    ):
        await client.error("resources/read", {"uri": "missing://thing"})
        rows = await audit_rows(gateway.state_dir)
    assert said(rows, "serverId", "outcome", "code") == [("first", "error", "-32002"), ("second", "error", "-32002")]
    assert len({row["requestId"] for row in rows}) == 1


ANSWER = {"action": "accept", "content": {}}
CAN_ANSWER: dict[str, Any] = {"elicitation": {"form": {}}}


@pytest.mark.parametrize("server_era", ERAS)
async def test_each_round_of_questions_of_a_modern_client_is_a_row(tmp_path: Path, server_era: Era) -> None:
    async with a_library(tmp_path, "modern", server_era=server_era, capabilities=CAN_ANSWER) as place:
        first = await place.client.result("prompts/get", {"name": "lib__confirm"})
        answers = dict.fromkeys(first["inputRequests"], ANSWER)
        again = {"name": "lib__confirm", "inputResponses": answers, "requestState": first["requestState"]}
        result = await place.client.result("prompts/get", again)
        rows = await place.rows()
    assert "accept" in str(result["messages"])
    assert said(rows, "kind", "toolKey", "outcome") == [
        ("read", "lib:confirm", "input_required"),
        ("read", "lib:confirm", "ok"),
    ]


@pytest.mark.parametrize("server_era", ERAS)
async def test_a_legacy_client_answers_within_one_row(tmp_path: Path, server_era: Era) -> None:
    async with a_library(tmp_path, "legacy", server_era=server_era, capabilities=CAN_ANSWER) as place:
        result = await place.client.answering("prompts/get", {"name": "lib__confirm"}, ANSWER)
        rows = await place.rows()
    assert "accept" in str(result["messages"])
    assert said(rows, "kind", "toolKey", "outcome") == [("read", "lib:confirm", "ok")]


async def test_a_client_that_leaves_cancels_its_read_and_the_row_says_so(tmp_path: Path) -> None:
    async with a_library(tmp_path, "modern") as place:
        place.client.http.timeout = httpx2.Timeout(10, read=0.3)
        with pytest.raises(httpx2.ReadTimeout):
            await place.client.message("resources/read", {"uri": "pointsman+lib+note://hang"})
        [row] = await place.until_rows(1)
        assert place.asked() == ["resources/read", "cancelled"]
    assert (row["kind"], row["outcome"], row["serverId"]) == ("read", "cancelled", "lib")


async def test_a_refused_token_has_a_row_of_the_right_kind(tmp_path: Path) -> None:
    async with a_library(tmp_path, "modern") as place:
        place.client.headers["Authorization"] = "Bearer ptm_wrong"
        await place.client.error("resources/read", {"uri": BOOK})
        await place.client.error("prompts/get", GREET)
        rows = await place.rows()
    assert said(rows, "kind", "method", "outcome", "code", "token") == [
        ("read", "resources/read", "denied", "unauthorized", None),
        ("read", "prompts/get", "denied", "unauthorized", None),
    ]


@pytest.mark.parametrize("era", ERAS)
async def test_reads_are_refused_while_the_journal_cannot_be_written(tmp_path: Path, era: Era) -> None:
    async with a_library(tmp_path, era) as place:
        client = place.client
        if era == "legacy":
            await client.result("resources/subscribe", {"uri": BOOK})
        before = place.asked()
        requests: list[tuple[str, dict[str, Any]]] = [
            ("resources/read", {"uri": BOOK}),
            ("prompts/get", GREET),
            ("completion/complete", COMPLETE),
        ]
        if era == "legacy":
            requests += [
                ("resources/subscribe", {"uri": "pointsman+lib+book://shelf/2"}),
                ("resources/unsubscribe", {"uri": BOOK}),
            ]
        with full_disk(place.gateway.pid):
            for method, params in requests:
                error = await client.error(method, params)
                assert (error["code"], error["data"]) == (-32603, {"code": "audit_unavailable"}), method
            assert place.asked() == before
        await client.result("resources/read", {"uri": BOOK})
        assert place.asked() == [*before, "resources/read"]
        rows = await place.rows()
        assert await counted(place, "pointsman_audit_journal_failures_total") >= len(requests)
    assert [row["method"] for row in rows if row["outcome"] == "ok"] == place.asked()


@contextmanager
def full_disk(pid: int) -> Iterator[None]:
    """No file of that process may grow, so that its writes fail as they do on a full disk."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("era", ERAS)
async def test_a_kill_under_load_loses_no_acknowledged_read_and_no_intent(tmp_path: Path, era: Era) -> None:
    async with a_library(tmp_path, era) as place:
        acknowledged = 0

        async def keep_reading(method: str, params: dict[str, Any]) -> None:
            nonlocal acknowledged
            while True:
                acknowledged += "result" in await place.client.message(method, params)

        work = (("resources/read", {"uri": BOOK}), ("prompts/get", GREET), ("completion/complete", COMPLETE))
        readers = [asyncio.create_task(keep_reading(*work[number % 3])) for number in range(6)]
        async with asyncio.timeout(WAIT_S):
            while acknowledged < 100:
                await asyncio.sleep(0.01)
        await place.gateway.stop(signal.SIGKILL)
        await asyncio.gather(*readers, return_exceptions=True)
    rows = await place.rows()
    assert sum(row["outcome"] == "ok" for row in rows) >= acknowledged
    assert len(rows) >= len(place.asked())
    assert {row["outcome"] for row in rows} <= {"ok", "interrupted"}
    assert len({row["seq"] for row in rows}) == len(rows)


async def test_arguments_are_recorded_when_asked_for_with_secrets_masked(tmp_path: Path) -> None:
    secrets = "?token=hunter2&X-Amz-Signature=abcdef&edition=3"
    async with a_library(tmp_path, "modern", audit={"arguments": True}) as place:
        await place.client.result("resources/read", {"uri": f"{BOOK}{secrets}"})
        await place.client.result("prompts/get", {"name": "lib__greet", "arguments": {"who": "Ada", "password": "x9"}})
        secret = {"name": "password", "value": "hunter2"}
        await place.client.result("completion/complete", {**COMPLETE, "argument": secret})
        rows = await place.rows()
    assert [row["arguments"] for row in rows] == [
        {"uri": "book://shelf/1", "query": {"token": "***", "X-Amz-Signature": "***", "edition": "3"}},
        {"who": "Ada", "password": "***"},
        {"password": "***"},
    ]


async def test_reads_are_counted_by_server_and_method(tmp_path: Path) -> None:
    async with a_library(tmp_path, "modern") as place:
        for _ in range(2):
            await place.client.result("resources/read", {"uri": BOOK})
        await place.client.error("prompts/get", {"name": "lib__nothing"})
        await place.client.error("resources/read", {"uri": "no://such"})
        ok = await counted(place, "pointsman_reads_total", method="resources/read", outcome="ok", server="lib")
        failed = await counted(place, "pointsman_reads_total", method="prompts/get", outcome="error", code="-32602")
        timed = await counted(place, "pointsman_read_duration_seconds_count", server="lib", method="resources/read")
        refused = await counted(place, "pointsman_refused_total", kind="read", code="unknown_resource")
        calls = await counted(place, "pointsman_calls_total")
    assert (ok, failed, timed, refused, calls) == (2, 1, 2, 1, 0)


async def counted(place: Place, name: str, **labels: str) -> float:
    answer = await place.client.http.get(f"{place.gateway.base_url}/metrics", headers=place.gateway.headers)
    return sum(
        sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
