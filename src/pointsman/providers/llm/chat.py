"""Asks an OpenAI-compatible chat endpoint for an answer in JSON."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx2

from pointsman.core.model import Json

MAX_ANSWER_BYTES = 262_144
_UNKNOWN_FORMAT = (400, 422)  # statuses of endpoints that do not support a `response_format`
_NEXT_STEPS = {
    401: "; check `search_api.llm.key`",
    403: "; check `search_api.llm.key` and `model`",
    404: "; check `search_api.llm.base_url` and `model`",
}

Reason = Literal["timeout", "unreachable", "status", "oversized", "malformed", "refusal", "resting"]
REASONS: tuple[Reason, ...] = ("timeout", "unreachable", "status", "oversized", "malformed", "refusal", "resting")


class ChatError(Exception):
    """No usable answer. `str(error)` is for the log and has no text of the model."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class Endpoint:
    base_url: str
    model: str
    key: str | None
    timeout_s: float  # for a whole question, including retries


class Chat:
    """Remembers which request for JSON an endpoint supports: by schema, as any object, or only in words."""

    def __init__(self, http: httpx2.AsyncClient, endpoint: Endpoint) -> None:
        self._http = http
        self._endpoint = endpoint
        self._known_way = 0

    async def ask(self, messages: Sequence[Mapping[str, str]], schema: Json) -> Any:
        """The JSON of the model's answer, not validated.

        Raises:
            ChatError: no answer in time, a refusal, or something that is not JSON.
        """
        try:
            async with asyncio.timeout(self._endpoint.timeout_s):
                return _content(await self._answer(messages, schema))
        except TimeoutError:
            raise ChatError("timeout", f"no answer within {self._endpoint.timeout_s:g} s") from None
        except httpx2.InvalidURL:
            raise ChatError("unreachable", "the URL is invalid") from None
        except httpx2.DecodingError:
            raise ChatError("malformed", "the endpoint's answer cannot be decompressed") from None
        except httpx2.HTTPError as error:
            raise ChatError("unreachable", type(error).__name__) from None

    async def _answer(self, messages: Sequence[Mapping[str, str]], schema: Json) -> bytes:
        ways = _ways(schema)
        for way in range(self._known_way, len(ways)):
            status, body = await self._post({"messages": messages, "temperature": 0, **ways[way]})
            if status in _UNKNOWN_FORMAT and way + 1 < len(ways):
                continue
            if not 200 <= status < 300:
                raise ChatError("status", f"the endpoint answered {status}{_NEXT_STEPS.get(status, '')}")
            self._known_way = way
            return body
        raise AssertionError("the last way ends the loop")

    async def _post(self, body: Json) -> tuple[int, bytes]:
        endpoint = self._endpoint
        headers = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key is not None else {}
        url = f"{endpoint.base_url.rstrip('/')}/chat/completions"
        pieces: list[bytes] = []
        size = 0
        async with self._http.stream(
            "POST", url, json={"model": endpoint.model, **body}, headers=headers, timeout=endpoint.timeout_s
        ) as response:
            async for piece in response.aiter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size > MAX_ANSWER_BYTES:
                    raise ChatError("oversized", f"an answer of more than {MAX_ANSWER_BYTES} bytes")
            return response.status_code, b"".join(pieces)


def _ways(schema: Json) -> list[Json]:
    strict = {"type": "json_schema", "json_schema": {"name": "selection", "strict": True, "schema": schema}}
    return [{"response_format": strict}, {"response_format": {"type": "json_object"}}, {}]


def _content(body: bytes) -> Any:
    """The model's text, taken out of the endpoint's envelope and decoded."""
    try:
        message = json.loads(body)["choices"][0]["message"]
        refusal, text = message.get("refusal"), message.get("content")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ChatError("malformed", "the endpoint's answer is not a chat completion") from None
    if refusal:
        raise ChatError("refusal", "the model refused")
    if not isinstance(text, str):
        raise ChatError("malformed", "the model's answer has no text")
    try:
        return json.loads(_unfenced(text))
    except (ValueError, RecursionError):
        raise ChatError("malformed", "the model did not answer in JSON") from None


def _unfenced(text: str) -> str:
    """The text without a Markdown code fence, in which models often wrap JSON."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```"):
        return text[3:-3].partition("\n")[2]
    return text
