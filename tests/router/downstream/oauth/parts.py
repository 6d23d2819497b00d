"""What tests of the sign-in to servers need: the parts of a gateway that sign in, and a person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pointsman.config.model import Limits
from pointsman.config.sections.server import Server
from pointsman.router.downstream.connection import Connection
from pointsman.router.downstream.http.connect import connect_http
from pointsman.router.downstream.oauth.service import ServerSignIns
from pointsman.router.downstream.oauth.store import SignInStore
from pointsman.router.state.key_values import KeyValues
from pointsman.router.state.sqlite_values import SqliteKeyValues
from tests.router.downstream.http_parts import PATIENCE_S, Notices
from tests.servers.oauth_mcp import OAuthMcp, signed_in_at

KEY = "k" * 32
CALLBACK = "http://127.0.0.1:1/callback"
NAME = "tracker"


class Gateway:
    """The part of a gateway that signs in to one server."""

    def __init__(
        self,
        folder: Path,
        server: OAuthMcp,
        *,
        keys: tuple[str, ...] = (KEY,),
        values: KeyValues | None = None,
        **oauth: Any,
    ) -> None:
        self.entry = Server.model_validate({"url": server.url, "oauth": oauth or "auto", "era": server.era})
        self.values = values or SqliteKeyValues(folder)
        self.store = SignInStore(self.values, keys)
        self.document: str | None = None
        self.sign_ins = ServerSignIns(self.store, lambda: self.document)

    @property
    def source(self) -> Any:
        return self.sign_ins.source(NAME, self.entry)

    async def begin(self, holder: str = "") -> tuple[str, str]:
        return await self.sign_ins.begin(NAME, self.entry, CALLBACK, holder)

    async def finish(self, answer: dict[str, str]) -> None:
        state = answer.pop("state")
        await self.sign_ins.finish(state, answer, {NAME: self.entry}.get)

    async def sign_in(self, holder: str = "") -> str:
        """As a person does it. Returns the URL at which it was done."""
        url, _ = await self.begin(holder)
        await self.finish(await signed_in_at(url))
        return url

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Connection]:
        assert self.entry.url is not None
        async with asyncio.timeout(PATIENCE_S):
            connection = await connect_http(
                self.entry.url, {}, self.entry.era, 5.0, Limits(), Notices(), authorizer=self.source
            )
            try:
                yield connection
            finally:
                await connection.close()
