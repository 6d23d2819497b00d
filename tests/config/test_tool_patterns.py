"""Patterns over tool keys: their form, what they match, and that no name or pattern makes a match costly."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.config.errors import ConfigError
from pointsman.config.loader import parse
from pointsman.config.tool_patterns import MAX_NAME_CHARS, MAX_PATTERN_CHARS, MAX_PATTERNS, Glob, ToolPatterns


@pytest.mark.parametrize(
    ("patterns", "allowed"),
    [
        (["github:*"], {"github:get_issue", "github:delete_repo"}),
        (["github:get_*"], {"github:get_issue"}),
        (["*:get_*"], {"github:get_issue", "notes:get_note"}),
        (["!github:delete_*"], {"github:get_issue", "notes:get_note", "notes:delete_note"}),
        (["!*:delete_*"], {"github:get_issue", "notes:get_note"}),
        (["*", "!github:*"], {"notes:get_note", "notes:delete_note"}),
        (["!github:*", "github:get_issue"], set()),  # an exclusion wins, wherever it is written
        (["git*:*issue"], {"github:get_issue"}),
        (["github:get_issue", "notes:*_note"], {"github:get_issue", "notes:get_note", "notes:delete_note"}),
        (["!*"], set()),
        (["*"], {"github:get_issue", "github:delete_repo", "notes:get_note", "notes:delete_note"}),
    ],
)
def test_a_list_leaves_what_one_pattern_includes_and_none_excludes(patterns: list[str], allowed: set[str]) -> None:
    keys = ("github:get_issue", "github:delete_repo", "notes:get_note", "notes:delete_note")
    compiled = ToolPatterns(patterns)
    pairs = (key.partition(":") for key in keys)
    assert {f"{server}:{tool}" for server, _, tool in pairs if compiled.of_server(server).leaves(tool)} == allowed


TEXT = st.text("ab*", max_size=8)


@settings(max_examples=500, deadline=None)
@given(TEXT, st.text("ab", max_size=12))
def test_a_glob_matches_what_the_same_regular_expression_matches(glob: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, glob.split("*"))), name) is not None
    assert Glob.parse(glob).matches(name) == expected


@settings(max_examples=300, deadline=None)
@given(st.lists(st.builds("{}{}:{}".format, st.sampled_from(["", "!"]), TEXT, TEXT), max_size=4), TEXT, TEXT)
def test_what_is_said_of_all_names_of_a_server_is_true_of_each(patterns: list[str], server: str, name: str) -> None:
    of_server = ToolPatterns(patterns).of_server(server)
    if of_server.leaves_all:
        assert of_server.leaves(name)
    if of_server.leaves_none:
        assert not of_server.leaves(name)


def test_a_name_too_long_to_compare_is_outside_of_every_list() -> None:
    compiled = ToolPatterns(["!*:delete_*"]).of_server("github")
    assert compiled.leaves("x" * MAX_NAME_CHARS)
    assert not compiled.leaves("x" * (MAX_NAME_CHARS + 1))


def test_the_costliest_list_judges_the_costliest_names_in_passing() -> None:
    """A matcher that tries each place anew would take longer than the sun lasts."""
    patterns = [f"!*:{'*a' * 90}*{number}b" for number in range(MAX_PATTERNS)]
    assert all(len(pattern) <= MAX_PATTERN_CHARS for pattern in patterns)
    compiled = ToolPatterns(patterns).of_server("github")
    assert all(compiled.leaves("a" * length) for length in range(MAX_NAME_CHARS))


@pytest.mark.parametrize(
    ("tools", "reason"),
    [
        ("[]", "is an empty list; leave it out for all tools"),
        ("github:*", "must be a list"),
        ("[delete_repo]", "needs a server and a tool; write `*:TOOL`"),
        ('["!delete_*"]', "needs a server and a tool"),
        ('["github:get_?"]', "has another wildcard than `*`"),
        ('["github:[ab]"]', "has another wildcard than `*`"),
        ('["git hub:x"]', "must be a pattern such as `github:get_*`"),
        ('["github:"]', "must be a pattern such as"),
        ('["!"]', "must be a pattern such as"),
        ('[""]', "must be a pattern such as"),
        ('["github: x"]', "must be a pattern such as"),
        (f'["github:{"x" * 200}"]', "has 207 characters, but a pattern may have 200"),
        (f"[{', '.join(['github:x'] * 101)}]", "has 101 patterns, but may have 100"),
        ('["!githb:delete_*"]', "no server `githb`"),
        ("[!github:delete_*]", "quote it"),
        ("[*:delete_x]", "quote it"),
    ],
)
@pytest.mark.parametrize("section", ["tokens: {a: {sha256: %s, tools: TOOLS}}", "projects: {a: {tools: TOOLS}}"])
def test_a_wrong_pattern_is_refused_with_the_next_step(section: str, tools: str, reason: str) -> None:
    section = section.replace("%s", "a" * 64)
    with pytest.raises(ConfigError, match=re.escape(reason)):
        parse(f"servers: {{github: {{command: 'true'}}}}\n{section.replace('TOOLS', tools)}\n", "file.yaml", {})


@pytest.mark.parametrize("pattern", ["${X}", "!${X}:*"])
def test_no_error_repeats_a_pattern_from_the_environment(pattern: str) -> None:
    text = f"unassigned: {{tools: ['{pattern}']}}"
    for value in ("hunter2", "hunter2:x", "hun ter2"):
        with pytest.raises(ConfigError) as refusal:
            parse(text, "file.yaml", {"X": value})
        assert "ter2" not in str(refusal.value)


@pytest.mark.parametrize(
    ("scopes", "reason"),
    [("[]", "is an empty list; name at least one"), ("[reed]", "did you mean `read`"), ("read", "must be a list")],
)
def test_wrong_scopes_are_refused_with_the_next_step(scopes: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse(f"tokens: {{a: {{sha256: {'a' * 64}, scopes: {scopes}}}}}\n", "file.yaml", {})
    assert reason in str(refusal.value).lower()


def test_scopes_are_kept_once_and_in_one_order() -> None:
    config = parse(f"tokens: {{a: {{sha256: {'a' * 64}, scopes: [write, read, write]}}}}\n", "file.yaml", {})
    assert config.tokens["a"].scopes == ("read", "write")
