"""A small server whose tools ask the client something before they answer, in the way of whichever era it is started in.

As a program it speaks stdio; `tests.servers.asker_http` puts the same tools behind HTTP. No library, so that it starts
at once. Every step is written to a trace file, one word and the call's tag a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

MODERN, LEGACY = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
NAMES = ("name", "visit", "think", "places", "twice", "plain", "stay", "report", "visit_http")

Message = dict[str, Any]
Ask = Callable[[str, Message], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class RefusedError(Exception):
    """The client, or somebody on the way to it, answered with an error."""


class InputNeededError(Exception):
    """The modern way to ask."""

    def __init__(self, result: Message) -> None:
        self.result = result


class Asker:
    def __init__(self, era: str, trace: Path) -> None:
        self.era = era
        self._trace = trace
        self._number = 0
        self._answers: dict[str, asyncio.Future[Message]] = {}

    def note(self, word: str, tag: str) -> None:
        with self._trace.open("a") as file:
            file.write(f"{word} {tag}\n")

    def introduction(self) -> Message:
        return {"tools": {}, "logging": {}}

    def tools(self) -> list[Message]:
        schema = {"type": "object", "properties": {"tag": {"type": "string"}}}
        return [{"name": name, "description": f"Asks: {name}", "inputSchema": schema} for name in NAMES]

    # --- questions

    def answered(self, message: Message) -> None:
        future = self._answers.pop(str(message.get("id")), None)
        if future is not None and not future.done():
            future.set_result(message)

    async def call(self, params: Message, send: Send) -> Message:
        tag = (params.get("arguments") or {}).get("tag", "")
        ask = self._legacy_ask(tag, send) if self.era == "legacy" else self._modern_ask(tag, params)
        self.note("began", tag)
        try:
            if params["name"] == "report":
                return await self._report(params, send)
            text = await getattr(self, "tool_" + params["name"])(tag, ask)
        except InputNeededError as question:
            return question.result
        except RefusedError as reason:
            self.note("refused", tag)
            return {"content": [{"type": "text", "text": f"refused: {reason}"}], "isError": True}
        except asyncio.CancelledError:
            self.note("cancelled", tag)
            raise
        self.note("finished", tag)
        return {"content": [{"type": "text", "text": text}], "resultType": "complete"}

    def _legacy_ask(self, tag: str, send: Send) -> Ask:
        async def ask(method: str, params: Message) -> Message:
            self._number += 1
            number = f"q{self._number}"
            future = self._answers[number] = asyncio.get_running_loop().create_future()
            await send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            self.note("asked", tag)
            answer = await future
            if "result" not in answer:
                raise RefusedError(answer["error"]["message"])
            result: Message = answer["result"]
            return result

        return ask

    def _modern_ask(self, tag: str, params: Message) -> Ask:
        known = json.loads(params.get("requestState") or "{}") | (params.get("inputResponses") or {})
        asked = 0

        async def ask(method: str, question: Message) -> Message:
            nonlocal asked
            key = f"q{asked}"
            asked += 1
            if key in known:
                answer: Message = known[key]
                return answer
            needed = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
            if needed[method] not in params["_meta"][META + "clientCapabilities"]:
                raise RefusedError(f"the client does not declare {needed[method]}")
            self.note("asked", tag)
            requests = {key: {"method": method, "params": question}}
            raise InputNeededError(
                {"resultType": "input_required", "inputRequests": requests, "requestState": json.dumps(known)}
            )

        return ask

    async def _report(self, params: Message, send: Send) -> Message:
        """Says all that a call can say besides asking, and answers with the `_meta` that it came with."""
        meta = params.get("_meta") or {}
        for step in (1, 2):
            progress = {"progressToken": meta.get("progressToken"), "progress": step, "total": 2, "message": f"s{step}"}
            await send({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        for level in ("debug", "warning"):
            said = {"level": level, "logger": "asker", "data": f"a {level}"}
            await send({"jsonrpc": "2.0", "method": "notifications/message", "params": said})
        content = [
            {"type": "text", "text": json.dumps(meta)},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "a://b", "text": "inside"}},
            {"type": "resource_link", "uri": "a://c", "name": "c"},
        ]
        result = {"content": content, "structuredContent": {"n": 1}, "_meta": {"com.example/back": 7}}
        return {**result, "resultType": "complete"}

    # --- tools

    async def tool_plain(self, tag: str, ask: Ask) -> str:
        return f"plain {tag}"

    async def tool_stay(self, tag: str, ask: Ask) -> str:
        await asyncio.Event().wait()
        return "never"

    async def tool_name(self, tag: str, ask: Ask) -> str:
        return await self._name(tag, ask)

    async def tool_twice(self, tag: str, ask: Ask) -> str:
        return f"{await self._name(tag + '/1', ask)} {await self._name(tag + '/2', ask)}"

    async def _name(self, tag: str, ask: Ask) -> str:
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        answer = await ask("elicitation/create", {"mode": "form", "message": tag, "requestedSchema": schema})
        return str(answer["content"]["name"]) if answer["action"] == "accept" else str(answer["action"])

    async def tool_visit(self, tag: str, ask: Ask, origin: str = "https://example.test/") -> str:
        params: Message = {"mode": "url", "message": tag, "url": origin + tag}
        if self.era == "legacy":
            params["elicitationId"] = tag
        return f"{tag} {(await ask('elicitation/create', params))['action']}"

    async def tool_visit_http(self, tag: str, ask: Ask) -> str:
        return await self.tool_visit(tag, ask, "http://127.0.0.1/")

    async def tool_think(self, tag: str, ask: Ask) -> str:
        content = {"role": "user", "content": {"type": "text", "text": tag}}
        answer = await ask("sampling/createMessage", {"messages": [content], "maxTokens": 10})
        return str(answer["content"]["text"])

    async def tool_places(self, tag: str, ask: Ask) -> str:
        return " ".join(root["uri"] for root in (await ask("roots/list", {}))["roots"])


def introduced(asker: Asker, message: Message) -> Message | None:
    """The answer to what a server is asked before its first call; None: it is a call."""
    method = message["method"]
    if method == "server/discover" and asker.era == "modern":
        return {"supportedVersions": [MODERN], "capabilities": asker.introduction(), "resultType": "complete"}
    if method == "initialize" and asker.era == "legacy":
        info = {"name": "asker", "version": "1"}
        return {"protocolVersion": LEGACY, "capabilities": asker.introduction(), "serverInfo": info}
    if method == "tools/list":
        return {"tools": asker.tools(), "resultType": "complete", "ttlMs": 60_000}
    return {} if method == "ping" else None


async def serve_stdio(asker: Asker) -> None:
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: dict[Any, asyncio.Task[None]] = {}

    async def send(message: Message) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    async def run(message: Message) -> None:
        result = await asker.call(message["params"], send)
        await send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    while line := await reader.readline():
        message = json.loads(line)
        if "method" not in message:
            asker.answered(message)
        elif message["method"] == "notifications/cancelled":
            number = message["params"]["requestId"]
            if (task := running.get(number)) and not task.done():
                task.cancel()
                stopped = {"code": 0, "message": "Request cancelled"}  # as the Python SDK answers
                await send({"jsonrpc": "2.0", "id": number, "error": stopped})
        elif "id" not in message:
            continue
        elif (result := introduced(asker, message)) is not None:
            await send({"jsonrpc": "2.0", "id": message["id"], "result": result})
        elif message["method"] == "tools/call":
            running[message["id"]] = asyncio.create_task(run(message))
        else:
            error = {"code": -32601, "message": "Method not found"}
            await send({"jsonrpc": "2.0", "id": message["id"], "error": error})


if __name__ == "__main__":
    asyncio.run(serve_stdio(Asker(sys.argv[1], Path(sys.argv[2]))))
