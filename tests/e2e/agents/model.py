"""A scripted model on loopback: Anthropic messages, OpenAI chat completions and responses, Gemini; all of them stream.

It does what a model with one task does: find a tool for the task, run it, and repeat its answer. Where the client shows
`tool_discovery`, it calls that; where the client hides tools behind a search of its own, it searches first.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

CLIENT_SEARCHES = ("ToolSearch", "tool_search")
_TASK = re.compile(r"TASK: (?P<task>[^\n<\"]+)")


@dataclass(frozen=True)
class Call:
    name: str
    arguments: Json
    namespace: str | None = None  # Codex groups the tools of a server


@dataclass(frozen=True)
class Say:
    text: str


@dataclass
class Turn:
    """What one request shows the model: wires differ, this does not."""

    tools: dict[str, Call] = field(default_factory=dict)  # by the name that the model sees; how it is called
    instructions: str = ""
    task: str = ""
    results: list[tuple[str, str]] = field(default_factory=list)  # (tool, text) in order
    raw: Json = field(default_factory=dict)

    def named(self, suffix: str) -> Call | None:
        return next((call for name, call in self.tools.items() if name.endswith(suffix)), None)


@dataclass
class Model:
    """The policy, and a record of all turns."""

    arguments: dict[str, Json]  # what to send, by tool key
    turns: list[Turn] = field(default_factory=list)
    url: str = ""

    def decide(self, turn: Turn) -> Call | Say:
        self.turns.append(turn)
        done = [name for name, _ in turn.results]
        last = turn.results[-1][1] if turn.results else ""
        if not turn.task:
            return Say("OK")
        discovery, execute = turn.named("tool_discovery"), turn.named("tool_execute")
        if discovery is None or execute is None:
            search = next((turn.tools[name] for name in CLIENT_SEARCHES if name in turn.tools), None)
            if search is not None and search.name not in done:
                return Call(search.name, {"query": turn.task}, search.namespace)
            return Say(f"NO TOOL for {turn.task}")
        if not any(name.endswith("tool_discovery") for name in done):
            return Call(discovery.name, {"query": [turn.task]}, discovery.namespace)
        if not any(name.endswith("tool_execute") for name in done):
            found = re.findall(r'\\*"toolKey\\*": *\\*"([^"\\]+)', last)
            key = next((key for key in found if key in self.arguments), None)
            if key is None:
                return Say(f"NOT FOUND among {found}")
            return Call(execute.name, {"toolKey": key, "arguments": self.arguments[key]}, execute.namespace)
        return Say(f"DONE: {last}")


class Searches(Model):
    """Only asks the client's own search, once for each request, whatever it finds."""

    def __init__(self, requests: list[str], more: Json | None = None) -> None:
        super().__init__({})
        self.requests = requests
        self.more = more or {}  # arguments besides the query

    def decide(self, turn: Turn) -> Call | Say:
        self.turns.append(turn)
        search = next((turn.tools[name] for name in CLIENT_SEARCHES if name in turn.tools), None)
        if search is None or len(turn.results) == len(self.requests):
            return Say("DONE")
        arguments = {"query": self.requests[len(turn.results)], **self.more}
        return Call(search.name, arguments, search.namespace)


@contextmanager
def serving(model: Model) -> Iterator[Model]:
    class Handler(_Handler):
        decide = staticmethod(model.decide)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    decide: Callable[[Turn], Call | Say]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.partition("?")[0]
        try:
            request: Json = json.loads(body or b"{}")
        except ValueError:
            request = {}
        for ending, wire in _WIRES.items():
            if path.endswith(ending):
                read, write = wire
                self._stream(write(self.decide(read(request)), bool(request.get("stream", True))))
                return
        if path.endswith("count_tokens"):
            self._send(b'{"input_tokens": 1}', "application/json")
        elif path.endswith(":countTokens"):
            self._send(b'{"totalTokens": 1}', "application/json")
        elif path.endswith(":generateContent"):
            answer = next(iter(_write_gemini(self.decide(_read_gemini(request)), True)))
            self._send(json.dumps(answer[1]).encode(), "application/json")
        else:
            self._send(b"{}", "application/json", 404)

    def do_GET(self) -> None:
        self._send(b'{"data": [], "object": "list", "models": []}', "application/json")

    def do_HEAD(self) -> None:
        self._send(b"", "application/json")

    def _stream(self, events: Iterator[tuple[str, Json | str]]) -> None:
        parts = []
        whole: Json | None = None
        for name, data in events:
            if name == "whole":
                whole = data if isinstance(data, dict) else None
                continue
            line = data if isinstance(data, str) else json.dumps(data)
            parts.append(f"event: {name}\ndata: {line}\n\n" if name else f"data: {line}\n\n")
        if whole is not None:
            self._send(json.dumps(whole).encode(), "application/json")
        else:
            self._send("".join(parts).encode(), "text/event-stream")

    def _send(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


def _text(content: Any) -> str:
    """The text of a content in any wire's form."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(part) for part in content)
    if isinstance(content, dict):
        for key in ("text", "output", "content", "parts", "response", "tool_name", "tools"):
            if key in content:
                return _text(content[key])
        return json.dumps(content)
    return ""


def _task(texts: list[str]) -> str:
    found = [match["task"].strip() for text in texts for match in _TASK.finditer(text)]
    return found[-1] if found else ""


# --- Anthropic messages


def _read_anthropic(request: Json) -> Turn:
    turn = Turn(raw=request, instructions=_text(request.get("system", "")))
    for tool in request.get("tools", []):
        turn.tools[tool["name"]] = Call(tool["name"], {})
    names: dict[str, str] = {}
    texts = []
    for message in request.get("messages", []):
        content = message["content"]
        if isinstance(content, str):
            texts.append(content)
            continue
        for part in content:
            if part.get("type") == "tool_use":
                names[part["id"]] = part["name"]
            elif part.get("type") == "tool_result":
                turn.results.append((names.get(part["tool_use_id"], "?"), _text(part.get("content", ""))))
            elif message["role"] == "user":
                texts.append(_text(part))
    turn.task = _task(texts)
    return turn


def _write_anthropic(step: Call | Say, stream: bool) -> Iterator[tuple[str, Json | str]]:
    if isinstance(step, Call):
        block: Json = {"type": "tool_use", "id": _id("toolu"), "name": step.name, "input": step.arguments}
        empty: Json = {**block, "input": {}}
        delta: Json = {"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}
        reason = "tool_use"
    else:
        block = {"type": "text", "text": step.text}
        empty, delta, reason = {"type": "text", "text": ""}, {"type": "text_delta", "text": step.text}, "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message: Json = {
        "id": _id("msg"),
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5",
        "content": [],
    }
    if not stream:
        yield "whole", {**message, "content": [block], "stop_reason": reason, "stop_sequence": None, "usage": usage}
        return
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    yield "message_start", {"type": "message_start", "message": message}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": empty}
    yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    ending = {"stop_reason": reason, "stop_sequence": None}
    yield "message_delta", {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 1}}
    yield "message_stop", {"type": "message_stop"}


# --- OpenAI chat completions


def _read_chat(request: Json) -> Turn:
    turn = Turn(raw=request)
    for tool in request.get("tools") or []:
        name = tool.get("function", {}).get("name", "")
        turn.tools[name] = Call(name, {})
    names: dict[str, str] = {}
    texts = []
    for message in request.get("messages", []):
        text = _text(message.get("content"))
        if message["role"] in ("system", "developer"):
            turn.instructions += text
        elif message["role"] == "user":
            texts.append(text)
        elif message["role"] == "assistant":
            names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or []}
        elif message["role"] == "tool":
            turn.results.append((names.get(message["tool_call_id"], "?"), text))
    turn.task = _task(texts)
    return turn


def _write_chat(step: Call | Say, stream: bool) -> Iterator[tuple[str, Json | str]]:
    head: Json = {"id": _id("chatcmpl"), "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    if isinstance(step, Call):
        function = {"name": step.name, "arguments": json.dumps(step.arguments)}
        said: Json = {"role": "assistant", "content": None}
        said["tool_calls"] = [{"index": 0, "id": _id("call"), "type": "function", "function": function}]
        reason = "tool_calls"
    else:
        said, reason = {"role": "assistant", "content": step.text}, "stop"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    if not stream:
        choice = {"index": 0, "message": said, "finish_reason": reason}
        yield "whole", {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return
    yield "", {**head, "choices": [{"index": 0, "delta": said, "finish_reason": None}]}
    yield "", {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}
    yield "", "[DONE]"


# --- OpenAI responses


def _read_responses(request: Json) -> Turn:
    turn = Turn(raw=request, instructions=_text(request.get("instructions") or ""))
    _take_tools(turn, request.get("tools") or [])
    names: dict[str, str] = {}
    texts = []
    given = request.get("input", [])
    items: list[Json] = [{"role": "user", "content": given}] if isinstance(given, str) else given
    for item in items:
        kind = item.get("type", "message")
        if kind == "message" and item.get("role") == "user":
            texts.append(_text(item.get("content")))
        elif kind == "message":
            turn.instructions += _text(item.get("content")) if item.get("role") in ("developer", "system") else ""
        elif kind in ("function_call", "tool_search_call"):
            names[item["call_id"]] = item.get("name", "tool_search")
        elif kind == "function_call_output":
            turn.results.append((names.get(item["call_id"], "?"), _text(item.get("output"))))
        elif kind == "tool_search_output":
            turn.results.append(("tool_search", json.dumps(item.get("tools"))))
            _take_tools(turn, item.get("tools") or [])
    turn.task = _task(texts)
    return turn


def _take_tools(turn: Turn, tools: list[Json], namespace: str | None = None) -> None:
    for tool in tools:
        if tool.get("type") == "namespace":
            _take_tools(turn, tool["tools"], tool["name"])
        elif not tool.get("defer_loading") or namespace:
            name = tool.get("name") or tool["type"]
            turn.tools[(namespace or "") + name] = Call(name, {}, namespace)


def _write_responses(step: Call | Say, stream: bool) -> Iterator[tuple[str, Json | str]]:
    if isinstance(step, Call) and step.name == "tool_search":
        item: Json = {"type": "tool_search_call", "id": _id("tsc"), "call_id": _id("call"), "status": "completed"}
        item |= {"execution": "client", "arguments": step.arguments}
    elif isinstance(step, Call):
        item = {"type": "function_call", "id": _id("fc"), "call_id": _id("call"), "name": step.name}
        item |= {"arguments": json.dumps(step.arguments), "status": "completed"}
        item |= {"namespace": step.namespace} if step.namespace else {}
    else:
        content = [{"type": "output_text", "text": step.text, "annotations": []}]
        item = {"type": "message", "id": _id("msg"), "role": "assistant", "status": "completed", "content": content}
    usage: Json = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    response: Json = {"id": _id("resp"), "object": "response", "created_at": 1, "model": "scripted", "output": []}
    done = {**response, "status": "completed", "output": [item], "usage": usage}
    if not stream:
        yield "whole", done
        return
    events: list[Json] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
    ]
    place = {"item_id": item["id"], "output_index": 0}
    if item["type"] == "function_call":
        events.append({"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]})
        events.append({"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]})
    elif item["type"] == "message":
        text = item["content"][0]["text"]
        events.append({"type": "response.output_text.delta", **place, "content_index": 0, "delta": text})
        events.append({"type": "response.output_text.done", **place, "content_index": 0, "text": text})
    events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    events.append({"type": "response.completed", "response": done})
    for number, event in enumerate(events):
        yield event["type"], {**event, "sequence_number": number}


# --- Gemini


def _read_gemini(request: Json) -> Turn:
    turn = Turn(raw=request, instructions=_text(request.get("systemInstruction") or ""))
    for group in request.get("tools") or []:
        for tool in group.get("functionDeclarations") or []:
            turn.tools[tool["name"]] = Call(tool["name"], {})
    texts = []
    for content in request.get("contents", []):
        for part in content.get("parts", []):
            if "functionResponse" in part:
                answered = part["functionResponse"]
                turn.results.append((answered["name"], _text(answered.get("response") or {})))
            elif "text" in part and content.get("role") == "user":
                texts.append(part["text"])
    turn.task = _task(texts)
    return turn


def _write_gemini(step: Call | Say, stream: bool) -> Iterator[tuple[str, Json | str]]:
    part: Json = {"text": step.text} if isinstance(step, Say) else {}
    if isinstance(step, Call):
        part = {"functionCall": {"name": step.name, "args": step.arguments}, "thoughtSignature": "c2lnbmVk"}
    content = {"role": "model", "parts": [part]}
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    yield "", {"candidates": [{"index": 0, "content": content, "finishReason": "STOP"}], "usageMetadata": usage}


_counter = iter(range(1, 1_000_000))


def _id(prefix: str) -> str:
    return f"{prefix}_{next(_counter):06}"


_WIRES: dict[str, tuple[Callable[[Json], Turn], Callable[[Call | Say, bool], Iterator[tuple[str, Json | str]]]]] = {
    "/v1/messages": (_read_anthropic, _write_anthropic),
    "/chat/completions": (_read_chat, _write_chat),
    "/responses": (_read_responses, _write_responses),
    ":streamGenerateContent": (_read_gemini, _write_gemini),
}
