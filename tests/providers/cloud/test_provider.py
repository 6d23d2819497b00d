"""Cloud search over real HTTP, against services of every kind of bad behaviour."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pointsman.config.model import CloudSearch
from pointsman.providers.base import SearchRequest, ToolDocument
from pointsman.providers.cloud import http as cloud_http
from pointsman.providers.cloud.errors import CloudError
from pointsman.providers.cloud.http import MAX_ANSWER_BYTES, MAX_CONNECTIONS
from pointsman.providers.cloud.provider import CloudSearchProvider
from tests.catalog.sources import Clock
from tests.servers.search_service import (
    TOKEN,
    Asked,
    Behave,
    answer,
    http,
    names_the_first_tool,
    never_ends,
    nobody_listens,
    says_nothing,
    search_service,
    sends,
)

TOOLS = tuple(ToolDocument(f"shop:{name}", name, "Shop", f"Can {name}", {}) for name in ("paint", "erase"))
LONG_S = 60.0  # bounds against hanging


def asking(project: str | None = None, tools: tuple[ToolDocument, ...] = TOOLS) -> SearchRequest:
    return SearchRequest(("paint a door",), None, tools, 5, project, "request-1")


@asynccontextmanager
async def provider(settings: CloudSearch | None, **more: Any) -> AsyncIterator[CloudSearchProvider]:
    """Its clock stands still, so that no rest is ever over by itself."""
    made = CloudSearchProvider(settings, **{"clock": Clock(), "probe_patience_s": LONG_S, **more})
    try:
        async with asyncio.timeout(LONG_S):
            yield made
    finally:
        await made.close()


async def why_not(cloud: CloudSearchProvider, project: str | None = None) -> str:
    with pytest.raises(CloudError) as caught:
        await cloud.search(asking(project))
    return caught.value.code


def state(cloud: CloudSearchProvider, project: str | None = None) -> str:
    return cloud.state_for(project)[0]


async def test_a_slow_load_of_the_client_is_not_added_to_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller leaves in time; the service, which has done nothing wrong, is not blamed and is asked later."""
    transport, loaded = cloud_http._transport, threading.Event()

    def slow() -> Any:
        assert loaded.wait(LONG_S)
        return transport()

    monkeypatch.setattr(cloud_http, "_transport", slow)
    async with (
        search_service(names_the_first_tool) as service,
        provider(service.settings(timeout_s=0.2)) as cloud,
    ):
        try:
            assert await why_not(cloud) == "cloud_timeout"
            assert state(cloud) == "closed"
        finally:
            loaded.set()
        await service.until_asked(1)


# What is asked, and of whom


async def test_a_service_is_asked_with_our_credential_the_project_and_the_requests_id() -> None:
    async with search_service(names_the_first_tool) as service, provider(service.settings()) as cloud:
        [hit] = await cloud.search(asking("red"))
    assert (hit.tool_key, hit.relevance) == ("shop:paint", 0.9)
    [asked] = service.asked
    assert asked.path == "/catalog/search"
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["x-pointsman-project"] == "red"
    assert asked.headers["x-request-id"] == "request-1"
    assert asked.headers["content-type"] == "application/json"
    assert asked.question["query"] == ["paint a door"]


async def test_the_url_may_have_a_path_and_end_with_a_slash() -> None:
    async with search_service(names_the_first_tool) as service:
        service.url += "/deep/"
        async with provider(service.settings()) as cloud:
            await cloud.search(asking())
    assert service.asked[0].path == "/deep/catalog/search"


async def test_connections_are_used_again() -> None:
    async with search_service(names_the_first_tool) as service, provider(service.settings()) as cloud:
        for _ in range(3):
            await cloud.search(asking())
    assert [asked.connection for asked in service.asked] == [1, 1, 1]


async def test_a_large_list_goes_packed_and_a_packed_answer_is_read() -> None:
    many = tuple(ToolDocument(f"shop:{number}", "x", "Shop", "words " * 50, {}) for number in range(200))
    packed = gzip.compress(json.dumps({"results": [{"toolKey": "shop:7", "relevance": 0.5}]}).encode())
    behave = sends(http(packed, "200 OK", "Content-Encoding: gzip"))
    async with search_service(behave) as service, provider(service.settings()) as cloud:
        [hit] = await cloud.search(asking(tools=many))
    assert hit.tool_key == "shop:7"
    [asked] = service.asked
    assert asked.headers["content-encoding"] == "gzip"
    assert len(asked.raw) < 16_384
    assert [tool["toolKey"] for tool in asked.question["tools"]] == [f"shop:{number}" for number in range(200)]


async def test_where_there_are_no_tools_nobody_is_asked() -> None:
    async with search_service(names_the_first_tool) as service, provider(service.settings()) as cloud:
        assert await cloud.search(asking(tools=())) == []
    assert service.asked == []


async def test_cookies_are_not_kept() -> None:
    body = json.dumps({"results": []}).encode()
    behave = sends(http(body, "200 OK", "Set-Cookie: who=you; Path=/"))
    async with search_service(behave) as service, provider(service.settings()) as cloud:
        await cloud.search(asking())
        await cloud.search(asking())
    assert all("cookie" not in asked.headers for asked in service.asked)


# What a service can do wrong


def chunked(*chunks: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)


BOMB = gzip.compress(b" " * 33_554_432, 1)  # 32 MB in 150 KB
GZIP = "Content-Encoding: gzip"
OK = b'{"results": []}'
FAULTS: dict[str, tuple[Behave, str]] = {
    "closed at once": (sends(b"", then_closes=True), "cloud_disconnected"),
    "closed in the head": (sends(b"HTTP/1.1 200 OK\r\nConte", then_closes=True), "cloud_disconnected"),
    "closed in the body": (sends(http(OK)[:-3], then_closes=True), "cloud_disconnected"),
    "closed between chunks": (sends(chunked(b"{"), then_closes=True), "cloud_disconnected"),
    "not HTTP": (sends(b"220 mail.example ESMTP\r\n\r\n", then_closes=True), "cloud_disconnected"),
    "10 MB": (sends(http(b" " * 10_485_760)), "cloud_oversized"),
    "10 MB in chunks": (sends(chunked(*[b" " * 65_536] * 160, b"")), "cloud_oversized"),
    "a gzip bomb": (sends(http(BOMB, "200 OK", GZIP)), "cloud_oversized"),
    "a bomb in a bomb": (
        sends(http(gzip.compress(BOMB), "200 OK", "Content-Encoding: gzip, gzip")),
        "cloud_malformed",
    ),
    "gzip that is none": (sends(http(OK, "200 OK", GZIP)), "cloud_malformed"),
    "gzip cut off": (sends(http(gzip.compress(OK)[:-9], "200 OK", GZIP)), "cloud_malformed"),
    "another packing": (sends(http(OK, "200 OK", "Content-Encoding: br")), "cloud_malformed"),
    "invalid UTF-8": (sends(http(b'{"results": [], "x": "\xff"}')), "cloud_malformed"),
    "broken JSON": (sends(http(b'{"results": [')), "cloud_malformed"),
    "wrong types": (sends(answer(("shop:paint", "0.9"))), "cloud_malformed"),
    "NaN": (sends(http(b'{"results": [{"toolKey": "shop:paint", "relevance": NaN}]}')), "cloud_malformed"),
    "only invented tools": (sends(answer(("shop:explode", 1.0), ("bank:pay", 1.0))), "cloud_invented"),
    "no content": (sends(b"HTTP/1.1 204 No Content\r\n\r\n"), "cloud_http"),
    "bad request": (sends(http(b"{}", "400 Bad Request")), "cloud_http"),
    "unauthorized": (sends(http(b"{}", "401 Unauthorized")), "cloud_unauthorized"),
    "forbidden": (sends(http(b"{}", "403 Forbidden")), "cloud_forbidden"),
    "not found": (sends(http(b"{}", "404 Not Found")), "cloud_not_found"),
    "misdirected": (sends(http(b"{}", "421 Misdirected Request")), "cloud_misdirected"),
    "too large": (sends(http(b"{}", "413 Content Too Large")), "cloud_too_large"),
    "too many": (sends(http(b"{}", "429 Too Many Requests", "Retry-After: 9")), "cloud_rate_limited"),
    "broken": (sends(http(b"{}", "500 Oops")), "cloud_http"),
    "away": (sends(http(b"{}", "503 Later")), "cloud_http"),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_each_failure_has_its_code_and_the_third_in_a_row_opens_the_breaker(fault: str) -> None:
    behave, code = FAULTS[fault]
    async with search_service(behave) as service, provider(service.settings()) as cloud:
        assert [await why_not(cloud) for _ in range(5)] == [code, code, code, "cloud_open", "cloud_open"]
        assert state(cloud) == "open"
        assert len(service.asked) == 3


async def test_a_gzip_bomb_is_stopped_while_it_is_unpacked() -> None:
    async with search_service(FAULTS["a gzip bomb"][0]) as service, provider(service.settings()) as cloud:
        await why_not(cloud)  # loads what is needed
        tracemalloc.start()
        try:
            assert await why_not(cloud) == "cloud_oversized"
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 8 * MAX_ANSWER_BYTES


async def test_a_redirect_is_not_followed() -> None:
    async with search_service(names_the_first_tool) as elsewhere:
        target = f"Location: {elsewhere.url}/catalog/search"
        behave = sends(http(b"", "307 Temporary Redirect", target))
        async with search_service(behave) as service, provider(service.settings()) as cloud:
            assert await why_not(cloud) == "cloud_redirected"
        assert elsewhere.asked == []


async def test_a_refused_connection_is_told() -> None:
    async with nobody_listens() as url:
        settings = CloudSearch.model_validate({"url": url, "token": TOKEN})
        async with provider(settings) as cloud:
            with pytest.raises(CloudError, match="refused the connection") as caught:
                await cloud.search(asking())
    assert caught.value.code == "cloud_unreachable"


async def test_a_service_that_speaks_no_tls_where_it_should_is_told() -> None:
    def speaks_plainly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(http(b"{}", "400 Bad Request"))
        writer.close()

    async with await asyncio.start_server(speaks_plainly, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with provider(CloudSearch.model_validate({"url": url, "token": TOKEN})) as cloud:
            with pytest.raises(CloudError, match="TLS") as caught:
                await cloud.search(asking())
    assert caught.value.code == "cloud_unreachable"


@pytest.mark.parametrize("behave", [says_nothing, never_ends])
async def test_one_deadline_holds_for_the_whole_call_and_one_time_out_opens_the_breaker(behave: Behave) -> None:
    async with search_service(behave) as service, provider(service.settings(timeout_s=0.3)) as cloud:
        await cloud.prepare()  # loading the client is not part of the deadline, and may take longer
        assert await why_not(cloud) == "cloud_timeout"
        assert await why_not(cloud) == "cloud_open"
        assert len(service.asked) <= 1


async def test_the_largest_answer_that_is_taken_is_taken() -> None:
    padding = b" " * (MAX_ANSWER_BYTES - len(OK))
    async with search_service(sends(http(OK + padding))) as service, provider(service.settings()) as cloud:
        assert await cloud.search(asking()) == []


async def test_tools_that_were_not_sent_are_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    behave = sends(answer(("shop:explode", 1.0), ("shop:erase", 0.4), ("shop:paint", 7)))
    async with search_service(behave) as service, provider(service.settings()) as cloud:
        for _ in range(2):
            hits = await cloud.search(asking())
        status = cloud.status()
    assert [(hit.tool_key, hit.relevance) for hit in hits] == [("shop:paint", 1.0), ("shop:erase", 0.4)]
    assert status is not None
    assert status.invented == 2
    assert len([line for line in caplog.messages if "not in the request" in line]) == 1


@pytest.mark.parametrize(
    ("status", "where"),
    [
        ("401 No", "issued"),
        ("403 No", "in project `red`"),
        ("404 No", "search.url`"),
        ("421 No", "`search_api.listen.allowed_hosts`"),
        ("308 No", "own address"),
    ],
)
async def test_what_the_operator_must_mend_is_logged_once(
    status: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with search_service(sends(http(b"{}", status))) as service, provider(service.settings()) as cloud:
        for _ in range(3):
            await why_not(cloud, "red")
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "Fix the configuration" in line
    assert where in line
    assert TOKEN not in caplog.text


# The breaker


async def test_a_time_out_releases_all_who_wait_for_the_same_service() -> None:
    async with search_service(says_nothing) as service, provider(service.settings(timeout_s=1.5)) as cloud:
        first = asyncio.create_task(why_not(cloud))
        await asyncio.sleep(0.75)  # so that the others have time left when the first has none
        others = await asyncio.gather(*(why_not(cloud) for _ in range(9)))
        assert await first == "cloud_timeout"
        assert "cloud_open" in others


async def test_that_it_opened_is_logged_once_however_many_calls_failed(caplog: pytest.LogCaptureFixture) -> None:
    all_are_there = asyncio.Event()

    async def fails_them_together(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await all_are_there.wait()
        writer.write(http(b"{}", "500 Oops"))

    async with search_service(fails_them_together) as service, provider(service.settings()) as cloud:
        calls = [asyncio.create_task(why_not(cloud)) for _ in range(5)]
        await service.until_asked(5)
        all_are_there.set()
        assert await asyncio.gather(*calls) == ["cloud_http"] * 5
    assert len([line for line in caplog.messages if "the local search answers for the next" in line]) == 1


async def test_a_hanging_service_is_found_out_though_its_clients_leave_early() -> None:
    async with search_service(says_nothing) as service, provider(service.settings(timeout_s=0.5)) as cloud:
        impatient = asyncio.create_task(cloud.search(asking()))
        await service.until_asked(1)
        impatient.cancel()
        while state(cloud) != "open":
            await asyncio.sleep(0.01)


async def test_a_project_that_is_refused_does_not_cost_the_others_their_search() -> None:
    async def refuses_red(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if asked.headers["x-pointsman-project"] == "red":
            writer.write(http(b"{}", "403 Forbidden"))
        else:
            await names_the_first_tool(asked, writer)

    async with search_service(refuses_red) as service, provider(service.settings()) as cloud:
        assert [await why_not(cloud, "red") for _ in range(4)] == [*["cloud_forbidden"] * 3, "cloud_open"]
        assert len(await cloud.search(asking("blue"))) == 1
        assert cloud.state_for("blue") == ("closed", None)
        assert cloud.state_for("red") == ("open", "refuses the gateway's credential for this project (HTTP 403)")
        status = cloud.status()
        assert status is not None
        assert (status.state, status.refused_projects) == ("closed", 1)


async def test_no_more_calls_are_under_way_than_there_are_connections() -> None:
    async with search_service(says_nothing) as service, provider(service.settings()) as cloud:
        waiting = [asyncio.create_task(cloud.search(asking())) for _ in range(MAX_CONNECTIONS)]
        await service.until_asked(MAX_CONNECTIONS)
        assert await why_not(cloud) == "cloud_busy"
        assert state(cloud) == "closed"
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)


# Changes of the configuration


async def test_without_a_service_that_is_the_reason() -> None:
    async with provider(None) as cloud:
        assert await why_not(cloud) == "cloud_unconfigured"
        assert state(cloud) == "unconfigured"
        assert cloud.status() is None


async def test_a_new_service_starts_afresh_and_the_old_one_finishes_its_calls() -> None:
    may_answer = asyncio.Event()

    async def answers_later(asked: Asked, writer: asyncio.StreamWriter) -> None:
        await may_answer.wait()
        writer.write(answer(("shop:erase", 0.5)))

    async with (
        search_service(answers_later) as old,
        search_service(names_the_first_tool) as new,
        provider(old.settings()) as cloud,
    ):
        under_way = asyncio.create_task(cloud.search(asking()))
        await old.until_asked(1)
        cloud.configure(new.settings())
        assert [hit.tool_key for hit in await cloud.search(asking())] == ["shop:paint"]
        may_answer.set()
        assert [hit.tool_key for hit in await under_way] == ["shop:erase"]
        while old.connections_open:
            await asyncio.sleep(0.01)
    assert len(new.asked) == 1


async def test_a_changed_service_closes_the_breaker_and_the_same_one_does_not() -> None:
    async with search_service(sends(http(b"{}", "500 Oops"))) as service, provider(service.settings()) as cloud:
        for _ in range(3):
            await why_not(cloud)
        cloud.configure(service.settings())
        assert state(cloud) == "open"
        cloud.configure(service.settings(timeout_s=29))
        assert state(cloud) == "closed"


async def test_what_was_counted_stays_counted_when_the_service_is_changed() -> None:
    only_invented = sends(answer(("shop:explode", 1.0)))
    async with search_service(only_invented) as service, provider(service.settings()) as cloud:
        for timeout_s in (28, 29, 30):
            cloud.configure(service.settings(timeout_s=timeout_s))
            for _ in range(3):
                await why_not(cloud)
        status = cloud.status()
    assert status is not None
    assert (status.opened, status.invented) == (3, 9)


async def test_what_is_under_way_ends_with_the_provider() -> None:
    async with search_service(says_nothing) as service:
        async with provider(service.settings()) as cloud:
            calls = [asyncio.create_task(why_not(cloud))]
            await service.until_asked(1)
            cloud.configure(service.settings(timeout_s=29))
            calls.append(asyncio.create_task(why_not(cloud)))
            await service.until_asked(2)
        assert await asyncio.gather(*calls) == ["cloud_open", "cloud_open"]
