"""Names of secrets, in every spelling, and names that only look like them."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.archive.code.secret_names import is_blocked
from tests.archive.code.test_guard import GOOD, SECRETS

BACKUPS = (
    "{}~",
    "{}.bak",
    "{}.old",
    "{}.orig",
    "{}.bak2",
    "{}.1",
    "{}.swp",
    ".{}.swp",
    "#{}#",
    ".#{}",
    "._{}",
    "{} copy",
)
MORE = ("{}.save", "{}.20240131", "{}-backup", "{} (2)", "{}.gz", "{}.tar.gz", "Copy of {}", "{}.bak.gz", "{}.example")
CORE = (".env", ".env.local", "id_rsa", "server.pem", "tls.key", ".npmrc", ".netrc", "credentials.json", "kubeconfig")


@pytest.mark.parametrize("name", CORE)
@pytest.mark.parametrize("backup", [*BACKUPS, *MORE])
def test_a_backup_copy_of_a_secret_is_one(name: str, backup: str) -> None:
    assert is_blocked(["src", backup.format(name)])


@settings(deadline=None, database=None)
@given(
    path=st.sampled_from(SECRETS),
    upper=st.sets(st.integers(0, 40)),
    behind=st.sampled_from(["", ".", " ", "..", ". .", "\u200b", "\u00ad"]),
    wide=st.booleans(),
)
def test_no_spelling_that_a_file_system_folds_gets_past(path: str, upper: set[int], behind: str, wide: bool) -> None:
    spelled = "".join(sign.upper() if at in upper else sign for at, sign in enumerate(path)) + behind
    if wide:
        spelled = "".join(chr(ord(sign) + 0xFEE0) if sign.isascii() and sign.isalnum() else sign for sign in spelled)
    assert unicodedata.normalize("NFKC", spelled).casefold().startswith(path.casefold())
    assert is_blocked(spelled.split("/"))


@pytest.mark.parametrize("path", GOOD, ids=ascii)
def test_names_that_only_look_like_secrets_are_none(path: str) -> None:
    assert not is_blocked(path.split("/"))


@pytest.mark.parametrize(
    "name", ["a" * 255, "-" * 255, "(1)" * 85, ".bak" * 63, "copy " * 51, "secret" * 42, "._-" * 85]
)
def test_long_names_are_judged(name: str) -> None:
    assert not is_blocked([name])
