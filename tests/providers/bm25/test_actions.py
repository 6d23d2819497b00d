"""Verbs: the steps of a sentence, and what reads or writes."""

from __future__ import annotations

import re

import pytest

from pointsman.providers.bm25 import actions
from pointsman.providers.bm25.actions import (
    Kind,
    RequestKind,
    is_deprecated,
    kind_of_request,
    kind_of_tool,
    refers_back,
    steps,
    without_negated,
)
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
        ("open issues of ana/shop with a label", "reads"),
        ("open issues", "reads"),
        ("open bugs assigned to me", "reads"),
        ("open issues, newest first", "reads"),
        ("open tasks for me", "reads"),
        ("open issues created by me", "reads"),
        ("open PRs and issues", "reads"),
        ("open tickets for customer 12", "reads"),
        ("open issues this week", "reads"),
        ("open issues (last week)", "reads"),
        ("open issues for these three bugs", None),
        ("open tickets for the following failures", None),
        ("close all open pages", "writes"),
        ("list open pages", "reads"),
        ("add 12 and 30", "reads"),
        ("a poem about the sea", None),
        ("the code that retries a call", "reads"),
        ("delete the old branch", "removes"),
        ("who created this branch", "done"),
        ("when was the file moved?", "done"),
        ("which files did I add", "done"),
        ("did I save an article about batteries", "done"),
        ("what is the way to restore deleted files", "reads"),
        ("how do I find files that were deleted", "reads"),
        ("list the deleted files", "reads"),
        ("undo the last commit", "undoes"),
        ("Unstage everything", "undoes"),
        ("rollback the update", "undoes"),
        ("reset my password", None),
        ("", None),
    ],
)
def test_the_first_verb_of_a_request_counts(text: str, kind: RequestKind | None) -> None:
    assert kind_of_request(text) == kind


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("list branches, do not switch", "list branches"),
        ("I do not want to create a branch, just list them", " a branch, just list them"),
        ("never delete, only show entities", ", only show entities"),
        ("commit the changes without pushing", "commit the changes"),
        ("read the file but don't change it", "read the file it"),
        ("do not delete anything", " anything"),
        ("do not convert the time", " the time"),
        ("a snapshot, not a screenshot", "a snapshot"),
        ("instead of a screenshot give me a snapshot", " give me a snapshot"),
        ("I do not see the button", "I do not see the button"),
        ("do not forget the milk", "do not forget the milk"),
        ("which records were never deleted", "which records were never deleted"),
        ("why don't you create one", "why don't you create one"),
        ("a lock without a key", "a lock without a key"),
        ("tests that do not start", "tests that do not start"),
        ("which tests do not run on windows", "which tests do not run on windows"),
        ("find customers who do not order", "find customers who do not order"),
        ("list users without email", "list users without email"),
        ("List them. Never delete one.", "List them. one."),
        ("stage it rather than commit it", "stage it it"),
        ("Rather than delete it, move it", " it, move it"),
        ("Without pushing, commit the change", ", commit the change"),
        ("instead of deleting it, archive it", " it, archive it"),
        ("list files (without deleting any)", "list files ( any)"),
        ("list files (do not delete any)", "list files  any)"),
        ("list files - do not delete any", "list files  any"),
        ("list files \u2014 don't delete any", "list files  any"),
        ("you should never push", ""),
        ("commit it so do not push", "commit it"),
        ("Just don't push", ""),
        ("commit it, but we do not want to push", "commit it"),
        ("show the note - do not delete it", "show the note  it"),
        ("List files. Show a message: never delete one", "List files. Show a message one"),
        ("show the log, then open an issue: do not restart it", "show the log, then open an issue: do not restart it"),
        ('Close "the issue". Do not push it', 'Close "the issue". it'),
        ("add a note - do not restart the server", "add a note - do not restart the server"),
        ("add a note \u2013 do not restart the server", "add a note \u2013 do not restart the server"),
        ("create a rule: do not merge without approval", "create a rule: do not merge without approval"),
        ("remember: never push to main", "remember: never push to main"),
        ("Remind me, saying: don't send it", "Remind me, saying: don't send it"),
        ("Add a note:\nNever push to main", "Add a note:\nNever push to main"),
        ("list the issues that we do not close", "list the issues that we do not close"),
        ("which branches do we never push", "which branches do we never push"),
        ("which branches should you never push", "which branches should you never push"),
        ("tests that just do not start", "tests that just do not start"),
    ],
)
def test_what_is_not_to_be_done_is_not_asked_for(text: str, left: str) -> None:
    assert without_negated(text) == left


def test_many_line_breaks_before_a_negation_cost_little() -> None:
    text = "\n" * 8_000
    assert without_negated(f"{text}do not delete{text}") == text[3:] + text


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


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        ("DEPRECATED: use b", True),
        ("Reads a file. Deprecated, use read_text_file.", True),
        ("\u26a0\ufe0f Deprecated: use b", True),
        ("Note: deprecated, use b", True),
        ("This tool is now deprecated.", True),
        ("Deprecated in v2.", True),
        ("Deprecated in favour of b", True),
        ("Deprecated as of v2", True),
        ("Deprecated and will be removed", True),
        ("Deprecated - use b", True),
        ("Deprecated: list items with b", True),
        ("**Deprecated** Reads a file", True),
        ("[deprecated] reads a file", True),
        ("Reads a file (deprecated)", True),
        ("Reads a file (deprecated, use b)", True),
        ("Lists deprecated functions.", False),
        ("Finds uses of what is deprecated.", False),
        ("Deprecated APIs of a module", False),
        ("Deprecated use of APIs is found", False),
        ("Deprecated in Go code are listed", False),
        ("Deprecated and unused functions of a module", False),
        ("Lists tools (deprecated, new)", False),
        ("Fields: id. Deprecated - bool", False),
    ],
)
def test_a_tool_may_call_itself_deprecated(description: str, expected: bool) -> None:
    assert is_deprecated(description) is expected


def test_looking_for_a_deprecation_repeats_nothing_without_a_bound() -> None:
    """Else a description with many line breaks costs time that grows with the square of their number."""
    without_classes = re.sub(r"\[(?:\\.|[^\]\\])*\]", "", actions._DEPRECATED.pattern)
    assert not re.search(r"(?<!\\)[*+]", without_classes)
    assert not is_deprecated("\n" * 10_000 + "deprecated functions")
