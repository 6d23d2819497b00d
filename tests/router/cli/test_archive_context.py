"""`pointsman archive context`: what is entered and brought in can be listed, found and removed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path


def run(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SEARCH_DB_PATH": str(folder / "archive.db"), "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-P", "-m", "pointsman", "archive", "context", *words],
        env=environment,
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def listed(folder: Path, *words: str) -> list[dict[str, str]]:
    shown = run(folder, "list", "--json", *words)
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def test_one_discovery_is_entered_listed_and_removed(tmp_path: Path) -> None:
    added = run(tmp_path, "add", "--type", "rule", "--module", "auth", "Cookies are httpOnly.")
    assert added.returncode == 0, added.stderr
    [item] = listed(tmp_path, "--type", "rule")
    assert (item["id"], item["content"], item["module"]) == (added.stdout.strip(), "Cookies are httpOnly.", "auth")
    typed = run(tmp_path, "add", "--type", "issue", "-", stdin="It broke.\n")
    assert typed.returncode == 0, typed.stderr
    assert "It broke." in run(tmp_path, "list").stdout
    assert run(tmp_path, "remove", item["id"]).returncode == 0
    again = run(tmp_path, "remove", item["id"])
    assert again.returncode == 1
    assert item["id"] in again.stderr
    assert [one["content"] for one in listed(tmp_path)] == ["It broke."]


def test_what_has_no_kind_is_refused_with_the_option_that_helps(tmp_path: Path) -> None:
    refused = run(tmp_path, "add", "Something.")
    assert refused.returncode == 2
    assert "--type" in refused.stderr
    assert "pattern, rule, decision or issue" in refused.stderr
    empty = run(tmp_path, "add", "--type", "rule", "  ")
    assert (empty.returncode, empty.stderr) == (2, "Nothing was added: the content is empty.\n")


def test_folders_and_files_are_brought_in_and_what_cannot_be_taken_is_named(tmp_path: Path) -> None:
    records = tmp_path / "adr"
    records.mkdir()
    (records / "0001-use-postgres.md").write_text("# Use Postgres\n\n## Decision\n\nPostgres.\n")
    (tmp_path / "more.jsonl").write_text('{"type": "rule", "content": "Be kind."}\nbroken\n')
    first = run(tmp_path, "import", "adr", "more.jsonl")
    assert first.returncode == 1
    assert "more.jsonl: line 2" in first.stderr
    assert {one["type"] for one in listed(tmp_path)} == {"decision", "rule"}
    (tmp_path / "more.jsonl").unlink()
    again = run(tmp_path, "import", "--json", "adr")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == {"files": 0, "items": 0, "removed": 0, "problems": []}
    missing = run(tmp_path, "import", "nowhere")
    assert missing.returncode == 2
    assert "nowhere" in missing.stderr


def test_a_hostile_item_is_escaped_and_a_huge_limit_is_refused(tmp_path: Path) -> None:
    hostile = "careful\x9b2J\u202e\x1b[8m"
    run(tmp_path, "add", "--type", "rule", hostile)
    shown, encoded = run(tmp_path, "list").stdout, run(tmp_path, "list", "--json").stdout
    assert "careful" in shown
    assert all(text.replace("\n", "").isprintable() for text in (shown, encoded))
    assert json.loads(encoded)["content"] == hostile
    huge = run(tmp_path, "list", "--limit", "9" * 20)
    assert (huge.returncode, "is not in the range" in huge.stderr) == (2, True)
