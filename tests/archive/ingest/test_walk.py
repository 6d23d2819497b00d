"""Which files are ingested."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pointsman.archive.ingest.gitignore import FilePatternError
from pointsman.archive.ingest.walk import EVERYTHING, Selection, Walk


def found(root: Path, selection: Selection = EVERYTHING) -> list[str]:
    return [file.below for file in Walk(root, selection)]


def put(root: Path, *paths: str, text: str = "text") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def test_files_that_can_be_documents_are_found_in_order(tmp_path: Path) -> None:
    put(tmp_path, "b.md", "a/z.TXT", "a/p.pdf", "a/page.html", "README", "x.py", "image.png", "data", "collection.yaml")
    put(tmp_path, ".hidden.md", ".obsidian/x.md", "node_modules/y/README.md")
    assert found(tmp_path) == ["README", "a/p.pdf", "a/page.html", "a/z.TXT", "b.md"]


def test_gitignore_holds_with_nesting_and_negation_also_outside_a_repository(tmp_path: Path) -> None:
    put(tmp_path, "keep.md", "drop.md", "build/a.md", "sub/build/b.md", "sub/drop.md", "sub/own.md", "sub/deep/own.md")
    put(tmp_path, "only-top.md", "sub/only-top.md", "logs/a.md", "logs/important.md")
    put(
        tmp_path,
        ".gitignore",
        text="# comment\ndrop.md\nbuild/\n/only-top.md\nlogs/*\n!logs/important.md\n[broken\n!\n",
    )
    put(tmp_path, "sub/.gitignore", text="!drop.md\nown.md\n")
    assert found(tmp_path) == ["keep.md", "logs/important.md", "sub/drop.md", "sub/only-top.md"]


def test_what_is_in_an_ignored_folder_cannot_be_taken_back_in(tmp_path: Path) -> None:
    put(tmp_path, "out/a.md", "in.md")
    put(tmp_path, ".gitignore", text="out/\n!out/a.md\n")
    assert found(tmp_path) == ["in.md"]


def test_the_gitignore_of_the_repository_above_holds(tmp_path: Path) -> None:
    put(tmp_path, "repo/docs/a.md", "repo/docs/secret.md", "repo/docs/gen/b.md")
    (tmp_path / "repo/.git").mkdir()
    put(tmp_path, ".gitignore", text="a.md\n")  # outside of the repository
    put(tmp_path, "repo/.gitignore", text="secret.md\n/docs/gen/\n")
    assert found(tmp_path / "repo/docs") == ["a.md"]


def test_an_ignored_folder_that_is_named_is_read(tmp_path: Path) -> None:
    put(tmp_path, "repo/.venv/a.md", "repo/.venv/b.md", "repo/.venv/.gitignore", text="b.md\n")
    (tmp_path / "repo/.git").mkdir()
    put(tmp_path, "repo/.gitignore", text=".venv/\n")
    assert found(tmp_path / "repo/.venv") == ["a.md"]


def test_include_and_exclude_choose(tmp_path: Path) -> None:
    put(tmp_path, "a.md", "b.txt", "drafts/c.md", "code.py", "sub/code.py")
    assert found(tmp_path, Selection(include=("*.md",))) == ["a.md", "drafts/c.md"]
    assert found(tmp_path, Selection(exclude=("drafts/", "*.txt"))) == ["a.md"]
    assert found(tmp_path, Selection(include=("*.py",), exclude=("/code.py",))) == ["sub/code.py"]
    with pytest.raises(FilePatternError, match="Not a pattern: !"):
        Walk(tmp_path, Selection(include=("!",)))


def test_links_and_what_is_no_file_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "notes/a.md", "outside/secret.md")
    notes = tmp_path / "notes"
    (notes / "link.md").symlink_to(tmp_path / "outside/secret.md")
    (notes / "linked").symlink_to(tmp_path / "outside")
    (notes / "loop").symlink_to(notes)
    os.mkfifo(notes / "pipe.md")
    assert found(notes) == ["a.md"]


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    """As anyone: one that is not there. (The superuser may list all that is.)"""
    walk = Walk(tmp_path / "gone")
    assert list(walk) == []
    assert walk.unread == {".": "No such file or directory"}
