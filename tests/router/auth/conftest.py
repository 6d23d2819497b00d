"""An issuer of another party, and a gateway that has one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

from tests.gateway_process import gateway_process
from tests.router.auth.issuer import Issuer, issuing
from tests.router.auth.shop import WAIT_S, Shop, config_of


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as one:
        yield one


@pytest.fixture(scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    with issuing() as issuer:
        config = config_of(folder, issuer)
        async with gateway_process(folder, config) as gateway, httpx2.AsyncClient(timeout=WAIT_S) as http:
            yield Shop(gateway, issuer, http, folder / "trace.jsonl", config)
