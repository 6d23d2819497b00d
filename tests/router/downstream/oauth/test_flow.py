"""A person signs in to a server, and the gateway goes on by itself from there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web

from pointsman.core.postgres import Postgres
from pointsman.router.downstream.connection import ConnectionLostError, ScopeNeededError, SignInNeededError
from pointsman.router.downstream.oauth.discovery import SignInError
from pointsman.router.state.key_values import KeyValues
from pointsman.router.state.postgres_values import PostgresKeyValues
from pointsman.router.state.sqlite_values import FILE, SqliteKeyValues
from pointsman.router.state.tables import StateTables
from tests.router.downstream.http_parts import call_of
from tests.router.downstream.oauth.parts import CALLBACK, NAME, Gateway
from tests.servers.oauth_mcp import basic, serving_oauth, signed_in_at


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_after_a_sign_in_calls_have_the_token(tmp_path: Path, era: str) -> None:
    async with serving_oauth(era) as server:  # type: ignore[arg-type]
        gateway = Gateway(tmp_path, server)
        with pytest.raises(SignInNeededError, match="pointsman server login tracker"):
            async with gateway.connected():
                pass
        url = await gateway.sign_in()
        async with gateway.connected() as connection:
            await connection.request(call_of("echo"))
    asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
    assert asked["resource"] == server.url
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == CALLBACK
    assert server.asked["register"][0]["redirect_uris"] == [CALLBACK]
    assert server.asked["register"][0]["application_type"] == "native"
    assert server.grants("authorization_code")[0]["resource"] == server.url
    assert server.authorization[-1] == f"Bearer {next(iter(server.access))}"


async def test_without_a_challenge_the_server_is_used_without_a_token(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.access[""] = ""  # it accepts requests without a token
        gateway = Gateway(tmp_path, server)
        async with gateway.connected() as connection:
            await connection.request(call_of("echo"))
    assert set(server.authorization) == {None}


async def test_a_token_that_has_ended_is_renewed_before_it_is_sent(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.token_life_s = 1  # less than what a token must have left
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        first = next(iter(server.access))
        server.token_life_s = 3600
        async with gateway.connected() as connection:
            await connection.request(call_of("echo"))
    assert f"Bearer {first}" not in server.authorization
    assert server.grants("refresh_token")[0]["resource"] == server.url


async def test_a_401_leads_to_one_renewal_and_one_more_attempt(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        async with gateway.connected() as connection:
            server.expire_all()
            await connection.request(call_of("echo"))
            server.accepts_no_token = True
            before = len(server.authorization)
            with pytest.raises(SignInNeededError, match="does not accept the new token"):
                await connection.request(call_of("echo"))
            assert len(server.authorization) == before + 2
            assert server.ran == ["echo"]
            with pytest.raises(SignInNeededError):  # a server that refuses everything gets no token after the other
                await connection.request(call_of("echo"))
    assert len(server.grants("refresh_token")) == 2


async def test_a_hundred_calls_at_once_lead_to_one_renewal(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        async with gateway.connected() as connection:
            server.expire_all()
            await asyncio.gather(*(connection.request(call_of("echo")) for _ in range(100)))
    assert len(server.grants("refresh_token")) == 1
    assert server.ran == ["echo"] * 100


@pytest.fixture(params=["sqlite", "postgres"])
def open_values(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], KeyValues]]:
    """Opens the same store again and again, as several gateways do."""
    opened: list[Postgres] = []

    def open_postgres() -> KeyValues:
        opened.append(Postgres(request.getfixturevalue("database_url"), program="test"))
        return PostgresKeyValues(StateTables(opened[-1]))

    yield open_postgres if request.param == "postgres" else lambda: SqliteKeyValues(tmp_path)
    for postgres in opened:
        postgres.close()


async def test_two_replicas_renew_once(tmp_path: Path, open_values: Callable[[], KeyValues]) -> None:
    async with serving_oauth() as server:
        here, there = (Gateway(tmp_path, server, values=open_values()) for _ in range(2))
        await here.sign_in()
        async with here.connected() as one, there.connected() as other:
            server.expire_all()
            calls = [connection.request(call_of("echo")) for connection in (one, other) for _ in range(10)]
            await asyncio.gather(*calls)
    assert len(server.grants("refresh_token")) == 1
    assert len(server.used_refresh) == 1


async def test_a_call_that_is_cancelled_does_not_cancel_the_renewal_of_others(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway, asked, go = Gateway(tmp_path, server), asyncio.Event(), asyncio.Event()

        async def held(given: object) -> None:
            asked.set()
            await go.wait()

        await gateway.sign_in()
        async with gateway.connected() as connection:
            server.expire_all()
            server.token_answer = held
            first = asyncio.create_task(connection.request(call_of("echo")))
            await asked.wait()
            second = asyncio.create_task(connection.request(call_of("echo")))
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            go.set()
            await second
    assert len(server.grants("refresh_token")) == 1


async def test_a_sign_in_that_its_server_has_ended_is_asked_for_again(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        async with gateway.connected() as connection:
            server.expire_all()
            server.refresh.clear()
            with pytest.raises(SignInNeededError, match="has ended it"):
                await connection.request(call_of("echo"))
        other = Gateway(tmp_path, server)  # the reason is stored
        with pytest.raises(SignInNeededError, match="has ended it"):
            async with other.connected():
                pass
        await other.sign_in()
        async with other.connected() as connection:
            await connection.request(call_of("echo"))
    assert len(server.registered) == 1  # the client was kept


async def test_a_failing_token_endpoint_keeps_the_sign_in(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()

        async def failing(given: object) -> web.StreamResponse:
            return web.Response(status=503)

        async with gateway.connected() as connection:
            server.expire_all()
            server.token_answer = failing
            with pytest.raises(ConnectionLostError, match="HTTP 503") as lost:
                await connection.request(call_of("echo"))
            assert not isinstance(lost.value, SignInNeededError)
            server.token_answer = None
        async with gateway.connected() as connection:
            await connection.request(call_of("echo"))


async def test_more_scopes_need_a_person_and_keep_those_that_were_granted(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.challenge_scope, server.needed_scopes = "read", {"echo": "write"}
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        async with gateway.connected() as connection:
            with pytest.raises(ConnectionLostError, match=r"more scopes \(write\).*server login tracker") as lost:
                await connection.request(call_of("echo"))
            assert isinstance(lost.value, ScopeNeededError)  # it did not run, and other tools still work
        await Gateway(tmp_path, server).sign_in()
        async with Gateway(tmp_path, server).connected() as connection:
            await connection.request(call_of("echo"))
    assert [one["scope"] for one in server.asked["authorize"]] == ["read", "read write"]


async def test_a_challenge_counts_among_several_lines(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.challenge_scope, server.needed_scopes = "read", {"echo": "write"}
        server.other_challenges = ["Negotiate", 'Basic realm="scope=no"', 'DPoP algs="ES256", error="use_dpop_nonce"']
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        async with gateway.connected() as connection:
            with pytest.raises(ScopeNeededError, match=r"more scopes \(write\)"):
                await connection.request(call_of("echo"))
            server.expire_all()
            await connection.request(call_of("tools"))  # a 401 among several lines has the token renewed
    assert [one["scope"] for one in server.asked["authorize"]] == ["read"]


async def test_a_server_that_refuses_what_it_granted_is_not_signed_in_to_again(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.challenge_scope, server.needed_scopes, server.granted_scope = "read write", {"echo": "write"}, "read"
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        async with gateway.connected() as connection:
            with pytest.raises(ConnectionLostError, match="although the sign-in has the scopes"):
                await connection.request(call_of("echo"))


async def test_client_credentials_need_no_person(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        server.challenge_scope, server.needed_scopes = "read", {"echo": "write"}
        gateway = Gateway(tmp_path, server, grant="client_credentials", client_id="robot", client_secret="a b:c")
        async with gateway.connected() as connection:
            await connection.request(call_of("echo"))
            server.expire_all()
            await connection.request(call_of("echo"))
        with pytest.raises(SignInError, match="signs in by itself"):
            await gateway.begin()
    assert [one.get("scope") for one in server.grants("client_credentials")][:2] == ["read", "read write"]
    assert basic(server.asked["token"][0]["_authorization"]) == ("robot", "a b:c")
    assert not server.asked["authorize"]


async def test_a_logout_ends_the_sign_in_here_and_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        renewal = next(iter(server.refresh))
        assert await gateway.sign_ins.forget(NAME, gateway.entry)
        assert not await gateway.sign_ins.forget(NAME, gateway.entry)
        assert server.asked["revoke"][0]["token"] == renewal
        assert "was not told" not in caplog.text  # its answer has a status and no content, as RFC 7009 has it
        with pytest.raises(SignInNeededError):
            async with gateway.connected():
                pass


async def test_what_is_stored_cannot_be_read_without_the_key(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in()
        gateway.values.close()
        stored = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.name.startswith(FILE))
        for secret in (*server.access, *server.refresh, "client-1", server.base):
            assert secret.encode() not in stored
        stranger = Gateway(tmp_path, server, keys=("x" * 32,))
        with pytest.raises(SignInNeededError, match=r"key that `state\.request_keys` no longer has"):
            async with stranger.connected():
                pass
        rotated = Gateway(tmp_path, server, keys=("x" * 32, "k" * 32))
        async with rotated.connected():
            pass


async def test_a_sign_in_belongs_to_its_holder(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        await gateway.sign_in("@corp/ann")
        with pytest.raises(SignInNeededError):
            async with gateway.connected():
                pass
        mine = gateway.sign_ins.source(NAME, gateway.entry, "@corp/ann")
        assert await mine.header() == f"Bearer {next(iter(server.access))}"
        assert [one.holder for one in await gateway.sign_ins.listed(NAME)] == ["@corp/ann"]


async def test_a_token_is_not_sent_to_another_url(tmp_path: Path) -> None:
    async with serving_oauth() as server, serving_oauth() as other:
        await Gateway(tmp_path, server).sign_in()
        moved = Gateway(tmp_path, other)
        with pytest.raises(SignInNeededError, match="has changed since"):
            async with moved.connected():
                pass
    assert set(other.authorization) == {None}


async def test_a_state_works_once(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        url, _ = await gateway.begin()
        answer = await signed_in_at(url)
        await gateway.finish(dict(answer))
        with pytest.raises(SignInError, match="used already"):
            await gateway.finish(dict(answer))
        with pytest.raises(SignInError, match="unknown"):
            await gateway.finish({"state": "guessed", "code": "x"})
    assert len(server.grants("authorization_code")) == 1


async def test_the_registered_client_is_used_again_at_its_port(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        assert await gateway.sign_ins.registered_port(NAME, gateway.entry) is None
        await gateway.sign_in()
        assert await gateway.sign_ins.registered_port(NAME, gateway.entry) == urlsplit(CALLBACK).port
        await Gateway(tmp_path, server).sign_in()
    assert len(server.asked["register"]) == 1


async def test_a_refusal_at_the_authorization_server_shows_its_code_and_no_words(tmp_path: Path) -> None:
    async with serving_oauth() as server:
        gateway = Gateway(tmp_path, server)
        for error, said in (
            ("access_denied", r"refused \(access_denied\)\. Begin"),
            ("\x1b[2J oh", r"refused\. Begin"),
        ):
            url, state = await gateway.begin()
            issuer = (await signed_in_at(url)).get("iss")
            answer = {"state": state, "error": error, "error_description": "x", **({"iss": issuer} if issuer else {})}
            with pytest.raises(SignInError, match=said):
                await gateway.finish(answer)
