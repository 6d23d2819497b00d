"""An empty store of each engine, closed at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.archive.engines import ENGINES, AnyStorage, Place, new_store
from tests.postgres import Postgres


@pytest.fixture(scope="session")
def archive_database(postgres: Postgres) -> str:
    return postgres.new_database()


@pytest.fixture(params=ENGINES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return new_store(request, tmp_path, request.param)


@pytest.fixture
def storage(place: Place) -> Iterator[AnyStorage]:
    storage = place.open()
    yield storage
    storage.close()
