"""A file is changed as a whole or not at all, by one program at a time."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pointsman.config.files import ReplaceError, rewrite

WAIT_S = 30.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "f.yaml"
    file.write_text("a\n")
    return file


def test_mode_and_link_stay(file: Path, tmp_path: Path) -> None:
    file.chmod(0o640)
    link = tmp_path / "link.yaml"
    link.symlink_to(file.name)
    rewrite(link, lambda text: text + "b\n")
    assert link.is_symlink()
    assert file.read_text() == "a\nb\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_nothing_is_left_beside_the_file(file: Path) -> None:
    rewrite(file, lambda text: text + "b\n")
    with pytest.raises(ZeroDivisionError):
        rewrite(file, lambda text: str(1 // 0))
    assert [found.name for found in file.parent.iterdir()] == [file.name]


def test_a_reader_that_has_the_file_open_sees_the_old_text_whole(file: Path) -> None:
    with file.open() as reader:
        rewrite(file, lambda _: "new\n")
        assert reader.read() == "a\n"
    assert file.read_text() == "new\n"


def test_a_second_edit_waits_for_the_first_and_sees_it(file: Path) -> None:
    inside, second_is_in = threading.Event(), threading.Event()

    def first(text: str) -> str:
        inside.set()
        assert not second_is_in.wait(0.2), "the second edit came in while the first was under way"
        return text + "first\n"

    def second(text: str) -> str:
        second_is_in.set()
        return text + "second\n"

    with ThreadPoolExecutor() as pool:
        one = pool.submit(rewrite, file, first)
        assert inside.wait(WAIT_S)
        two = pool.submit(rewrite, file, second)
        one.result(WAIT_S)
        two.result(WAIT_S)
    assert file.read_text() == "a\nfirst\nsecond\n"


def test_many_edits_at_once_lose_none(file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: rewrite(file, lambda text: f"{text}{number}\n"), range(24)))
    assert sorted(file.read_text().split()) == sorted(["a", *map(str, range(24))])


def test_an_editor_that_saves_meanwhile_loses_nothing(file: Path) -> None:
    seen: list[str] = []

    def change(text: str) -> str:
        seen.append(text)
        if len(seen) == 1:  # a person saves now: a new file in the old one's place
            theirs = file.with_suffix(".theirs")
            theirs.write_text("theirs\n")
            theirs.replace(file)
        return text + "ours\n"

    rewrite(file, change)
    assert seen == ["a\n", "theirs\n"]
    assert file.read_text() == "theirs\nours\n"


def test_a_byte_order_mark_stays(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfa\r\n")
    rewrite(file, lambda text: text + "b\r\n")
    assert file.read_bytes() == b"\xef\xbb\xbfa\r\nb\r\n"


def test_what_cannot_be_changed_is_named(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ReplaceError, match=r"none\.yaml cannot be changed: No such file or directory\.$"):
        rewrite(tmp_path / "none.yaml", str)
    file.write_bytes(b"\xff")
    with pytest.raises(ReplaceError, match=r"it is not UTF-8 text\.$"):
        rewrite(file, str)


def test_a_folder_that_takes_no_new_file_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / ("f" * 250)  # leaves no room for the name of a new file beside it
    file.write_text("a\n")
    with pytest.raises(ReplaceError, match=r"cannot be changed: File name too long\.$"):
        rewrite(file, lambda _: "b\n")
    assert file.read_text() == "a\n"


def test_a_fifo_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ReplaceError, match="it is a FIFO, not a regular file"):
        rewrite(tmp_path / "fifo", lambda text: text)
