"""`.context/` of a root while the archive runs: what is written there is found, what is removed is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pointsman.archive.context.items import Defaults, make_item
from pointsman.archive.context.search import NoContextError, NoVectorsYetError
from pointsman.archive.context.service import ProjectContext
from pointsman.archive.embedding.static import StaticEmbedding
from pointsman.archive.model.context import ItemFilter
from tests.archive.engines import AnyStorage, Place

PATIENCE_S = 60.0


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.05)


@pytest.fixture
def storage(place: Place) -> Iterator[AnyStorage]:
    storage = place.open()
    yield storage
    storage.close()


def test_a_projects_notes_are_followed(storage: AnyStorage, tmp_path: Path) -> None:
    project = tmp_path / "app"
    project.mkdir()
    context = ProjectContext(storage.context, StaticEmbedding(), {"app": project, "gone": tmp_path / "gone"})

    def found(query: str) -> list[str]:
        try:
            return [hit.item.content for hit in context.search(query, ItemFilter(), 5).hits if hit.score > 0.5]
        except (NoContextError, NoVectorsYetError):
            return []

    def embedded() -> bool:
        figures = storage.context.stats(str(StaticEmbedding().space()))
        return figures.embedded == figures.items

    assert found("database") == []
    rules = project / ".context" / "rules"
    rules.mkdir(parents=True)
    (rules / "db.md").write_text("The database is opened once.")
    until(lambda: found("database") == ["The database is opened once."])
    (rules / "db.md").write_text("The database is opened for each request.")
    until(lambda: found("database") == ["The database is opened for each request."])
    until(embedded)
    (rules / "db.md").unlink()
    until(lambda: found("database") == [])
    context.close()


def test_a_root_that_is_not_mounted_forgets_nothing(storage: AnyStorage, tmp_path: Path) -> None:
    project = tmp_path / "app"
    (project / ".context" / "rules").mkdir(parents=True)
    (project / ".context" / "rules" / "a.md").write_text("Stay.")
    first = ProjectContext(storage.context, None, {"app": project})
    until(lambda: storage.context.stats("").items == 1)
    first.close()
    project.rename(tmp_path / "elsewhere")
    second = ProjectContext(storage.context, None, {"app": project})
    second.close()
    assert storage.context.stats("").items == 1


def test_what_is_wrong_is_logged_once(storage: AnyStorage, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notes = tmp_path / "app" / ".context"
    notes.mkdir(parents=True)
    (notes / "untyped.md").write_text("What am I?")
    context = ProjectContext(storage.context, None, {"app": tmp_path / "app"})
    until(lambda: "untyped.md" in caplog.text)
    (notes / "rules").mkdir()
    (notes / "rules" / "fine.md").write_text("Fine.")
    until(lambda: storage.context.stats("").items == 1)
    context.close()
    assert caplog.text.count("untyped.md") == 1


def test_what_another_process_enters_gets_its_vector_before_anybody_asks(storage: AnyStorage, place: Place) -> None:
    context = ProjectContext(storage.context, StaticEmbedding(), {})
    space = str(StaticEmbedding().space())
    until(lambda: storage.context.stats(space).items == 0)
    for number in range(2):  # the second comes when the first look is long over
        other = place.open()
        other.context.add(make_item({}, f"Rule number {number}.", Defaults(type="rule"), "added"))
        other.close()
        until(lambda: storage.context.stats(space).embedded == number + 1)  # noqa: B023 - called at once
    context.close()
