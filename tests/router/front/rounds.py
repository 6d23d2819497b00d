"""A modern client that answers questions by hand, one round after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.router.front.raw_http import Answer, Json, modern_call
from tests.router.front.served_front import Served

ELICITS: Json = {"elicitation": {}}


def accept(answer: str) -> Json:
    return {"action": "accept", "content": {"answer": answer}}


def asked(answer: Answer) -> Json:
    """The questions of an `input_required`."""
    result = answer.last["result"]
    assert result["resultType"] == "input_required", result
    questions: Json = result["inputRequests"]
    return questions


def state(answer: Answer) -> str:
    sealed: str = answer.last["result"]["requestState"]
    return sealed


def retry_of(
    before: Answer, tool: str, arguments: Json | None, responses: Json, *, client_id: Any = 2, **meta: Any
) -> tuple[Json, list[tuple[str, str]]]:
    body, headers = modern_call(tool, arguments, client_id=client_id, capabilities=ELICITS, **meta)
    body["params"] |= {"requestState": state(before), "inputResponses": responses}
    return body, headers


async def called(served: Served, tool: str, arguments: Json | None = None, **meta: Any) -> Answer:
    body, headers = modern_call(tool, arguments, capabilities=ELICITS, **meta)
    return await served.send(body, headers=headers)


async def retried(
    served: Served, before: Answer, tool: str, arguments: Json | None = None, responses: Json | None = None, **how: Any
) -> Answer:
    """Answers all questions with their own messages, unless `responses` says something else."""
    given = responses if responses is not None else answers(before, lambda message: message)
    body, headers = retry_of(before, tool, arguments, given)
    return await served.send(body, headers=headers, **how)


def answers(before: Answer, answer: Callable[[str], str]) -> Json:
    return {key: accept(answer(question["params"]["message"])) for key, question in asked(before).items()}
