"""Edits of servers and projects: one value changes, and every other character stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pointsman.config.edits import (
    InvalidEntryError,
    NameTakenError,
    UnknownNameError,
    add_project,
    add_server,
    enable_server,
    remove_project,
    remove_server,
    set_project,
    set_server,
    set_token,
)
from pointsman.config.files import preview
from pointsman.config.loader import load
from pointsman.config.yaml.text_edits import EditError

SHAPES = {
    "block": "servers:\n  # first\n  time:  # clock\n    # runs\n    command: uvx\n    args: [a]  # why\n\n"
    "  # next\n  two: {url: 'http://x/'}\n",
    "last in the file": "servers:\n  two:\n    command: b\n  time:\n    command: uvx\n    # end\n# after\n",
    "no newline at the end": "servers:\n  time:\n    command: uvx",
    "flow": "servers: {time: {command: uvx}, two: {command: b}}  # all\n",
    "flow entry": "servers:\n    time: {command: uvx}\n    two: {command: b}\nlisten: {port: 1}\n",
    "JSON": json.dumps({"servers": {"time": {"command": "uvx"}}, "listen": {"port": 1}}, indent=2),
    "pasted": json.dumps({"mcpServers": {"time": {"command": "uvx", "disabled": False}}}, indent=2) + "\n",
    "with comments": '{\n  // mine\n  "mcpServers": {\n    "time": {"command": "uvx"}, // #1\n  },\n}\n',
    "JSON between keys": 'servers:\n  two:\n    command: b\n  # 3\n\n{\n  "mcpServers": {\n    "time": '
    '{"command": "uvx"}\n  }\n}\nlisten: {port: 1}\n',
    "two JSON blocks": '{"servers": {"two": {"command": "b"}}}\n{"mcpServers": {"time": {"command": "uvx"}}}\n',
    "a path as its id": "servers:\n  host.example/tools/time:  # clock\n    command: uvx\n",
    "set already": "servers:\n  time:\n    enabled: true  # yes\n    command: uvx\n",
    "without a value": "servers:\n  time:\n    command: uvx\n    enabled:   # as usual\n",
    "Windows": "servers:\r\n  time:\r\n    command: uvx\r\n\r\nlisten: {port: 1}\r\n",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_server_is_disabled_and_enabled_and_all_else_stays(shape: str, tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_bytes(SHAPES[shape].encode())
    before = load(file, {})
    enable_server(file, "time", False, {})
    after = load(file, {})
    assert not after.servers["time"].enabled
    kept = after.servers["time"].model_copy(update={"enabled": before.servers["time"].enabled})
    assert after.model_copy(update={"servers": {**after.servers, "time": kept}}) == before
    comments = [part for part in SHAPES[shape].split() if part.startswith("#")]
    assert [part for part in file.read_text().split() if part.startswith("#")] == comments
    enable_server(file, "time", True, {})
    assert load(file, {}) == before


@pytest.mark.parametrize("shape", SHAPES)
def test_a_server_is_added_and_removed(shape: str, tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_bytes(SHAPES[shape].encode())
    entry = {"command": "npx", "args": ["-y", "@scope/server", "a b", "#x"], "env": {"KEY": "${HOME}/x: y"}}
    add_server(file, "new", entry, {"HOME": "/h"})
    added = load(file, {"HOME": "/h"}).servers["new"]
    assert (added.command, added.args) == ("npx", ("-y", "@scope/server", "a b", "#x"))
    assert added.env["KEY"].get_secret_value() == "/h/x: y"
    with pytest.raises(NameTakenError):
        add_server(file, "time", entry, {})
    remove_server(file, "new", {})
    remove_server(file, "time", {})
    assert "time" not in load(file, {"HOME": "/h"}).servers


@pytest.mark.parametrize("given", ["My Notes", "My-Notes"])
def test_a_server_is_found_by_the_name_that_is_written_and_by_its_id(given: str, tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text("mcpServers:\n  My Notes: {command: notes}  # mine\n  other: {command: x}\n")
    enable_server(file, given, False, {})
    assert not load(file, {}).servers["My-Notes"].enabled
    with pytest.raises(NameTakenError):
        add_server(file, given, {"command": "x"}, {})
    remove_server(file, given, {})
    assert list(load(file, {}).servers) == ["other"]


def test_an_unknown_server_is_refused_with_the_likely_name(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(SHAPES["block"])
    with pytest.raises(UnknownNameError) as refused:
        enable_server(file, "tmie", False, {})
    assert refused.value.hint == "time"
    with pytest.raises(UnknownNameError):
        remove_server(file, "tmie", {})
    assert file.read_text() == SHAPES["block"]


def test_an_entry_that_is_an_alias_is_left_to_a_person(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    text = "servers:\n  one: &one\n    command: a\n  time: *one\n"
    file.write_text(text)
    with pytest.raises(EditError, match="edit the file by hand"):
        enable_server(file, "time", False, {})
    assert file.read_text() == text


def test_a_server_that_a_token_names_is_not_removed(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    text = SHAPES["block"] + f"tokens:\n  a: {{sha256: {'a' * 64}, servers: [time]}}\n"
    file.write_text(text)
    with pytest.raises(InvalidEntryError, match="no server `time`"):
        remove_server(file, "time", {})
    assert file.read_text() == text


@pytest.mark.parametrize(
    "text",
    [
        "projects:\n  red:\n    name: Red  # colour\n  blue: {}\n",
        "projects:\n  red: {}  # colour\n",
        "projects:\n  red:\n  blue:\n",
        "projects: {red: {optimization: bm25}}\n",
        '{"projects": {"red": {}}}',
        "projects:\n  red:\n    optimization: null # off\n    exposure: flat\n",
    ],
)
def test_a_project_is_set(text: str, tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(text)
    set_project(file, "red", {"optimization": "cloud"}, {})
    assert load(file, {}).projects["red"].optimization == "cloud"
    set_project(file, "red", {"optimization": None}, {})
    assert load(file, {}).projects["red"].optimization is None
    set_project(file, "", {"optimization": "cloud"}, {})
    assert load(file, {}).unassigned.optimization == "cloud"
    set_project(file, "", {"optimization": None}, {})
    assert load(file, {}).unassigned.optimization is None
    add_project(file, "green", {"optimization": "bm25"}, {})
    assert load(file, {}).projects["green"].optimization == "bm25"
    with pytest.raises(UnknownNameError):
        set_project(file, "rde", {"optimization": None}, {})


WITH_LISTS = """\
servers:
  a:  # the first
    url: https://a.example/mcp  # keep
    name: "Café"
    projects: [x, y]  # these
    tool_permissions: {erase: false}  # why
  b:
    command: cat
    projects:
      - x
      - y  # both
    # after the list
    enabled: true
projects: {x: {}, y: {}}
"""


@pytest.mark.parametrize(
    ("server_id", "keys", "value", "before", "after"),
    [
        ("a", ("projects",), ["y"], "projects: [x, y]  # these", "projects: [y]  # these"),
        ("a", ("url",), "https://b.example/", "https://a.example/mcp  # keep", '"https://b.example/"  # keep'),
        ("a", ("name",), "Büro ☃", '"Café"', '"Büro ☃"'),
        ("a", ("tool_permissions", "erase"), True, "{erase: false}", "{erase: true}"),
        ("a", ("tool_permissions", "a b"), False, "{erase: false}", '{erase: false, "a b": false}'),
        ("b", ("projects",), [], "projects:\n      - x\n      - y  # both", "projects: []  # both"),
        (
            "b",
            ("tool_permissions", "x"),
            False,
            "    enabled: true\n",
            "    enabled: true\n    tool_permissions: {x: false}\n",
        ),
    ],
)
def test_one_value_of_a_server_changes_and_all_else_stays(
    server_id: str, keys: tuple[str, ...], value: Any, before: str, after: str, tmp_path: Path
) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(WITH_LISTS)
    shown = set_server(file, server_id, {keys: value}, {}, preview)
    assert file.read_text() == WITH_LISTS
    assert shown.after == WITH_LISTS.replace(before, after)
    assert set_server(file, server_id, {keys: value}, {}) == shown
    assert file.read_text() == shown.after


def test_a_list_with_comments_between_its_items_is_left_to_the_person(tmp_path: Path) -> None:
    file = tmp_path / "pointsman.yaml"
    file.write_text(WITH_LISTS.replace("      - x\n", "      - x\n      # and\n"))
    with pytest.raises(EditError):
        set_server(file, "b", {("projects",): ["y"]}, {})


def test_the_rights_of_a_token_change_and_all_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.yaml"
    digest = f"    sha256: {'a' * 64}  # 2026\n"
    text = "projects: {a: {}, b: {}}\ntokens:\n  # mine\n  laptop:\n" + digest + "    projects: [a]\n"
    path.write_text(text)
    set_token(path, "laptop", {"projects": ["a", "b"], "expires": "2027-01-31"}, {})
    assert path.read_text() == text.replace("[a]\n", "[a, b]\n    expires: 2027-01-31\n")
    set_token(path, "laptop", {"expires": None}, {})
    assert load(path, {}).tokens["laptop"].expires is None
    with pytest.raises(UnknownNameError, match="laptob"):
        set_token(path, "laptob", {"projects": []}, {})


def test_a_project_that_is_in_use_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "pointsman.yaml"
    text = "projects:\n  a: {}  # in use\n  b: {}\nservers: {s: {command: x, projects: [a]}}\n"
    path.write_text(text)
    with pytest.raises(InvalidEntryError, match=r"servers\.s\.projects"):
        remove_project(path, "a", {})
    assert path.read_text() == text
    remove_project(path, "b", {})
    assert path.read_text() == text.replace("  b: {}\n", "")
