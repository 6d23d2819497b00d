"""Of what a server wrote to stderr, the lines that tell why it failed."""

from __future__ import annotations

from pointsman.router.owner.last_words import telling_lines

UV = ["error: Failed to fetch: https://pypi.org/", "cause: invalid peer certificate: UnknownIssuer", "hint: use a flag"]


def test_error_and_cause_are_told_and_the_hint_is_not() -> None:
    assert telling_lines(UV * 5) == UV[:2]


def test_lines_that_differ_in_time_only_are_told_once_as_the_last_attempt_had_them() -> None:
    attempts = [
        line
        for number in range(1, 5)
        for line in ("npm error code E404", f"npm error A complete log: 2026-11-17T07_41_{number}0_831Z-debug-0.log")
    ]
    assert telling_lines(attempts) == ["npm error code E404", attempts[-1]]


def test_without_an_error_the_last_lines_are_told() -> None:
    assert telling_lines([f"step {word}" for word in "abcdef"], 2) == ["step e", "step f"]
    assert telling_lines([]) == []


def test_secrets_in_the_lines_are_masked() -> None:
    assert telling_lines([f"error: token ghp_{'a1' * 18} is invalid"]) == ["error: token *** is invalid"]


def test_a_warning_is_told_only_if_there_is_nothing_else() -> None:
    warning, error = "warning: Invalid `SSL_CERT_FILE`. Path does not exist", "error: no such database"
    assert telling_lines([warning, error]) == [error]
    assert telling_lines([warning, "step b"]) == [warning]
