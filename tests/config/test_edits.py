"""A program's edit changes its entry and nothing else."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.config.edits import (
    InvalidEntryError,
    NameTakenError,
    UnknownNameError,
    add_entry,
    add_token,
    remove_entry,
    remove_token,
    replace_token_hash,
)
from pointsman.config.errors import ConfigError
from pointsman.config.loader import load, parse
from pointsman.config.sample import render_sample
from pointsman.config.yaml.document import Document
from pointsman.config.yaml.text_edits import EditError, insert, remove

A, B, C = "a" * 64, "b" * 64, "c" * 64

SHAPES = {
    "the sample": render_sample(A),
    "a comment beside each line": f"tokens:  # who\n  a:  # first\n    sha256: {A}  # hash\n  # last word\n\n# end\n",
    "a comment inside the last entry": f"tokens:\n  a:\n    sha256: {A}\n    # expires: later\n\nlisten: {{port: 1}}\n",
    "other indentation": f"tokens:\n      a:\n         sha256: '{A}'\n\n\naudit:\n   arguments:   false\n",
    "one line": f"tokens: {{a: {{sha256: {A}}}}}\nlisten: {{port: 1}}  # one\n",
    "a comma too many": f"tokens: {{a: {{sha256: {A}}},}}\n",
    "JSON": json.dumps({"listen": {"port": 1}, "tokens": {"a": {"sha256": A}}}),
    "JSON on many lines": json.dumps({"tokens": {"a": {"sha256": A}}, "listen": {"port": 1}}, indent=4) + "\n",
    "JSON without tokens": '{"tokens": {}}',
    "Windows": f"tokens:\r\n  a:\r\n    sha256: {A}\r\n\r\nlisten: {{port: 1}}\r\n",
    "all entries commented out": "tokens:\n  # a:\n  #   sha256: ...\n\nlisten: {port: 1}\n",
    "document marks": f"---\ntokens:\n a:\n  sha256: {A}\n...\n",
    "shared parts": f"tokens:\n  a: &a\n    sha256: {A}\n  b:\n    <<: *a\n    sha256: {B}\n",
    "a lone line separator": f"# \u2028 \x85\ntokens:\n  a:\n    sha256: {A}\nlisten: {{host: 'a\u2028b'}}\n",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pointsman.yaml"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_token_added_and_removed_leaves_the_file_as_it_was(shape: str, file: Path) -> None:
    before = SHAPES[shape].encode()
    file.write_bytes(before)
    add_token(file, "laptop", C, ["*", ""], ["*"], "2027-01-01", {})
    token = load(file, {}).tokens["laptop"]
    assert (token.sha256, token.projects, token.servers) == (C, ("*", ""), ("*",))
    assert token.expires is not None
    assert token.expires.date() == date(2027, 1, 1)
    remove_token(file, "laptop", {})
    assert file.read_bytes() == before


@pytest.mark.parametrize("shape", [shape for shape, text in SHAPES.items() if A in text])
def test_a_new_hash_changes_nothing_else(shape: str, file: Path) -> None:
    before = SHAPES[shape]
    file.write_bytes(before.encode())
    replace_token_hash(file, A, C, {})
    bare = file.read_bytes().decode().replace(f'"{C}"', C).replace(f"'{C}'", C)
    assert bare == before.replace(f'"{A}"', A).replace(f"'{A}'", A).replace(A, C)
    assert C in {token.sha256 for token in load(file, {}).tokens.values()}


def test_a_hash_that_no_token_has_or_that_comes_from_elsewhere_is_not_replaced(file: Path) -> None:
    file.write_text(f"tokens: {{a: {{sha256: {A}}}}}\n")
    with pytest.raises(UnknownNameError):
        replace_token_hash(file, B, C, {})
    shared = f"tokens:\n  a: &a\n    sha256: {A}\n  b: *a\n"
    file.write_text(shared)
    with pytest.raises((EditError, InvalidEntryError)):
        replace_token_hash(file, A, C, {})
    assert file.read_text() == shared


def test_a_new_token_reads_as_if_a_person_had_written_it(file: Path) -> None:
    file.write_text(f"tokens:\n  a:\n    sha256: {A}\n\n# the rest\nlisten: {{port: 1}}\n")
    add_token(file, "laptop", "1" * 64, ["", "*"], [], "2027-01-01", {})
    assert file.read_text() == (
        f"tokens:\n  a:\n    sha256: {A}\n"
        f'  laptop:\n    sha256: "{"1" * 64}"\n    projects: ["", "*"]\n    servers: []\n    expires: 2027-01-01\n'
        "\n# the rest\nlisten: {port: 1}\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "tokens:\nENTRY"),
        ("# mine", "# mine\n\ntokens:\nENTRY"),
        ("listen: {port: 1}", "listen: {port: 1}\n\ntokens:\nENTRY"),
        ("tokens:", "tokens:\nENTRY"),
        ("tokens: {}  # none\nlisten: {}\n", "tokens:  # none\nENTRYlisten: {}\n"),
        ("tokens: null\n", "tokens:\nENTRY"),
    ],
)
def test_a_section_is_opened_where_there_is_none(before: str, after: str, file: Path) -> None:
    file.write_text(before)
    add_token(file, "a", A, ["*"], ["*"], None, {})
    entry = f'  a:\n    sha256: {A}\n    projects: ["*"]\n    servers: ["*"]\n'
    assert file.read_text() == after.replace("ENTRY", entry)
    assert list(load(file, {}).tokens) == ["a"]


def test_an_entry_in_the_middle_goes_with_its_own_comments_only(file: Path) -> None:
    file.write_text(
        f"tokens:\n  # about a\n  a: {{sha256: {A}}}\n  # about b\n  b:\n    # inside b\n    sha256: {B}\n"
        f"    # still b\n  # about c\n  c: {{sha256: {C}}}\n"
    )
    remove_token(file, "b", {})
    assert file.read_text() == (
        f"tokens:\n  # about a\n  a: {{sha256: {A}}}\n  # about b\n  # about c\n  c: {{sha256: {C}}}\n"
    )


def test_the_last_token_can_be_revoked(file: Path) -> None:
    file.write_text(f"tokens:\n  a:\n    sha256: {A}\nlisten: {{port: 1}}\n")
    remove_token(file, "a", {})
    assert file.read_text() == "tokens:\nlisten: {port: 1}\n"
    assert load(file, {}).tokens == {}


def test_a_name_is_taken_once(file: Path) -> None:
    file.write_text(f"tokens: {{a: {{sha256: {A}}}}}\n")
    with pytest.raises(NameTakenError):
        add_token(file, "a", B, [], [], None, {})
    with pytest.raises(UnknownNameError) as caught:
        remove_token(file, "A", {})
    assert caught.value.hint == "a"


@pytest.mark.parametrize(
    ("name", "sha256", "projects", "reason"),
    [
        ("b", B, ["reserch"], "tokens.b.projects[0]: no project `reserch` (did you mean `research`?)"),
        ("b", A, [], "tokens.b.sha256: is the secret of token `a`, too; create a new one"),
        ("b b", B, [], 'tokens."b b": an id may contain letters, digits, `_` and `-`, but not `__`'),
    ],
)
def test_an_entry_that_would_break_the_file_is_refused(
    name: str, sha256: str, projects: list[str], reason: str, file: Path
) -> None:
    before = f"projects: {{research: {{}}}}\ntokens: {{a: {{sha256: {A}}}}}\n"
    file.write_text(before)
    with pytest.raises(InvalidEntryError) as caught:
        add_token(file, name, sha256, projects, [], None, {})
    assert str(caught.value) == reason
    assert file.read_text() == before


def test_a_server_that_a_token_names_cannot_be_removed(file: Path) -> None:
    file.write_text(f"servers: {{time: {{command: uvx}}}}\ntokens: {{a: {{sha256: {A}, servers: [time]}}}}\n")
    with pytest.raises(InvalidEntryError, match=r"tokens\.a\.servers\[0\]: no server `time`"):
        remove_entry(file, "servers", "time", {})


def test_what_was_wrong_before_does_not_stop_a_revocation(file: Path) -> None:
    file.write_text(f"servers: {{a: {{command: '${{ONLY_THE_DAEMON_HAS_IT}}'}}}}\ntokens: {{a: {{sha256: {A}}}}}\n")
    add_token(file, "b", B, ["*"], ["a"], None, {})
    remove_token(file, "a", {})
    assert list(load(file, {"ONLY_THE_DAEMON_HAS_IT": "x"}).tokens) == ["b"]


def test_a_file_that_is_no_yaml_stays_as_it_is(file: Path) -> None:
    file.write_text("tokens: {a: [")
    with pytest.raises(ConfigError):
        add_token(file, "b", B, [], [], None, {})
    assert file.read_text() == "tokens: {a: ["


@pytest.mark.parametrize(
    "text",
    [
        f"x: &t {{a: {{sha256: {A}}}}}\ntokens: *t\n",  # the entries stand somewhere else
        "tokens: [a]\n",
        "- tokens\n",
        "listen: {port: 1}\n...\n",
    ],
)
def test_what_only_a_person_can_edit_is_left_to_the_person(text: str, file: Path) -> None:
    file.write_text(text)
    with pytest.raises(EditError):
        add_token(file, "b", B, [], [], None, {})
    assert file.read_text() == text


def test_servers_can_be_added_too(file: Path) -> None:
    file.write_text("servers:\n  a: {command: x}\n")
    server = {"command": "uvx", "args": ["mcp-server-time", "--x=${Y:-1}", "- a"], "env": {"TZ": "${TZ}"}}
    add_entry(file, "servers", "time", server, {"TZ": "UTC"})
    config = load(file, {"TZ": "UTC"})
    assert config.servers["time"].args == ("mcp-server-time", "--x=1", "- a")
    assert config.servers["time"].env["TZ"].get_secret_value() == "UTC"


COMMENTS = st.text("abc #:'\"-{}", max_size=12).map(lambda text: f"# {text}")
NAMES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,6}", fullmatch=True)


@st.composite
def files(draw: st.DrawFn) -> str:
    """Files as people write them: sections in any order, entries in any style, comments and blank lines anywhere."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    step = " " * draw(st.integers(1, 4))
    lines: list[str] = []

    def litter(indent: str) -> None:
        for comment in draw(st.lists(st.just("") | COMMENTS, max_size=2)):
            lines.append(indent + comment if comment else "")

    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    for section in draw(st.permutations(["listen", "tokens", "audit"])):
        litter(draw(st.sampled_from(["", step])))
        if section != "tokens":
            lines.append(f"{section}: {{}}  {draw(COMMENTS)}")
            continue
        lines.append("tokens:")
        for number, name in enumerate(names):
            litter(step)
            quoted = draw(st.sampled_from([name, f'"{name}"', f"'{name}'"]))
            digest = f'"{number:064d}"'
            if draw(st.booleans()):
                lines.append(f"{step}{quoted}: {{sha256: {digest}}} {draw(COMMENTS)}")
                continue
            lines.append(f"{step}{quoted}:")
            litter(step * 2)
            lines.append(f"{step * 2}sha256: {digest}")
            litter(step * 2)
    return newline.join(lines) + draw(st.sampled_from(["", newline])) * bool(lines)


@settings(deadline=None)
@given(files(), NAMES)
def test_whatever_the_style_only_the_entry_changes(text: str, name: str) -> None:
    old = Document(text, "f.yaml", {})
    if name in old.data["tokens"]:
        return
    value: dict[str, Any] = {"sha256": C, "projects": ["*"], "servers": []}
    longer = insert(text, old.root, "tokens", name, value)
    new = Document(longer, "f.yaml", {})
    assert new.data == {**old.data, "tokens": {**old.data["tokens"], name: value}}
    assert remove(longer, new.root, "tokens", name).rstrip("\r\n") == text.rstrip("\r\n")
    assert parse(longer, "f.yaml", {}).tokens.keys() == {*old.data["tokens"], name}
