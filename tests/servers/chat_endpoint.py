"""A small OpenAI-compatible chat endpoint on loopback that says what a script tells it to say."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]
Answer = Callable[[Json], "web.StreamResponse | Awaitable[web.StreamResponse]"]

FENCED = re.compile(r"<data>\n(.*)\n</data>", re.DOTALL)


@dataclass(eq=False)
class ChatEndpoint:
    """`answer` may be changed at any time; it gets the body of a request and makes the response."""

    answer: Answer
    base_url: str = ""
    asked: list[Json] = field(default_factory=list)  # the bodies of all requests so far
    headers: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body: Json = json.loads(await request.read())
        self.asked.append(body)
        self.headers.append(dict(request.headers))
        made = self.answer(body)
        return made if isinstance(made, web.StreamResponse) else await made


def shown_to_the_model(body: Json) -> Json:
    """The data of a question, as a model reads it."""
    found = FENCED.search(body["messages"][1]["content"])
    assert found is not None
    data: Json = json.loads(found[1])
    return data


def says(content: Any, **message: Any) -> web.Response:
    """A completion; anything but a string is said as JSON."""
    text = content if content is None or isinstance(content, str) else json.dumps(content)
    said = {"role": "assistant", "content": text, **message}
    return web.json_response({"object": "chat.completion", "choices": [{"index": 0, "message": said}]})


def selects(*names: str, score: float = 0.9, reason: str = "it fits") -> Answer:
    """Chooses tools by their names, best first, with scores that fall a little."""

    def answer(body: Json) -> web.Response:
        ids = {tool["name"]: tool["id"] for tool in shown_to_the_model(body)["tools"]}
        chosen = [{"id": ids[name], "score": score - place / 100, "reason": reason} for place, name in enumerate(names)]
        return says({"selection": chosen})

    return answer


@asynccontextmanager
async def chat_endpoint(answer: Answer) -> AsyncIterator[ChatEndpoint]:
    endpoint = ChatEndpoint(answer)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", endpoint.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        endpoint.base_url = f"http://127.0.0.1:{port}/v1"
        yield endpoint
    finally:
        await runner.cleanup()
