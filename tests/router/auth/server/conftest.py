"""A gateway at which clients sign in, and one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.router.auth.server.office import Office, Visitor, office


@pytest.fixture(scope="module")
async def desk(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Office]:
    """A gateway of this module, whose owner is signed in."""
    async with office(tmp_path_factory.mktemp("office")) as opened:
        await opened.sign_in()
        yield opened


@pytest.fixture(scope="module")
async def visitor(desk: Office) -> Visitor:
    return await desk.register()
