from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pointsman.config.model import Limits
from pointsman.router.downstream.connection import CallNotSentError, ConnectionLostError, SignInNeededError
from pointsman.router.downstream.http.sse import SseConnection, connect_sse
from pointsman.router.downstream.talk.handshake import WantedEra
from tests.router.downstream.stdio_parts import Heard, Person, text, tool_call
from tests.servers.sse_server import SseServer, sse_server

MIB = 1 << 20


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture
async def server() -> AsyncIterator[SseServer]:
    async with sse_server() as server:
        yield server


@asynccontextmanager
async def connected(
    server: SseServer, heard: Heard | None = None, limits: Limits | None = None, era: WantedEra = "auto"
) -> AsyncIterator[SseConnection]:
    heard = [] if heard is None else heard
    connection = await connect_sse(
        server.url,
        {"Authorization": "Bearer theirs"},
        era=era,
        limits=limits or Limits(),
        on_notification=lambda method, params: heard.append((method, params)),
    )
    try:
        yield connection
    finally:
        await connection.close()


async def refused(server: SseServer) -> str:
    with pytest.raises(ConnectionLostError) as caught:
        async with asyncio.timeout(30), connected(server):
            pass
    return str(caught.value)


async def test_calls_go_by_post_and_answers_come_by_the_stream(server: SseServer) -> None:
    async with connected(server) as connection:
        assert connection.introduction.era == "legacy"
        assert connection.introduction.version == "2024-11-05"
        results = await asyncio.gather(*(connection.request(tool_call("echo", {"n": n})) for n in range(30)))
    assert [result["structuredContent"]["n"] for result in results] == list(range(30))
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer theirs"}


class Tokens:
    """Fits `Authorizer`: a token that the server refuses at first, and a new one."""

    def __init__(self, server: SseServer) -> None:
        self._server = server
        self._token = "Bearer old"
        self.refusals: list[tuple[str | None, int]] = []

    async def header(self) -> str | None:
        return self._token

    async def after_refusal(self, sent: str | None, status: int, challenge: str | None) -> str | None:
        self.refusals.append((sent, status))
        self._server.stream_status, self._token = 200, "Bearer new"
        return self._token

    def refused_again(self) -> SignInNeededError:
        return SignInNeededError("it needs sign-in")


async def test_tokens_go_with_every_request_and_a_401_leads_to_one_more_attempt(server: SseServer) -> None:
    server.stream_status, tokens = 401, Tokens(server)
    connection = await connect_sse(
        server.url, {}, era="auto", limits=Limits(), on_notification=lambda method, params: None, authorizer=tokens
    )
    try:
        await connection.request(tool_call("echo", {"n": 1}))
    finally:
        await connection.close()
    assert tokens.refusals == [("Bearer old", 401)]
    assert [headers["Authorization"] for headers in server.headers[:1]] == ["Bearer old"]
    assert {headers["Authorization"] for headers in server.headers[1:]} == {"Bearer new"}


async def test_a_sign_in_that_has_ended_ends_the_connection_with_that_reason(server: SseServer) -> None:
    class Ended(Tokens):
        async def after_refusal(self, sent: str | None, status: int, challenge: str | None) -> str | None:
            raise self.refused_again()

    connection = await connect_sse(
        server.url,
        {},
        era="auto",
        limits=Limits(),
        on_notification=lambda method, params: None,
        authorizer=Ended(server),
    )
    try:
        server.post_status = 401
        for _ in range(2):  # the one that finds it, and one that comes later
            with pytest.raises(SignInNeededError):
                await connection.request(tool_call("echo"))
        with pytest.raises(SignInNeededError):
            await connection.ended()
    finally:
        await connection.close()


async def test_nothing_overtakes_the_end_of_the_handshake(server: SseServer) -> None:
    server.posts_wait_for = asyncio.Event()
    connecting = asyncio.create_task(
        connect_sse(server.url, {}, era="legacy", limits=Limits(), on_notification=lambda method, params: None)
    )
    while not server.seen:
        await asyncio.sleep(0.01)
    assert not connecting.done()
    server.posts_wait_for.set()
    await (await connecting).close()
    assert [message["method"] for message in server.seen] == ["initialize", "notifications/initialized"]


async def test_a_question_is_asked_and_answered(server: SseServer) -> None:
    person = Person()
    async with connected(server) as connection:
        result = await connection.request(tool_call("ask", person=person))
    assert result["structuredContent"]["answer"]["result"] == {"action": "accept"}


async def test_noise_and_a_second_endpoint_change_nothing(server: SseServer) -> None:
    async with connected(server) as connection:
        await connection.request(tool_call("noise"))
        assert await connection.request(tool_call("echo"))


async def test_what_belongs_to_no_call_is_noticed(server: SseServer) -> None:
    heard: Heard = []
    async with connected(server, heard) as connection:
        server.say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await connection.request(tool_call("echo"))
    assert heard == [("notifications/tools/list_changed", {})]


async def test_a_large_answer_arrives_whole(server: SseServer) -> None:
    async with connected(server) as connection:
        result = await connection.request(tool_call("large", {"bytes": 5 * MIB}))
    assert len(text(result)) == 5 * MIB


async def test_an_event_over_the_limit_ends_the_connection(server: SseServer) -> None:
    async with connected(server, limits=Limits(result_bytes=MIB)) as connection:
        with pytest.raises(ConnectionLostError, match="an event of more than 1048576 bytes"):
            await connection.request(tool_call("large", {"bytes": 2 * MIB}))


async def test_cancelling_a_call_tells_the_server(server: SseServer) -> None:
    async with connected(server) as connection:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await connection.request(tool_call("hang"))
        async with asyncio.timeout(30):
            while server.seen[-1]["method"] != "notifications/cancelled":
                await asyncio.sleep(0.01)
        assert server.seen[-1]["params"] == {"requestId": server.seen[-2]["id"]}


async def test_the_end_of_the_stream_fails_what_is_under_way(server: SseServer) -> None:
    async with connected(server) as connection:
        with pytest.raises(ConnectionLostError, match="its event stream ended"):
            await connection.request(tool_call("cut"))
        assert await connection.ended() == "its event stream ended"
        with pytest.raises(ConnectionLostError):
            await connection.request(tool_call("echo"))


async def test_a_refused_post_fails_its_own_call_only(server: SseServer) -> None:
    async with connected(server) as connection:
        server.post_status = 500
        with pytest.raises(ConnectionLostError, match="HTTP 500"):
            await connection.request(tool_call("echo"))
        server.post_status = 202
        assert await connection.request(tool_call("echo"))


async def test_a_session_that_the_server_forgot_ends_the_connection(server: SseServer) -> None:
    async with connected(server) as connection:
        before = asyncio.create_task(connection.request(tool_call("hang")))
        while not any(message.get("params", {}).get("name") == "hang" for message in server.seen):
            await asyncio.sleep(0.01)
        server.post_status = 404
        with pytest.raises(CallNotSentError, match="no longer knows our session"):
            await connection.request(tool_call("echo"))
        with pytest.raises(ConnectionLostError) as lost:
            await before
        assert not isinstance(lost.value, CallNotSentError)  # the server had taken it
        assert "no longer knows our session" in await connection.ended()


async def test_a_call_that_no_connection_takes_was_not_sent_and_the_connection_ends(server: SseServer) -> None:
    server.keeps_connections = False
    async with connected(server) as connection:
        await server.site.stop()
        with pytest.raises(CallNotSentError, match="it refused the connection"):
            await connection.request(tool_call("echo"))
        assert await connection.ended() == "it refused the connection"


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:1/messages", "//evil.example/messages", "https://127.0.0.1/"])
async def test_an_endpoint_at_another_origin_is_not_used(server: SseServer, endpoint: str) -> None:
    server.endpoint = endpoint
    assert "another origin" in await refused(server)
    assert server.seen == []


async def test_an_endpoint_that_is_no_url_is_refused(server: SseServer) -> None:
    server.endpoint = "http://[broken"
    assert await refused(server) == "the endpoint that it named is not a URL"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_are_refused(server: SseServer, status: int) -> None:
    server.stream_status = status
    assert "redirect" in await refused(server)


async def test_an_answer_that_is_no_event_stream_is_named(server: SseServer) -> None:
    server.stream_status = 405
    assert "HTTP 405" in await refused(server)
    server.stream_status, server.content_type = 200, "text/html"
    assert "is `transport: sse` right for it?" in await refused(server)


async def test_a_server_that_is_not_there_is_named(server: SseServer) -> None:
    server.url = "http://127.0.0.1:1/sse"
    assert await refused(server) == "it refused the connection"


async def test_the_modern_era_has_no_such_transport(server: SseServer) -> None:
    with pytest.raises(ConnectionLostError, match="remove `era: modern`"):
        async with connected(server, era="modern"):
            pass


async def test_giving_up_on_a_silent_server_leaves_nothing_behind(server: SseServer) -> None:
    server.posts_wait_for = asyncio.Event()  # never set: the handshake cannot end
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), connected(server):
            pass
    async with asyncio.timeout(30):
        while server.open_streams:
            await asyncio.sleep(0.01)
    assert not [task for task in asyncio.all_tasks() if "SseConnection" in repr(task.get_coro())]
