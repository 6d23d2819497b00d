"""One entry of a client's file is set or removed; every other character, comments included, stays as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman.router.clients import jsonc
from pointsman.router.clients.client_file import MAX_BYTES, ClientFileError, changed, parsed, read

ENTRY = {"url": "http://127.0.0.1:3282/mcp", "headers": {"Authorization": "Bearer ptm_x"}}

ZED = """\
// Zed settings
{
  "theme": "One Dark", // the dark one
  /* servers */
  "context_servers": {
    // the clock
    "time": {
      "command": "uvx",
      "args": ["mcp-server-time"],
    }, // every day
  },
  "tab_size": 2,
}
"""
CODEX = """\
model = "gpt-5" # the good one

[mcp_servers.time]
command = "uvx"
args = ["mcp-server-time"]   # the clock

# my profile
[profiles.fast]
model = "gpt-5-mini"
"""
GOOSE = """\
GOOSE_MODEL: gpt-5   # the good one
extensions:
  # bundled
  developer:
    enabled: true
    type: builtin
GOOSE_MODE: auto
"""
JSON_TEXTS = [
    "",
    "{}",
    "{\n}\n",
    '{"a": 1}',
    '{"mcpServers": {}}',
    '{\n  "mcpServers": {}\n}',
    '{\n  "mcpServers": {},\n  "b": [1, {"c": "}"}]\n}\n',
    '{"mcpServers": {"x": {"command": "a"}}}',
    '{\n\t"mcpServers": {\n\t\t"x": {"command": "a"}\n\t}\n}\n',
    '{\r\n  "mcpServers": {\r\n    "x": {"command": "a"} // mine\r\n  }\r\n}\r\n',
    '{"mcpServers": {"x": 1 // one\n}}',
    '{"mcpServers": {"x": 1, /* , } */ }}',
    '{"mcpServers": { // nothing yet\n}}',
    '{"a": "\\"}{ // no comment", "mcpServers": {"x": "/* no */"}}',
]


@pytest.mark.parametrize("text", JSON_TEXTS)
def test_an_entry_is_added_to_json_and_removed_again(text: str) -> None:
    before = parsed(text, "json", "it")
    added = changed(text, "json", "mcpServers", "pointsman", ENTRY)
    assert parsed(added, "json", "it") == {
        **before,
        "mcpServers": {**before.get("mcpServers", {}), "pointsman": ENTRY},
    }
    again = changed(added, "json", "mcpServers", "pointsman", {"command": "x"})
    assert parsed(again, "json", "it")["mcpServers"]["pointsman"] == {"command": "x"}
    removed = changed(again, "json", "mcpServers", "pointsman", None)
    assert parsed(removed, "json", "it") == {"mcpServers": {}, **before}
    comments = [part for part in ("// mine", "// one", "/* , } */", "// nothing yet") if part in text]
    assert all(comment in removed for comment in comments)


def test_strict_json_stays_strict() -> None:
    text = '{\n  "mcpServers": {\n    "x": {"command": "a"}\n  }\n}\n'
    added = changed(text, "json", "mcpServers", "pointsman", ENTRY)
    json.loads(added)
    assert changed(added, "json", "mcpServers", "pointsman", None) == text


@pytest.mark.parametrize(
    ("text", "kind", "section"),
    [(ZED, "json", "context_servers"), (CODEX, "toml", "mcp_servers"), (GOOSE, "yaml", "extensions")],
)
def test_comments_and_layout_are_kept(text: str, kind: str, section: str) -> None:
    added = changed(text, kind, section, "pointsman", ENTRY)  # type: ignore[arg-type]
    lines = added.splitlines()
    assert [line for line in text.splitlines() if line not in lines] == []
    removed = changed(added, kind, section, "pointsman", None)  # type: ignore[arg-type]
    assert removed == text.replace("}, // every day", "} // every day")  # the comma would be a trailing one


def test_a_table_in_the_middle_of_toml_is_replaced_and_removed_with_its_sub_tables() -> None:
    text = CODEX.replace("# my profile", '[mcp_servers.time.env]\nTZ = "UTC"\n\n# my profile')
    replaced = changed(text, "toml", "mcp_servers", "time", {"command": "other"})
    assert replaced == CODEX.replace('"uvx"', '"other"').replace('args = ["mcp-server-time"]   # the clock\n', "")
    assert "# my profile\n[profiles.fast]" in changed(text, "toml", "mcp_servers", "time", None)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('mcpServers = { time = { command = "uvx" } }\n', "toml"),
        ("mcpServers.time.command = 'uvx'\n", "toml"),
        ("mcpServers:\n  a: {x: 1}\n  <<: {time: {y: 1}}\n", "yaml"),
        ('{"mcpServers": {"time": 1, "time": {"a": 1}}}', "json"),
        ('{"mcpServers": []}', "json"),
        ('{"mcpServers": ', "json"),
        ("[]", "json"),
    ],
)
def test_what_cannot_be_edited_safely_is_refused(text: str, kind: str) -> None:
    with pytest.raises(ClientFileError):
        changed(text, kind, "mcpServers", "time", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, '"' + "\\" * 200_001, "/*" * 200_000, '{"' * 100_000]
)
def test_hostile_json_ends_quickly_with_an_error(text: str) -> None:
    with pytest.raises(jsonc.JsoncError):
        jsonc.parse(text)


@pytest.mark.parametrize(("text", "kind"), [("a = " + "[" * 50_000, "toml"), ("a: " + "[" * 50_000, "yaml")])
def test_hostile_depth_ends_with_an_error(text: str, kind: str) -> None:
    with pytest.raises(ClientFileError):
        parsed(text, kind, "it")  # type: ignore[arg-type]


def test_an_error_names_the_line() -> None:
    with pytest.raises(ClientFileError, match=r"settings\.json.*line 3"):
        parsed('{\n  // fine\n  "a" 1\n}', "json", "settings.json")


def test_a_file_that_is_too_large_or_no_file_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "config.toml"
    with large.open("wb") as file:
        file.truncate(MAX_BYTES["toml"] + 1)
    with pytest.raises(ClientFileError, match="larger than"):
        read(large, "toml")
    with pytest.raises(ClientFileError, match="directory"):
        read(tmp_path, "json")
    assert read(tmp_path / "none" / "mcp.json", "json").text is None
