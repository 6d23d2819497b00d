"""Clients: those that register themselves, within a rate, and those that have a metadata document."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from pointsman.router.auth.server.clients import (
    ADDRESS_REGISTRATIONS,
    MAX_ADDRESSES,
    REGISTRATIONS,
    UNUSED_S,
    ClientDocuments,
    Registrar,
)
from pointsman.router.auth.server.requests import ClientError, RequestError

KEY = "k" * 32
GOOD = {"client_name": "Client", "redirect_uris": ["https://app.example/cb"]}


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_the_id_is_the_registration() -> None:
    clock = Clock()
    answer = Registrar([KEY], clock).register(GOOD, None)
    assert answer["token_endpoint_auth_method"] == "none"
    assert "client_secret" not in answer
    kept = Registrar([KEY], clock).registration(answer["client_id"])  # another replica with the same keys
    assert kept is not None
    assert (kept.name, kept.redirect_uris) == ("Client", ("https://app.example/cb",))
    assert Registrar(["o" * 32]).registration(answer["client_id"]) is None
    changed = "B" if answer["client_id"][-20] == "A" else "A"
    assert Registrar([KEY]).registration(f"{answer['client_id'][:-20]}{changed}{answer['client_id'][-19:]}") is None
    assert Registrar([KEY]).registration("registered." + "a" * 10_000) is None


def test_a_registration_that_is_not_used_expires() -> None:
    clock = Clock()
    registrar = Registrar([KEY], clock)
    kept = registrar.registration(registrar.register(GOOD, None)["client_id"])
    assert kept is not None
    assert registrar.is_fresh(kept)
    clock.now += UNUSED_S
    assert not registrar.is_fresh(kept)


def test_a_flood_of_registrations_is_refused_and_takes_no_memory() -> None:
    clock = Clock()
    registrar = Registrar([KEY], clock)
    for _ in range(ADDRESS_REGISTRATIONS[0]):
        registrar.register(GOOD, "192.0.2.1")
    with pytest.raises(ClientError) as refused:
        registrar.register(GOOD, "192.0.2.1")
    assert (refused.value.code, refused.value.status) == ("slow_down", 429)
    assert refused.value.retry_s == 60
    assert "Try again in 60 s" in str(refused.value)
    for number in range(REGISTRATIONS[0] - ADDRESS_REGISTRATIONS[0]):
        registrar.register(GOOD, f"192.0.2.{number + 2}")
    for number in range(3 * MAX_ADDRESSES):  # from everywhere
        with pytest.raises(ClientError):
            registrar.register(GOOD, f"2001:db8::{number:x}")
    assert len(registrar._addresses) <= MAX_ADDRESSES
    clock.now += 60
    registrar.register(GOOD, "192.0.2.1")


@pytest.mark.parametrize(
    "changed",
    [
        {"redirect_uris": None},
        {"redirect_uris": []},
        {"redirect_uris": "https://app.example/cb"},
        {"redirect_uris": [1]},
        {"redirect_uris": ["http://app.example/cb"]},
        {"redirect_uris": ["https://app.example/cb", "javascript:alert(1)"]},
        {"redirect_uris": [f"https://app.example/{number}" for number in range(11)]},
        {"redirect_uris": [f"https://app.example/{number}{'a' * 480}" for number in range(9)]},
        {"client_name": 7},
        {"grant_types": ["client_credentials"]},
        {"grant_types": "authorization_code"},
        {"response_types": ["token"]},
        {"token_endpoint_auth_method": "private_key_jwt"},
    ],
)
def test_what_no_client_may_register(changed: dict[str, Any]) -> None:
    with pytest.raises(ClientError):
        Registrar([KEY]).register({**GOOD, **changed}, None)


def test_a_name_is_one_short_visible_line() -> None:
    registrar = Registrar([KEY])
    answer = registrar.register({**GOOD, "client_name": "Cl\u202eaude\n\x1b[2J" + "x" * 5000}, None)
    assert answer["client_name"].isprintable()
    assert len(answer["client_name"]) <= 100
    assert len(answer["client_id"]) < 400


@asynccontextmanager
async def documents(**by_name: Any) -> AsyncIterator[str]:
    """A host of metadata documents; yields the URL of its folder. BASE in a document is that URL."""
    base = ""

    async def show(request: web.Request) -> web.StreamResponse:
        found = by_name[request.match_info["name"]]
        if isinstance(found, int):
            return web.Response(status=found, headers={"Location": f"{base}/good"})
        if isinstance(found, bytes):
            return web.Response(body=found, content_type="application/json")
        return web.Response(text=json.dumps(found).replace("BASE", base), content_type="application/json")

    app = web.Application()
    app.router.add_get("/clients/{name}", show)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}/clients"
    try:
        yield base
    finally:
        await runner.cleanup()


LOCAL = "http://127.0.0.1:8765"  # a gateway for this machine only: its clients may be here, too


async def test_a_document_says_who_the_client_is() -> None:
    async with documents(good={**GOOD, "client_id": "BASE/good"}) as base:
        found = ClientDocuments(lambda: LOCAL)
        client = await found.client(f"{base}/good")
    assert (client.name, client.host, client.redirect_uris) == ("Client", "127.0.0.1", ("https://app.example/cb",))
    assert await found.client(f"{base}/good") == client  # kept for minutes; the host is gone


async def test_documents_that_are_refused() -> None:
    wrong = {
        "foreign": {**GOOD, "client_id": "https://claude.ai/client"},
        "nameless": GOOD,
        "secret": {**GOOD, "client_id": "BASE/secret", "token_endpoint_auth_method": "client_secret_post"},
        "keyed": {**GOOD, "client_id": "BASE/keyed", "token_endpoint_auth_method": "private_key_jwt"},
        "open": {"client_id": "BASE/open", "redirect_uris": ["http://evil.example/cb"]},
        "moved": 302,
        "gone": 404,
        "large": b'{"client_id": "' + b"a" * 70_000 + b'"}',
        "list": b"[]",
        "html": b"<html>",
    }
    async with documents(**wrong) as base:
        found = ClientDocuments(lambda: LOCAL)
        for name in wrong:
            with pytest.raises(RequestError):
                await found.client(f"{base}/{name}")
        assert not found._kept


@pytest.mark.parametrize(
    "client_id",
    [
        "http://127.0.0.1:1/client",
        "https://127.0.0.1/client",
        "https://localhost/client",
        "https://[::1]/client",
        "https://[::ffff:127.0.0.1]/client",
        "https://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/client",
        "https://192.168.1.1/client",
        "https://2130706433/client",
        "https://0x7f.1/client",
        "http://app.example/client",
        "ftp://app.example/client",
        "https://user@93.184.216.34/client",
        "https://93.184.216.34/client#x",
        "https://93.184.216.34/a/../client",
        "https://93.184.216.34",
        "https://93.184.216.34/",
        "https://93.184.216.34/" + "a" * 3000,
    ],
)
async def test_no_document_is_fetched_from_inside_networks(client_id: str) -> None:
    """A gateway with a public address. Nothing listens at these; they are refused without a connection."""
    with pytest.raises(RequestError):
        await ClientDocuments(lambda: "https://mcp.example").client(client_id)
