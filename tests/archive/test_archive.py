"""From settings to an archive: opened when it is needed, in words when it cannot be, and ended without a trace."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pointsman.archive.archive import Archive, open_archive
from pointsman.archive.embedding.settings import EmbeddingSettings
from pointsman.archive.settings import ArchiveSettings, PostgresStore
from pointsman.archive.store.errors import StoreError, StoreUnusableError
from pointsman.archive.tools.base import Call
from pointsman.archive.tools.documents_browse import list_collections
from pointsman.archive.tools.documents_search import search_documents
from tests.archive.engines import Place
from tests.archive.sample_documents import fill, prepared
from tests.archive.wait import wait_until


def opened(path: Path | PostgresStore | None, provider: str = "none") -> Archive:
    embeddings = EmbeddingSettings(provider)  # type: ignore[arg-type]
    return open_archive(ArchiveSettings(path, {}, embeddings=embeddings), shipped=False)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("archive-")}


def test_without_a_store_its_tools_say_which_setting_names_one() -> None:
    archive = opened(None)
    archive.prepare()
    with pytest.raises(StoreError, match="SEARCH_DB_PATH"):
        list_collections(archive, {}, Call())
    archive.close()


def test_a_store_that_cannot_be_opened_is_told_at_each_call_and_works_as_soon_as_it_can(tmp_path: Path) -> None:
    path = tmp_path / "archive.db"
    path.write_text("no database, but long enough to look like one " * 50)
    archive = opened(path)
    for _ in range(2):
        with pytest.raises(StoreUnusableError, match=r"archive\.db is damaged or not a database"):
            search_documents(archive, {"query": "x"}, Call())
    path.unlink()
    assert list_collections(archive, {}, Call())["collections"] == []
    archive.close()
    with pytest.raises(StoreUnusableError, match="closing"):
        list_collections(archive, {}, Call())


def test_an_open_archive_embeds_what_another_process_ingests_and_ends_its_threads(place: Place) -> None:
    before = threads()
    archive = opened(place.database, "static")
    archive.prepare()
    other = place.open()
    fill(other, prepared("a.md", "how to repair an automobile"))
    other.close()

    def embedded() -> bool:
        found = search_documents(archive, {"query": "car maintenance", "hybridSearch": False}, Call())
        return bool(found["results"]) and "notice" not in found

    wait_until(embedded)
    archive.close()
    wait_until(lambda: threads() <= before)


def test_what_another_process_left_undone_is_done_when_the_archive_opens(place: Place) -> None:
    left = place.open()
    left.housekeeper.close()  # as if the process had been killed before it came to this
    fill(left, prepared("a.md", "old"))
    fill(left, prepared("a.md", "new"))
    left.close()
    assert rows(place) == 2
    archive = opened(place.database)
    archive.prepare()
    wait_until(lambda: rows(place) == 1)
    archive.close()


def rows(place: Place) -> int:
    storage = place.open()
    with storage.database.reading() as connection:
        (count,) = connection.execute("SELECT count(*) FROM passages").fetchone()
    storage.close()
    return int(count)
