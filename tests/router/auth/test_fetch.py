"""Documents that others name are fetched within bounds, and never from inside networks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

import pytest

from pointsman.router.auth.fetch import PUBLIC, Answer, FetchError, Reach, checked_url, fetch_json, is_public

HERE = Reach(frozenset({"127.0.0.1"}))
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n"
PATIENCE_S = 30.0

Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    """Answers each connection as `respond` says, and keeps what it was sent."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.port = 0
        self.gone = asyncio.Event()  # a client left before the answer was whole

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/document"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            self.bodies.append(await reader.readexactly(int(length or 0)))
            await self._respond(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.gone.set()
        finally:
            writer.close()


@asynccontextmanager
async def raw_server(respond: Respond, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[RawServer]:
    raw = RawServer(respond)
    server = await asyncio.start_server(raw.serve, host, port)
    raw.port = server.sockets[0].getsockname()[1]
    try:
        yield raw
    finally:
        server.close()


def sends(data: bytes) -> Respond:
    async def respond(writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()

    return respond


def with_body(body: bytes, head: bytes = HEAD) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def answers(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return addresses

    return resolve


async def fetched(data: bytes, **options: object) -> Answer:
    async with asyncio.timeout(PATIENCE_S), raw_server(sends(data)) as raw:
        return await fetch_json(raw.url, HERE, **options)  # type: ignore[arg-type]


async def test_a_json_object_comes_with_its_status_and_headers() -> None:
    answer = await fetched(with_body(b'{"issuer": "x"}', HEAD + b"Cache-Control: max-age=60\r\n"))
    assert (answer.status, answer.ok, answer.document) == (200, True, {"issuer": "x"})
    assert answer.headers["cache-control"] == "max-age=60"


async def test_a_form_and_a_json_body_are_sent() -> None:
    async with raw_server(sends(with_body(b"{}"))) as raw:
        await fetch_json(raw.url, HERE, method="POST", form={"code": "a b"}, headers={"Authorization": "Basic x"})
        await fetch_json(raw.url, HERE, method="POST", body={"client_name": "p"})
    assert raw.bodies[0] == b"code=a+b"
    assert b"Authorization: Basic x" in raw.heads[0]
    assert json.loads(raw.bodies[1]) == {"client_name": "p"}


async def test_the_json_of_an_error_is_kept_and_other_content_of_an_error_is_not() -> None:
    refused = await fetched(with_body(b'{"error": "invalid_grant"}', HEAD.replace(b"200 OK", b"400 Bad")))
    assert (refused.ok, refused.document) == (False, {"error": "invalid_grant"})
    page = HEAD.replace(b"200 OK", b"404 No").replace(b"application/json", b"text/html")
    assert (await fetched(with_body(b"<h1>no</h1>", page))).document == {}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n", "redirects"),
        (b"HTTP/1.1 307 Go\r\nLocation: https://example.com/\r\nContent-Length: 0\r\n\r\n", "redirects"),
        (with_body(b"hello", HEAD.replace(b"application/json", b"text/plain")), "not JSON"),
        (with_body(b"hello"), "not a JSON object"),
        (with_body(b"[1]"), "not a JSON object"),
        (with_body(b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"), "not a JSON object"),
        (with_body(b'{"a": "' + b"x" * 70_000 + b'"}'), "more than 65536 bytes"),
        (HEAD + b"Content-Length: 99999999999\r\n\r\n" + b" " * 70_000, "more than 65536 bytes"),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", "compressed"),
        (HEAD + b"Content-Length: 100\r\n\r\n{", "before its answer was whole"),
        (HEAD + b"X-Long: " + b"x" * 100_000 + b"\r\n\r\n", "not HTTP"),
        (HEAD + b"X: y\r\n" * 10_000 + b"\r\n", "not HTTP"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "not HTTP"),
        (b"", "before its answer was whole"),
    ],
)
async def test_what_is_no_bounded_json_object_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(FetchError, match=reason):
        await fetched(data)


@pytest.mark.parametrize(
    "data",
    [
        with_body(b"", b"HTTP/1.1 200 OK\r\n"),
        with_body(b"gone", HEAD.replace(b"application/json", b"text/plain")),
        b"HTTP/1.1 204 No Content\r\n\r\n",
        with_body(b"{"),
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    ],
)
async def test_where_only_the_status_matters_any_content_of_a_success_will_do(data: bytes) -> None:
    answer = await fetched(data, status_only=True)
    assert (answer.ok, answer.document) == (True, {})


async def test_where_only_the_status_matters_errors_and_redirects_are_read_all_the_same() -> None:
    refused = await fetched(with_body(b'{"error": "no"}', HEAD.replace(b"200 OK", b"400 Bad")), status_only=True)
    assert (refused.ok, refused.document) == (False, {"error": "no"})
    with pytest.raises(FetchError, match="redirects"):
        await fetched(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", status_only=True)


async def test_where_only_the_status_matters_endless_content_is_not_waited_for() -> None:
    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"400\r\n" + b" " * 1024 + b"\r\n")
            await writer.drain()

    async with asyncio.timeout(PATIENCE_S), raw_server(flood) as raw:
        assert (await fetch_json(raw.url, HERE, status_only=True)).ok
        await raw.gone.wait()  # the connection was closed


async def test_an_answer_that_drips_ends_at_the_time_limit() -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1\r\n \r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with asyncio.timeout(PATIENCE_S), raw_server(drip) as raw:
        with pytest.raises(FetchError, match=r"within 0\.2 s"):
            await fetch_json(raw.url, HERE, timeout_s=0.2)
        await raw.gone.wait()  # the connection was closed


async def test_a_host_that_never_resolves_ends_at_the_time_limit() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    with pytest.raises(FetchError, match="within"):
        await fetch_json("https://example.com/", resolve=never, timeout_s=0.05)


async def test_a_second_answer_of_dns_is_never_asked_for() -> None:
    asked: list[str] = []

    async def rebind(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    async with raw_server(sends(with_body(b'{"from": "the first"}'))) as raw:
        with suppress(OSError):  # not every machine has the second address
            async with raw_server(sends(with_body(b'{"from": "the second"}')), "127.0.0.2", raw.port):
                answer = await fetch_json(f"http://localhost:{raw.port}/", HERE, resolve=rebind)
                assert answer.document == {"from": "the first"}
                assert asked == ["localhost"]


@pytest.mark.parametrize("host", ["localhost", "sub.localhost"])
async def test_a_loopback_name_leads_to_loopback_only(host: str) -> None:
    with pytest.raises(FetchError, match="inside a network"):
        await fetch_json(f"http://{host}:1/", HERE, resolve=answers("10.0.0.1"))


@pytest.mark.parametrize(
    "addresses",
    [("127.0.0.1",), ("10.0.0.1",), ("169.254.169.254",), ("8.8.8.8", "192.168.1.1"), ("::1",), ("fd00:ec2::254",)],
)
async def test_a_public_name_with_an_address_inside_a_network_is_not_connected_to(addresses: tuple[str, ...]) -> None:
    with pytest.raises(FetchError, match="inside a network"):
        await fetch_json("https://example.com/", HERE, resolve=answers(*addresses))


async def test_a_host_that_the_configuration_names_may_be_inside_a_network() -> None:
    named = Reach.of("https://sso.corp.example/realm", "not a url", None)
    assert named.hosts == {"sso.corp.example"}
    with pytest.raises(FetchError, match="could not be reached"):  # nothing listens, but it was tried
        await fetch_json("https://sso.corp.example:1/", named, resolve=answers("127.0.0.1"))
    with pytest.raises(FetchError, match="inside a network"):
        await fetch_json("https://other.corp.example:1/", named, resolve=answers("127.0.0.1"))


async def test_a_name_without_address_is_named_as_the_reason() -> None:
    async def unknown(host: str, port: int) -> Sequence[str]:
        raise OSError

    for resolve in (unknown, answers()):
        with pytest.raises(FetchError, match="not found"):
            await fetch_json("https://example.com/", resolve=resolve)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/", "not an https URL"),
        ("http://127.0.0.1/", "not an https URL"),
        ("file:///etc/passwd", "not an https URL"),
        ("javascript:alert(1)", "not an https URL"),
        ("https:///path", "not an https URL|not valid"),
        ("//example.com/", "not an https URL"),
        ("https://user:secret@example.com/", "user name"),
        ("https://2130706433/", "not an IP address"),
        ("https://0x7f.1/", "not an IP address"),
        ("https://127.1/", "not an IP address"),
        ("https://0177.0.0.1/", "not an IP address"),
        ("https://example.com/\r\nX: y", "characters"),
        ("https://example.com\\@127.0.0.1/", "characters"),
        ("https://example.com:99999/", "not valid|not an https URL"),
        ("https://[::1", "not valid"),
        ("https://example.com/" + "x" * 3000, "more than 2048"),
    ],
)
def test_a_url_that_is_not_plain_https_is_refused(url: str, reason: str) -> None:
    with pytest.raises(FetchError, match=reason):
        checked_url(url, PUBLIC)


def test_http_is_for_loopback_hosts_if_the_configuration_names_one() -> None:
    for url in ("http://127.0.0.1:1/", "http://localhost:1/", "http://[::1]:1/"):
        assert str(checked_url(url, Reach.of("http://localhost:3000/mcp"))) == url
    with pytest.raises(FetchError, match="https"):
        checked_url("http://10.0.0.1/", Reach.of("http://10.0.0.1/mcp"))


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.0.1",
        "192.0.0.192",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "2001:0:a00:1::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "ff02::1",
        "fec0::1",
    ],
)
def test_an_address_inside_a_network_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))
