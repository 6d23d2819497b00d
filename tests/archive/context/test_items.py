"""What files become: discoveries, sessions and snippets, and what is said of those that cannot."""

from __future__ import annotations

import pytest

from pointsman.archive.context.items import Defaults, Problem, is_readable, read_items
from pointsman.archive.model.context import ContextItem

JANUARY = 1_767_225_600.0  # 2026-01-01T00:00:00Z


def read(name: str, text: str, defaults: Defaults = Defaults()) -> list[ContextItem | Problem]:  # noqa: B008
    return list(read_items(name, text, JANUARY, defaults))


def items(name: str, text: str, defaults: Defaults = Defaults()) -> list[ContextItem]:  # noqa: B008
    found = read(name, text, defaults)
    assert all(isinstance(one, ContextItem) for one in found), found
    return [one for one in found if isinstance(one, ContextItem)]


def problem(name: str, text: str) -> str:
    [found] = read(name, text)
    assert isinstance(found, Problem)
    return str(found)


def test_a_line_of_json_is_a_discovery() -> None:
    line = '{"id": "d1", "type": "Rule", "content": " Cookies are httpOnly ", "module": "auth", "session": "s1", '
    [item] = items("notes.jsonl", line + '"date": "2026-02-03T10:00:00+01:00"}\n\n')
    assert item == ContextItem(
        "d1", "discovery", "rule", "", "Cookies are httpOnly", "2026-02-03T09:00:00Z", module="auth", session="s1"
    )


def test_a_bad_line_costs_itself_and_is_named() -> None:
    text = '{"type": "rule", "content": "one"}\nnot json\n{"type": "law", "content": "x"}\n{"content": "y"}\n[1]\n'
    text += '{"type": "rule", "content": " "}\n{"type": "rule", "content": "z", "date": "soon"}\n'
    first, *rest = read("notes.jsonl", text)
    assert isinstance(first, ContextItem)
    assert [str(one).split(": ")[0] for one in rest] == [f"line {number}" for number in range(2, 8)]
    assert "`law`" in str(rest[1])
    assert "pattern, rule, decision or issue" in str(rest[2])
    assert "content is empty" in str(rest[4])
    assert "2026-01-31" in str(rest[5])


def test_front_matter_says_what_a_note_is() -> None:
    text = "---\ntype: issue\nmodule: auth\ndate: 2026-03-04\ntitle: Refresh race\n---\nTwo refreshes raced.\n"
    [item] = items("a/note.md", text)
    assert (item.type, item.module, item.date, item.title) == ("issue", "auth", "2026-03-04T00:00:00Z", "Refresh race")
    assert item.content == "Two refreshes raced."


@pytest.mark.parametrize(
    ("name", "source", "kind"),
    [
        ("rules/tabs.md", "discovery", "rule"),
        ("Patterns/deep/er/x.md", "discovery", "pattern"),
        ("adr/x.md", "discovery", "decision"),
        ("0007-use-postgres.md", "discovery", "decision"),
        ("docs/ADR-12_use-sqlite.md", "discovery", "decision"),
        ("sessions/monday.md", "session", "session"),
        ("code/login.ts", "code", "code"),
        ("rules/sessions/x.md", "session", "session"),
    ],
)
def test_folders_and_names_tell_the_kind(name: str, source: str, kind: str) -> None:
    [item] = items(name, "Something that was learned.")
    assert (item.source, item.type, item.date) == (source, kind, "2026-01-01T00:00:00Z")


def test_a_note_named_by_its_day_is_no_decision() -> None:
    assert "needs `type`" in problem("2026-01-05-standup.md", "We talked.")


def test_a_record_of_a_decision_is_known_by_its_heading() -> None:
    [item] = items("why-postgres.md", "# Use Postgres #\n\n## Context\n\nIt grew.\n\n## Decision\n\nPostgres it is.\n")
    assert (item.type, item.title) == ("decision", "Use Postgres")


def test_a_session_is_found_by_its_passages_under_its_own_name() -> None:
    text = "".join(f"# Part {part}\n\n{'word ' * 250}{part}\n\n" for part in range(4))
    passages = items("sessions/2026-01-05.md", f"---\nmodule: auth\nid: one\n---\n{text}")
    assert len(passages) >= 4
    assert {(one.session, one.module, one.source) for one in passages} == {("2026-01-05", "auth", "session")}
    assert len({one.id for one in passages}) == len(passages)


def test_a_snippet_keeps_its_file_name() -> None:
    [item] = items("code/auth/login.ts", "export function login() {}\n")
    assert item.path == "login.ts"
    [line] = items("code/more.jsonl", '{"content": "x = 1", "path": "src/x.py", "module": "core"}')
    assert (line.path, line.module, line.type) == ("src/x.py", "core", "code")


def test_ids_stay_the_same_as_long_as_place_and_content_do() -> None:
    [one], [again], [other] = (items("rules/a.md", text) for text in ("Be kind.", "Be kind.", "Be kinder."))
    assert one.id == again.id != other.id


def test_broken_front_matter_is_told() -> None:
    assert problem("rules/a.md", "---\ntype: [\n---\nx").startswith("front matter: ")


def test_what_is_no_character_is_replaced_and_long_texts_are_cut() -> None:
    [item] = items("rules/a.jsonl", '{"content": "a\\ud800b\\u0000c"}')
    assert item.content == "a?b c"
    [long] = items("rules/b.md", "x" * 30_000)
    assert len(long.content) == 20_000


def test_only_files_that_can_hold_items_are_read() -> None:
    assert [name for name in ("a.md", "a.JSONL", "a.txt", "code/a.py", "a.py", "a.png") if is_readable(name)] == [
        "a.md",
        "a.JSONL",
        "a.txt",
        "code/a.py",
    ]
