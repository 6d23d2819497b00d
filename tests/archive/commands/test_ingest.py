"""`pointsman archive ingest` as a person and a script see it."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pointsman.archive.ingest import run as running
from pointsman.archive.ingest.files import Kind, read_bytes
from pointsman.archive.model.documents import FileState
from pointsman.router.cli.main import main

Run = Callable[..., Result]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "alpha.md").write_text("# Alpha\n\nA zebra crossed the road.\n")
    (folder / "beta.txt").write_text("A quiet lake.\n")
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("SEARCH_DB_PATH", str(tmp_path / "archive.db"))
    monkeypatch.setenv("POINTSMAN_ARCHIVE_EMBEDDINGS", "none")  # vectors have tests of their own
    monkeypatch.chdir(tmp_path)

    def command(*args: object) -> Result:
        return CliRunner().invoke(main, ["archive", *map(str, args)])

    return command


def collections(run: Run) -> dict[str, dict[str, object]]:
    found = json.loads(run("list", "--json").stdout)["collections"]
    return {each["name"]: each for each in found if each["name"] != "pointsman-docs"}


def test_a_folder_is_ingested_and_found(run: Run, notes: Path) -> None:
    done = run("ingest", notes)
    assert done.exit_code == 0, done.output
    assert done.stderr == "notes: 2 added, 0 changed, 0 unchanged, 0 removed, 0 skipped.\n"
    assert done.stdout == ""
    (hit,) = json.loads(run("search", "zebra", "--json").stdout)["results"]
    assert (hit["collection"], hit["document"], hit["title"], hit["line"]) == ("notes", "alpha.md", "Alpha", 1)
    assert "zebra crossed" in run("search", "zebra").stdout
    assert run("list", "notes").stdout == "alpha.md\tAlpha\nbeta.txt\tbeta\n"


def test_vectors_are_made_in_the_same_run(run: Run, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POINTSMAN_ARCHIVE_EMBEDDINGS", "static")
    assert run("ingest", notes).exit_code == 0
    stats = json.loads(run("stats", "--json").stdout)
    assert stats["waiting"] == 0
    assert sum(stats["vectors"].values()) == sum(each["chunks"] for each in stats["collections"])
    assert run("embed").stderr == "Computed vectors for 0 passages.\n"


def test_embedding_that_fails_leaves_the_text_in_place_and_says_what_to_do(
    run: Run, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _refusing() as url:
        monkeypatch.setenv("POINTSMAN_ARCHIVE_EMBEDDINGS", "openai-compatible")
        monkeypatch.setenv("POINTSMAN_ARCHIVE_EMBEDDINGS_URL", url)
        monkeypatch.setenv("POINTSMAN_ARCHIVE_EMBEDDINGS_MODEL", "any")
        done = run("ingest", notes)
    assert done.exit_code == 1
    assert "2 added" in done.stderr
    assert "rejected the key (401)" in done.stderr
    assert "The text is in the store; compute the vectors later with `pointsman archive embed`." in done.stderr
    assert collections(run)["notes"]["documents"] == 2


@contextmanager
def _refusing() -> Iterator[str]:
    """A server that lets nobody in."""

    class Refuse(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Refuse) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_a_broken_file_is_named_and_the_exit_code_says_so(run: Run, notes: Path) -> None:
    (notes / "broken.md").write_bytes(b"\xff\xfe\xff")
    done = run("ingest", notes)
    assert done.exit_code == 1
    assert "2 added" in done.stderr
    assert "1 skipped.\n  broken.md: it is not utf-16-le" in done.stderr
    again = json.loads(run("ingest", notes, "--json").stdout)
    assert list(again["folders"][0]["broken"]) == ["broken.md"]
    assert again["folders"][0]["unchanged"] == 2


def test_the_manifest_comes_from_options_then_the_file_then_what_was_there(run: Run, notes: Path) -> None:
    (notes / "collection.yaml").write_text("name: my-notes\nalias: mine\nversion: 1.5\ndescription: All of it\n")
    run("ingest", notes)
    wanted = {"name": "my-notes", "alias": "mine", "version": "1.5", "description": "All of it", "documents": 2}
    assert collections(run) == {"my-notes": wanted}
    run("ingest", notes, "--description", "Changed")
    (notes / "collection.yaml").write_text("name: my-notes\n")
    run("ingest", notes)
    assert collections(run) == {"my-notes": {**wanted, "description": "Changed"}}
    run("ingest", notes, "--collection", "mine")  # its alias
    assert set(collections(run)) == {"my-notes"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nam: x\n", "`nam`: Extra inputs are not permitted. Known keys: name, alias, version, description."),
        ("name: ''\n", "`name`: String should have at least 1 character"),
        ("a: b: c\n", "line 1: mapping values are not allowed here"),
        ("- x\n", "it must be keys and values"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused_before_anything_is_read(
    run: Run, notes: Path, text: str, reason: str
) -> None:
    (notes / "collection.yaml").write_text(text)
    refused = run("ingest", notes)
    assert refused.exit_code == 2
    assert f"{notes / 'collection.yaml'}: {reason}" in refused.stderr
    assert collections(run) == {}


def test_several_folders_make_several_collections_or_one(run: Run, notes: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "alpha.md").write_text("another")
    assert run("ingest", notes, other).exit_code == 0
    assert {name: each["documents"] for name, each in collections(run).items()} == {"notes": 2, "other": 1}
    assert run("ingest", notes, other, "--collection", "both").exit_code == 0
    assert collections(run)["both"]["documents"] == 3
    refused = run("ingest", notes, other, "--alias", "x")
    assert (refused.exit_code, "needs --collection" in refused.stderr) == (2, True)


def test_orders_that_make_no_sense_are_refused_in_words(run: Run, notes: Path, tmp_path: Path) -> None:
    (notes / "sub").mkdir()
    for order, reason in (
        ((tmp_path / "gone",), f"There is no folder {tmp_path / 'gone'}."),
        ((notes / "alpha.md",), "is a file. Name its folder"),
        ((notes, "--include", "!"), "Not a pattern: !"),
        ((notes, notes / "sub", "--collection", "x"), "Name only one of them"),
        ((notes, "--collection", "pointsman"), "ships with Pointsman"),
        ((notes, "--collection", "a\nb"), "printable characters"),
        (
            (notes, "--alias", "pointsman"),
            '"pointsman" is already the name or alias of the collection "pointsman-docs"',
        ),
    ):
        refused = run("ingest", *order)
        assert refused.exit_code in (1, 2)
        assert reason in refused.stderr
        assert "Traceback" not in refused.output
    assert collections(run).get("notes", {}).get("documents", 0) == 0


def test_an_emptied_folder_is_refused_with_the_option_that_allows_it(run: Run, notes: Path) -> None:
    run("ingest", notes)
    for file in notes.iterdir():
        file.unlink()
    refused = run("ingest", notes)
    assert refused.exit_code == 1
    assert "--allow-empty" in refused.stderr
    assert run("ingest", notes, "--allow-empty").exit_code == 0
    assert collections(run)["notes"]["documents"] == 0


def test_nothing_found_creates_no_collection(run: Run, notes: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    refused = run("ingest", nothing)
    assert refused.exit_code == 1
    assert f"No readable files in {nothing}. Add other file types with --include." in refused.stderr
    assert "No collection `nothing` was created, because nothing was found." in refused.stderr
    assert "nothing" not in collections(run)
    assert run("ingest", nothing, "--allow-empty").exit_code == 0
    assert collections(run)["nothing"]["documents"] == 0
    both = run("ingest", notes, nothing, "--collection", "all")
    assert both.exit_code == 0, both.stderr
    assert collections(run)["all"]["documents"]


def test_a_locked_store_is_an_error_in_words_and_the_next_run_goes_on(run: Run, notes: Path, tmp_path: Path) -> None:
    run("list")  # makes the store
    other = sqlite3.connect(tmp_path / "archive.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    locked = run("ingest", notes)
    other.execute("ROLLBACK")
    other.close()
    assert locked.exit_code == 1
    assert "is being written by another process. Try again in a moment." in locked.stderr
    assert run("ingest", notes).exit_code == 0


def test_ctrl_c_keeps_what_was_committed_and_says_how_to_go_on(
    run: Run, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "BATCH_DOCUMENTS", 1)

    def interrupted(path: Path, kind: Kind) -> tuple[bytes, FileState]:
        if path.name == "beta.txt":
            signal.raise_signal(signal.SIGINT)
        return read_bytes(path, kind)

    with monkeypatch.context() as patched:
        patched.setattr("pointsman.archive.ingest.run.read_bytes", interrupted)
        stopped = run("ingest", notes)
    assert stopped.exit_code == 130
    assert "repeat the command to resume" in stopped.stderr
    assert collections(run)["notes"]["documents"] == 1
    assert "1 added, 0 changed, 1 unchanged" in run("ingest", notes).stderr


def test_documents_and_collections_can_be_removed(run: Run, notes: Path) -> None:
    run("ingest", notes, "--alias", "n")
    wrong = run("remove", "n", "alfa.md")
    assert (wrong.exit_code, "Did you mean `alpha.md`?" in wrong.stderr) == (2, True)
    assert run("remove", "n", "alpha.md").exit_code == 0
    assert collections(run)["notes"]["documents"] == 1
    assert run("remove", "nots").exit_code == 2
    assert run("remove", "n").exit_code == 0
    assert collections(run) == {}


def test_reading_an_archive_that_is_no_archive_is_refused_in_words(run: Run, tmp_path: Path) -> None:
    (tmp_path / "archive.db").write_bytes(b"certainly not a database" * 100)
    for args in (("list",), ("stats",), ("search", "x"), ("remove", "x"), ("embed",)):
        refused = run(*args)
        assert refused.exit_code == 1
        assert "archive.db is damaged or not a database" in refused.stderr


def test_names_and_titles_play_no_tricks_on_a_terminal(run: Run, notes: Path) -> None:
    (notes / "evil\x1b[2J.md").write_text("# Title \x1b]0;owned\x07\n\nA zebra \x1b[31m.\n")
    (notes / "bad\x1b.md").write_bytes(b"\xff")
    said = run("ingest", notes).output + run("list", "notes").output + run("search", "zebra").output
    assert "evil\ufffd[2J.md" in said
    assert "\x1b" not in said
    assert "\x07" not in said


def test_the_name_of_a_folder_plays_no_tricks_on_a_terminal(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "red\x1b[31m"
    folder.mkdir()
    (folder / "a.md").write_text("zebra")
    told = [run("ingest", folder), run("list"), run("stats"), run("remove", "no\x1b[31m"), run("remove", folder.name)]
    assert all("red\ufffd[31m" in each.output for each in (*told[:3], told[4]))
    assert not any("\x1b" in each.output for each in told)


def test_who_does_without_vectors_is_not_told_to_make_them(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "archive embed" not in run("stats").stdout
    monkeypatch.setenv("POINTSMAN_ARCHIVE_EMBEDDINGS", "static")
    assert "archive embed" in run("stats").stdout


def test_search_says_when_there_is_nothing(run: Run, notes: Path) -> None:
    run("ingest", notes)
    nothing = run("search", "--collection", "notes", "xylophone")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "No results." in nothing.stderr
    for query in ("", "  "):
        empty = run("search", query)
        assert (empty.exit_code, empty.stdout) == (2, "")
        assert empty.stderr.startswith("The query is empty.")
    assert run("search", "--collection", "nots", "x").stderr.startswith("No collection `nots`. Did you mean `notes`?")
    assert json.loads(run("search", "--json", "--", "-zebra", "lake").stdout)["results"][0]["document"] == "beta.txt"
