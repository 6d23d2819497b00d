"""Verbs: the steps of a sentence, and what reads or writes."""

from __future__ import annotations

import pytest

from pointsman.providers.bm25.actions import Kind, kind_of_request, kind_of_tool, refers_back, steps
from pointsman.providers.text import words


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Stage the files, commit them and push", ["Stage the files", "commit them", "push"]),
        ("Read it, and then send it to Anna", ["Read it", "send it to Anna"]),
        ("Compare apples and oranges", ["Compare apples and oranges"]),
        ("Buy bread, milk and eggs", ["Buy bread, milk and eggs"]),
        ("Look up the policy, then refund the payment", ["Look up the policy", "refund the payment"]),
        ("The then leader of the band", ["The then leader of the band"]),
    ],
)
def test_a_step_begins_with_a_verb(sentence: str, expected: list[str]) -> None:
    assert steps(sentence) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("show the last commit", "reads"),
        ("What changed in the last commit?", "reads"),
        ("please commit my work", "writes"),
        ("tell Anna about the sea", "writes"),
        ("tell me about the sea", None),
        ("open an issue about the leak", "writes"),
        ("open the page about the sea", None),
        ("open a text file", "reads"),
        ("open a text file and show it", "reads"),
        ("open the photo", "reads"),
        ("add 12 and 30", "reads"),
        ("a poem about the sea", None),
        ("the code that retries a call", "reads"),
        ("delete the old branch", "removes"),
        ("undo the last commit", "undoes"),
        ("Unstage everything", "undoes"),
        ("rollback the update", "undoes"),
        ("reset my password", "writes"),
        ("", None),
    ],
)
def test_the_first_verb_of_a_request_counts(text: str, kind: Kind | None) -> None:
    assert kind_of_request(text) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("git_commit", "writes"),
        ("listCommits", "reads"),
        ("git_diff_staged", "reads"),
        ("search_add_document", "writes"),
        ("get_post_comments", "reads"),
        ("toggle_logging", "writes"),
        ("browser_drop", "writes"),
        ("delete_entities", "removes"),
        ("search_delete_document", "removes"),
        ("git_reset", "undoes"),
        ("revert_commit", "undoes"),
        ("maps", None),
    ],
)
def test_a_tool_is_named_by_what_it_does(name: str, kind: Kind | None) -> None:
    assert kind_of_tool(words(name)) == kind


@pytest.mark.parametrize(
    ("step", "expected"),
    [("merge it", True), ("open an issue there", True), ("fork the best one", True), ("commit the files", False)],
)
def test_a_step_may_refer_back(step: str, expected: bool) -> None:
    assert refers_back(step) == expected
