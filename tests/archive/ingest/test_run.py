"""Runs over a folder: changes are read, documents of deleted files removed, the rest left alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from pointsman.archive.ingest.run import EmptyFolderError, IngestJob, Report, ingest
from pointsman.archive.ingest.walk import FoundFile, Selection
from pointsman.archive.model.documents import Manifest
from tests.archive.engines import AnyStorage

BROKEN = {
    "latin.md": (b"caf\xe9", "it is not UTF-8 (line 1, byte 3)"),
    "binary.txt": (b"GIF\0\1\2", "it contains binary data"),
    "matter.md": (b"---\ntitle: a: b\n---\ntext", "its front matter is invalid: line 2"),
    "paper.pdf": (b"nothing", "it cannot be read as PDF"),
    "lying.html": (b"<meta charset='utf-7x'>\xff", "it is not utf-7x, although it declares it"),
    "bom.txt": (b"\xff\xfea", "it is not utf-16-le"),
}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.md").write_text("---\ntitle: Alpha\ntags: [x]\nauthor: me\n---\nSee [b](sub/b.txt).\n")
    (folder / "sub/b.txt").write_text("beta")
    return folder


def run(storage: AnyStorage, root: Path, collection: str = "notes", **order: object) -> Report:
    storage.documents.put_collection(Manifest(collection))
    return ingest(storage.documents, IngestJob(root, collection, **order))  # type: ignore[arg-type]


def counts(report: Report) -> tuple[int, int, int, int]:
    return report.added, report.changed, report.unchanged, report.removed


def ids(storage: AnyStorage, collection: str = "notes") -> list[str]:
    return [each.id for each in storage.documents.list_documents(collection, 100).documents]


def test_files_become_documents_with_all_that_is_known_of_them(storage: AnyStorage, notes: Path) -> None:
    os.utime(notes / "sub/b.txt", ns=(0, 1_700_000_000_000_000_000))
    assert counts(run(storage, notes)) == (2, 0, 0, 0)
    alpha = storage.documents.document("notes", "a.md")
    beta = storage.documents.document("notes", "sub/b.txt")
    assert alpha is not None
    assert beta is not None
    assert (alpha.title, alpha.tags, alpha.metadata, alpha.source) == ("Alpha", ("x",), {"author": "me"}, "research")
    assert alpha.content == (notes / "a.md").read_text()
    assert (beta.title, beta.date, beta.content) == ("b", "2023-11-14T22:13:20Z", "beta")


def test_only_what_changed_is_read_again(storage: AnyStorage, notes: Path) -> None:
    run(storage, notes)
    (notes / "a.md").write_text("# New\n")
    assert counts(run(storage, notes)) == (0, 1, 1, 0)
    (notes / "c.md").write_text("gamma")
    assert counts(run(storage, notes)) == (1, 0, 2, 0)


def test_a_file_with_another_date_and_the_same_text_is_not_changed(storage: AnyStorage, notes: Path) -> None:
    run(storage, notes)
    os.utime(notes / "a.md", ns=(5, 5))
    assert counts(run(storage, notes)) == (0, 0, 2, 0)
    assert storage.documents.origins("notes")["a.md"].mtime_ns == 5


def test_again_reads_all(storage: AnyStorage, notes: Path) -> None:
    run(storage, notes)
    assert counts(run(storage, notes, again=True, source="url")) == (0, 2, 0, 0)
    document = storage.documents.document("notes", "a.md")
    assert document is not None
    assert document.source == "url"


def test_documents_whose_files_are_gone_or_now_ignored_go(storage: AnyStorage, notes: Path) -> None:
    (notes / "c.md").write_text("gamma")
    run(storage, notes)
    (notes / "a.md").unlink()
    (notes / ".gitignore").write_text("c.md\n")
    assert counts(run(storage, notes)) == (0, 0, 1, 2)
    assert ids(storage) == ["sub/b.txt"]


def test_a_narrowed_run_removes_only_what_is_gone(storage: AnyStorage, notes: Path) -> None:
    (notes / "c.md").write_text("gamma")
    run(storage, notes)
    (notes / "c.md").unlink()
    assert counts(run(storage, notes, selection=Selection(include=("a.md",)))) == (0, 0, 1, 1)
    assert ids(storage) == ["a.md", "sub/b.txt"]


@pytest.mark.parametrize("lost", ["emptied", "gone"])
def test_an_empty_or_vanished_folder_does_not_empty_its_collection(storage: AnyStorage, notes: Path, lost: str) -> None:
    run(storage, notes)
    shutil.rmtree(notes)
    if lost == "emptied":
        notes.mkdir()
    with pytest.raises(EmptyFolderError, match="2 documents of the collection `notes` came from it"):
        run(storage, notes)
    assert len(ids(storage)) == 2


def test_a_folder_may_be_emptied_by_order(storage: AnyStorage, notes: Path) -> None:
    run(storage, notes)
    shutil.rmtree(notes)
    notes.mkdir()
    assert counts(run(storage, notes, allow_empty=True)) == (0, 0, 0, 2)


def test_broken_files_are_named_and_the_rest_is_read(storage: AnyStorage, notes: Path) -> None:
    for name, (raw, _) in BROKEN.items():
        (notes / name).write_bytes(raw)
    with (notes / "huge.md").open("wb") as file:
        file.truncate(33 << 20)
    (notes / os.fsdecode(b"na\xefve.md")).write_text("text")
    report = run(storage, notes)
    assert ids(storage) == ["a.md", "sub/b.txt"]
    expected = {name: reason for name, (_, reason) in BROKEN.items()}
    expected |= {"huge.md": "it is larger than 32 MB", "na?ve.md": "its name is not UTF-8"}
    assert report.broken.keys() == expected.keys()
    for name, reason in expected.items():
        assert report.broken[name].startswith(reason)


def test_half_a_character_in_front_matter_keeps_nothing_out(storage: AnyStorage, notes: Path) -> None:
    (notes / "half.md").write_text(
        '---\ntitle: "A \\ud83d title"\ntags: ["t\\ud800"]\n"k\\udfff": "a\\0b"\n---\ntext\n'
    )
    report = run(storage, notes)
    assert (report.added, report.broken) == (3, {})
    half = storage.documents.document("notes", "half.md")
    assert half is not None
    assert (half.title, half.tags, half.metadata) == ("A ? title", ("t?",), {"k?": "a\ufffdb"})


def test_a_document_whose_file_broke_stays_as_it_was(storage: AnyStorage, notes: Path) -> None:
    run(storage, notes)
    (notes / "a.md").write_bytes(b"\xff\xfe\xff")
    report = run(storage, notes)
    assert set(report.broken) == {"a.md"}
    document = storage.documents.document("notes", "a.md")
    assert document is not None
    assert document.title == "Alpha"


def test_a_file_that_goes_while_it_is_read_is_left_out(storage: AnyStorage, notes: Path) -> None:
    def late(files: Iterable[FoundFile], _: int) -> Iterable[FoundFile]:
        for file in files:
            (notes / "a.md").unlink(missing_ok=True)
            yield file

    storage.documents.put_collection(Manifest("notes"))
    report = ingest(storage.documents, IngestJob(notes, "notes"), late)
    assert report.broken == {"a.md": "it cannot be read: No such file or directory"}
    assert ids(storage) == ["sub/b.txt"]


def test_two_folders_share_a_collection_and_neither_removes_the_other(storage: AnyStorage, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.md").write_text(name)
        run(storage, tmp_path / name, "both")
    assert ids(storage, "both") == ["same.md", "two/same.md"]
    assert counts(run(storage, tmp_path / "two", "both")) == (0, 0, 1, 0)
    assert counts(run(storage, tmp_path / "one", "both")) == (0, 0, 1, 0)


def test_a_folder_that_was_moved_keeps_its_documents(storage: AnyStorage, notes: Path, tmp_path: Path) -> None:
    run(storage, notes)
    moved = notes.rename(tmp_path / "elsewhere")
    assert counts(run(storage, moved)) == (0, 0, 2, 0)
    assert ids(storage) == ["a.md", "sub/b.txt"]
    assert storage.documents.origins("notes")["a.md"].path == str(moved / "a.md")


def test_ten_megabytes_are_a_document(storage: AnyStorage, notes: Path) -> None:
    (notes / "long.md").write_text("# Long\n\n" + ("A word or two of <b>text</b>. " * 20 + "\n\n") * 17_500)
    assert counts(run(storage, notes)) == (3, 0, 0, 0)
    document = storage.documents.document("notes", "long.md")
    assert document is not None
    assert len(document.content) > 10_000_000


def test_html_and_text_with_a_byte_order_mark_are_read(storage: AnyStorage, notes: Path) -> None:
    (notes / "page.html").write_bytes(b"<meta charset=latin-1><title>Caf\xe9</title><h1>H</h1><a href='a.md'>x</a>")
    (notes / "wide.txt").write_bytes("\ufeffwide".encode("utf-16-le"))
    (notes / "dos.md").write_bytes(b"\xef\xbb\xbf# Title\r\ntext\r\n")
    assert not run(storage, notes).broken
    pages = [storage.documents.document("notes", name) for name in ("page.html", "wide.txt", "dos.md")]
    assert [page and page.title for page in pages] == ["Café", "wide", "Title"]
    assert [page and page.content for page in pages] == ["# H\n\n[x](a.md)\n", "wide", "# Title\ntext\n"]
