"""What is shown cannot do anything to a terminal."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pointsman.core.escape import escaped, escaped_json
from pointsman.router.audit.display import Table, in_blocks, json_line, json_lines
from tests.router.audit.samples import open_log, request, rows

NASTY = "a\x1b[31mred\x07\r\n\u202egnp.exe\u2066\u200b\U000e0041\x9bz"


def test_nothing_reaches_the_terminal_as_a_command(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin(request(client=NASTY), "execute", tool_key=f"a:{NASTY}", server_id="a").finish("error", NASTY)
    log.begin(request(), "discovery", queries=[NASTY]).finish("ok")
    lines = list(Table().lines(rows(tmp_path)))
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)


def test_the_json_is_printable_and_says_the_same(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin(request(client=NASTY), "discovery", queries=["naïve 東京 😀"]).finish("ok")
    (row,) = rows(tmp_path)
    line = json_line(row)
    assert line.isprintable()
    assert "naïve 東京 😀" in line
    assert msgspec.json.decode(line)["client"] == NASTY


def test_many_rows_at_once_are_the_lines_of_each(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for client in ("plain", NASTY, "DEL \x7f", "naïve 東京 😀", "line\u2028end\r\n"):
        log.begin(request(client=client), "discovery", queries=[client, ""]).finish("ok", results=2)
    found = rows(tmp_path)
    expected = [escaped_json(msgspec.json.encode(row).decode()) for row in found]
    assert json_lines(found).decode() == "".join(f"{line}\n" for line in expected)
    assert [json_line(row) for row in found] == expected
    blocks = list(in_blocks(found * 1_000))
    assert [row for block in blocks for row in block] == found * 1_000
    assert len(blocks[0]) == 1


@pytest.mark.parametrize("text", ["plain", "naïve 東京 😀", "a\\b"])
def test_ordinary_text_is_shown_as_it_is(text: str) -> None:
    assert escaped(text) == text


def test_columns_stand_in_line_also_with_wide_characters(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for client in ("東京", "claude", "x" * 100):
        log.begin(request(client=client), "execute", tool_key="HERE:x", server_id="a").finish("ok")
    header, wide, narrow, long = Table().lines(rows(tmp_path))
    column = header.index("WHAT")
    assert narrow.index("HERE") == column
    assert long.index("HERE") == column
    assert wide.index("HERE") == column - 2  # two characters of twice the width
    assert "…" in long


def test_a_call_under_way_says_so_and_a_code_is_shown(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin(request(), "execute", tool_key="a:b", server_id="a").finish("timeout", "timeout")
    log.begin(request(method="resources/read"), "execute")
    _, ended, under_way = Table().lines(rows(tmp_path))
    assert "[timeout] a:b" in ended
    assert "(under way)" in under_way
    assert "resources/read" in under_way


def test_a_read_shows_its_method_and_what_or_whom_it_asked(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.begin(request(method="prompts/get"), "read", tool_key="notes:daily", server_id="notes").finish("ok")
    log.begin(request(method="resources/read"), "read", server_id="notes").finish("ok")
    log.record_refusal("unknown_resource", kind="read", method="resources/read", token_id="laptop")
    _, prompt, resource, unknown = Table().lines(rows(tmp_path))
    assert prompt.endswith("prompts/get notes:daily")
    assert resource.endswith("resources/read notes")
    assert unknown.endswith("[unknown_resource] resources/read")


def test_the_owners_answers_are_told_apart(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for answer in ("once", "always", "refuse", "withdraw"):
        log.record_change(f"approval/{answer}", "tokens.t", client="page", server_id="a", tool_key="a:b")
    _, *lines = Table().lines(rows(tmp_path))
    assert [line.partition("[tokens.t] ")[2] for line in lines] == [
        f"approval/{answer} a:b" for answer in ("once", "always", "refuse", "withdraw")
    ]
