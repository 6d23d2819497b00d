"""One search service for all tests of a module that leave nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.router.search_api.search_client import Client, digest_of, open_service

ALPHA, BOTH, NOBODY, OLD = "ptm_alpha", "ptm_both", "ptm_nobody", "ptm_old"
ANY = "ptm_any"
CONFIG = {
    "projects": {"alpha": {}, "beta": {}},
    "tokens": {
        "any": {"sha256": digest_of(ANY), "projects": ["*"]},
        "alpha": {"sha256": digest_of(ALPHA), "projects": ["alpha"]},
        "both": {"sha256": digest_of(BOTH), "projects": ["alpha", "beta", ""]},
        "nobody": {"sha256": digest_of(NOBODY)},
        "old": {"sha256": digest_of(OLD), "projects": ["*"], "expires": "2001-01-31"},
    },
}


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    limits = {"body_bytes": 100_000, "unpacked_bytes": 200_000, "tools": 20, "queries": 5}
    async with open_service(tmp_path_factory.mktemp("service"), CONFIG, limits=limits) as opened:
        opened.service.token = ANY
        yield opened
