"""Secrets are masked by name and by look, and nothing is endless."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pointsman.config.secrets import MASK
from pointsman.router.audit.log import short_name
from pointsman.router.audit.redaction import CUT, clean_arguments, clean_queries, free_text
from tests.router.audit.samples import SECRET


@pytest.mark.parametrize(
    "secret",
    [
        SECRET,
        "Bearer abcdefgh12345678",
        "sk-proj-abcdefghijklmnop1234",
        "password=hunter2",
        "API_KEY=0123-4567",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_11ABCDEFG0abcdefghijkl",
        "xoxb-123456789012-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_is_masked(secret: str) -> None:
    assert free_text(f"a {secret} b", 500) == f"a {MASK} b"


def test_a_password_in_a_url_is_masked() -> None:
    assert free_text("clone https://me:hunter2@git.example/x", 500) == f"clone https{MASK}git.example/x"


@pytest.mark.parametrize(
    "text",
    ["task-management-system-overview", "the token ring", "reset a password = new one", "https://a.example:80/x@y"],
)
def test_ordinary_words_stay(text: str) -> None:
    assert free_text(text, 500) == text


@pytest.mark.parametrize("at", range(0, 60, 7))
def test_a_cut_never_leaves_half_a_secret(at: int) -> None:
    assert "aB3" not in free_text("x" * at + SECRET, 50)
    assert "aB3" not in short_name("x" * at + SECRET, 50)


@pytest.mark.parametrize(
    "name", ["password", "apiKey", "API_KEY", "access_token", "Authorization", "client_secret", "Set-Cookie", "pin"]
)
def test_arguments_with_a_telling_name_are_masked(name: str) -> None:
    assert clean_arguments({"x": {name: "hunter2"}, "y": [{name: 1234}]}) == {"x": {name: MASK}, "y": [{name: MASK}]}


@pytest.mark.parametrize("arguments", [{"max_tokens": 5, "bypass": True, "key": None}, {}, [], "text", 1, 1.5, True])
def test_other_arguments_stay(arguments: Any) -> None:
    assert clean_arguments(arguments) == arguments


def test_huge_and_deep_arguments_are_cut() -> None:
    deep: Any = "end"
    for _ in range(5000):
        deep = [deep]
    arguments = {"deep": deep, "long": "x" * 10**6, "many": {str(n): n for n in range(10**5)}, "number": 10**5000}
    cleaned = clean_arguments(arguments)
    assert len(msgspec.json.encode(cleaned)) < 8192
    assert CUT in msgspec.json.encode(cleaned).decode()


def test_queries_are_bounded_in_number_and_length() -> None:
    cleaned = clean_queries(["word " * 1000] * 1000)
    assert len(cleaned) == 20
    assert {len(query) for query in cleaned} == {500}
