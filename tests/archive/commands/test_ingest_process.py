"""The command as a process: killed, out of room, and left running."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters

from pointsman.archive.store.sqlite.storage import SqliteStorage
from tests.archive.store.agreement import assert_index_agrees

COMMAND = (sys.executable, "-P", "-m", "pointsman", "archive", "ingest")
DOCUMENTS = 250
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "notes"
    folder.mkdir()
    for number in range(DOCUMENTS):
        text = "".join(f"## Part {part}\n\nWord{number} and [next](n{number + 1}.md).\n\n" for part in range(6))
        (folder / f"n{number}.md").write_text(f"# Note {number}\n\n{text}")
    return folder


@contextmanager
def ingesting(
    folder: Path, store: Path, *options: str, file_bytes: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    def limited() -> None:
        if file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))

    command = (*COMMAND, str(folder), "--db", str(store), *options)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=limited)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def finished(folder: Path, store: Path) -> str:
    with ingesting(folder, store) as process:
        _, said = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, said
    return said


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.02)


def seen(store: Path) -> int:
    """How many documents there are so far, by looking over the writer's shoulder; 0 as long as there is no store."""
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT documents FROM collections WHERE name = 'notes'").fetchone()
    except sqlite3.OperationalError:
        return 0
    return int(found[0]) if found else 0


def there(store: Path) -> int:
    storage = SqliteStorage(store)
    found = storage.documents.collection("notes")
    storage.close()
    return found.documents if found else 0


def assert_whole(store: Path, folder: Path) -> None:
    storage = SqliteStorage(store)
    with storage.database.reading() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert_index_agrees(storage)
    stats = storage.documents.stats()
    files = {path.name: path.read_text() for path in folder.glob("*.md")}
    listed = storage.documents.list_documents("notes", 10_000).documents
    for each in listed:
        document = storage.documents.document("notes", each.id)
        assert document is not None
        assert document.content == files[each.id]
    storage.close()
    assert len(listed) == next(each.documents for each in stats.collections if each.name == "notes")


@pytest.mark.parametrize("seed", [1, 2])
def test_after_kill_9_the_store_is_whole_and_the_next_run_goes_on(corpus: Path, tmp_path: Path, seed: int) -> None:
    store = tmp_path / "archive.db"
    enough = random.Random(seed).randint(1, DOCUMENTS)
    with ingesting(corpus, store) as process:
        until(lambda: seen(store) >= enough or process.poll() is not None)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=LIMIT_S)
    kept = there(store)
    assert kept >= enough
    assert_whole(store, corpus)
    said = finished(corpus, store)
    assert f"notes: {DOCUMENTS - kept} added, 0 changed, {kept} unchanged, 0 removed" in said
    assert there(store) == DOCUMENTS
    assert_whole(store, corpus)
    storage = SqliteStorage(store)
    assert storage.documents.stats().waiting == 0
    storage.close()


def test_without_room_the_store_stays_whole_and_the_next_run_goes_on(corpus: Path, tmp_path: Path) -> None:
    store = tmp_path / "archive.db"
    with ingesting(corpus, store, file_bytes=1_000_000) as process:
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1, said
    assert "The archive's store archive.db" in said or "There is no room left" in said
    assert "Traceback" not in said
    finished(corpus, store)
    assert there(store) == DOCUMENTS
    assert_whole(store, corpus)


def test_a_watched_folder_is_followed_also_after_it_vanished(tmp_path: Path) -> None:
    folder, store = tmp_path / "notes", tmp_path / "archive.db"
    folder.mkdir()
    (folder / "one.md").write_text("one")
    with ingesting(folder, store, "--watch") as process:
        until(lambda: seen(store) == 1)
        (folder / "two.md").write_text("two")
        until(lambda: seen(store) == 2)
        (folder / "one.md").unlink()
        until(lambda: seen(store) == 1)
        shutil.rmtree(folder)
        assert process.stderr is not None
        while "does not exist. Its documents stay" not in (line := process.stderr.readline()):
            assert line, "it ended"
        assert seen(store) == 1
        folder.mkdir()
        (folder / "two.md").write_text("two")
        (folder / "three.md").write_text("three")
        until(lambda: seen(store) == 2)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=LIMIT_S)
    assert process.returncode == 130


def test_on_a_terminal_it_shows_how_far_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "one.md").write_text("one")
    ours, theirs = os.openpty()
    command = (*COMMAND, str(folder), "--db", str(tmp_path / "archive.db"))
    with subprocess.Popen(command, stderr=theirs, env=os.environ | {"TERM": "xterm"}) as process:
        os.close(theirs)
        said = b""
        with suppress(OSError):  # how a terminal says that nobody writes any more
            while part := os.read(ours, 4096):
                said += part
    os.close(ours)
    assert process.returncode == 0
    assert b"notes" in said
    assert b"]  1/1" in said


async def test_what_the_command_puts_in_the_server_finds_and_reads_by_section(tmp_path: Path) -> None:
    folder, store = tmp_path / "notes", tmp_path / "archive.db"
    folder.mkdir()
    (folder / "guide.md").write_text("# Guide\n\n## Usage\n\nPlain.\n\n## API\n\n### Usage\n\nA zebra.\n")
    finished(folder, store)
    env = {"SEARCH_DB_PATH": str(store)}
    child = StdioServerParameters(command=sys.executable, args=["-P", "-m", "pointsman.archive"], env=env)
    async with asyncio.timeout(LIMIT_S), Client(child) as client:
        found = await client.call_tool("documents_search", {"query": "zebra", "collections": ["notes"]})
        asked = {"collection": "notes", "document": "guide.md", "section": "Usage (2)"}
        section = await client.call_tool("documents_get_section", asked)
    assert "A zebra." in found.content[0].text  # type: ignore[union-attr]
    assert section.structured_content is not None
    assert section.structured_content["content"] == "### Usage\n\nA zebra."
