"""Folders of notes: what is new comes in, what is gone goes, and what cannot be read is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.archive.context.importer import import_file, import_folder
from pointsman.archive.context.items import Defaults
from pointsman.archive.model.context import ItemFilter
from pointsman.archive.store.sql.context import SqlContext
from tests.archive.engines import Place


@pytest.fixture
def store(place: Place) -> Iterator[SqlContext]:
    storage = place.open()
    yield storage.context
    storage.close()


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def contents(store: SqlContext) -> set[str]:
    return {item.content for item in store.newest(ItemFilter(), 100)}


def test_a_folder_is_followed_and_only_what_changed_is_read(store: SqlContext, tmp_path: Path) -> None:
    project = tmp_path / "app"
    write(project, ".context/rules/tabs.md", "Tabs.")
    write(project, ".context/decisions/0001-db.md", "Postgres.")
    write(project, "rules/not-ours.md", "Outside of the folder.")

    def look() -> tuple[int, int, int]:
        outcome = import_folder(store, project, "root:app/", Defaults(), within=".context")
        assert outcome.problems == []
        return outcome.files, outcome.items, outcome.removed

    assert look() == (2, 2, 0)
    assert look() == (0, 0, 0)
    write(project, ".context/rules/tabs.md", "Spaces.")
    (project / ".context/decisions/0001-db.md").unlink()
    assert look() == (1, 1, 1)
    assert contents(store) == {"Spaces."}


def test_other_origins_are_left_alone(store: SqlContext, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write(one, "rules/a.md", "A.")
    write(two, "rules/b.md", "B.")
    import_folder(store, one, "root:one/", Defaults())
    import_folder(store, two, "root:two/", Defaults())
    (two / "rules/b.md").unlink()
    import_folder(store, two, "root:two/", Defaults())
    assert contents(store) == {"A."}


def test_what_cannot_be_read_is_named_and_the_rest_comes_in(store: SqlContext, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    write(notes, "rules/good.md", "Good.")
    write(notes, "untyped.md", "Whatever.")
    (notes / "latin.md").write_bytes(b"caf\xe9")
    (notes / "large.md").write_bytes(b"x" * 2_000_000)
    write(tmp_path, "secret.md", "Not yours.")
    (notes / "rules/link.md").symlink_to(tmp_path / "secret.md")
    outcome = import_folder(store, notes, "folder:notes/", Defaults())
    assert contents(store) == {"Good."}
    assert sorted(problem.partition(": ")[0] for problem in outcome.problems) == [
        "large.md",
        "latin.md",
        "rules/link.md",
        "untyped.md",
    ]
    assert not any(str(tmp_path) in problem for problem in outcome.problems)


def test_defaults_hold_where_a_file_says_nothing(store: SqlContext, tmp_path: Path) -> None:
    file = write(tmp_path, "note.md", "Call it by its name.")
    assert import_file(store, file, Defaults()).problems
    assert import_file(store, file, Defaults(type="rule", module="naming")).items == 1
    [item] = store.newest(ItemFilter(), 5)
    assert (item.type, item.module, item.title) == ("rule", "naming", "note")
    assert import_file(store, write(tmp_path, "x.png", ""), Defaults()).problems == [
        "x.png: not Markdown or JSON lines (.md, .txt, .jsonl)"
    ]
