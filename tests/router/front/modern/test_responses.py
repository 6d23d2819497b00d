"""What is an answer to a question, and what is wrong with what is none."""

from __future__ import annotations

import pytest

from pointsman.router.front.modern.parked_calls import response_problem
from tests.router.front.raw_http import Json

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
TEXT = {"type": "text", "text": "hello"}


@pytest.mark.parametrize(
    ("method", "response"),
    [
        (ELICIT, {"action": "accept", "content": {"who": "Ada"}}),
        (ELICIT, {"action": "accept"}),
        (ELICIT, {"action": "decline", "content": None}),
        (ELICIT, {"action": "cancel", "_meta": {}}),
        (SAMPLE, {"role": "assistant", "content": TEXT, "model": "m", "stopReason": "endTurn"}),
        (SAMPLE, {"role": "assistant", "content": [TEXT, {"type": "tool_use", "id": "1"}], "model": "m"}),
        (ROOTS, {"roots": []}),
        (ROOTS, {"roots": [{"uri": "file:///a", "name": "a"}]}),
    ],
)
def test_a_proper_answer_is_one(method: str, response: Json) -> None:
    assert response_problem(method, response) is None


@pytest.mark.parametrize(
    ("method", "response", "field"),
    [
        (ELICIT, {}, "action"),
        (ELICIT, {"action": "Accept"}, "action"),
        (ELICIT, {"action": "accept", "content": []}, "content"),
        (SAMPLE, {"content": TEXT, "model": "m"}, "role"),
        (SAMPLE, {"role": "assistant", "content": TEXT}, "model"),
        (SAMPLE, {"role": "assistant", "model": "m"}, "content"),
        (SAMPLE, {"role": "assistant", "content": "hello", "model": "m"}, "content"),
        (SAMPLE, {"role": "assistant", "content": [TEXT, {"text": "x"}], "model": "m"}, "content"),
        (ROOTS, {}, "roots"),
        (ROOTS, {"roots": {}}, "roots"),
        (ROOTS, {"roots": ["file:///a"]}, "roots"),
    ],
)
def test_what_is_wrong_is_named(method: str, response: Json, field: str) -> None:
    assert (response_problem(method, response) or "").startswith(f"`{field}` must be")
